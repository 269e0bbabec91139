//! One connection, with what was prepared on it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::{MaybeDone, maybe_done, poll_fn};
use hashbrown::HashMap;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, NoTls, Notification, Statement};
use tracing::debug;

use super::error::Failure;
use super::sql;

/// Statements kept prepared. Rows whose sets of fields vary without end would grow this without end.
const MAX_PREPARED: usize = 256;

/// The longest while that the server has for saying that a statement ran too long.
const LONGEST_GRACE: Duration = Duration::from_secs(10);

/// How long a rollback may take, whose outcome nobody waits for.
const ROLLBACK_WITHIN: Duration = Duration::from_secs(5);

/// How long the socket of one host may take, unless the connection string says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What the server enforces on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) statement_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) idle_in_transaction_session_timeout: Duration,
}

/// A live connection and the task that drives it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The process id of the server's side.
    pub(crate) backend: i32,
    /// How long an answer may take: as long as the server lets a statement run, and a while for it to say so. A server
    /// that is frozen, behind a peer that still acknowledges, would be waited for without end.
    pub(crate) patience: Duration,
    prepared: HashMap<String, Statement>,
    driver: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closes the socket at once instead of when the server has answered everything: a session is dropped only
        // when nothing it may still say matters.
        self.driver.abort();
    }
}

impl Session {
    /// Connects and sets the session's time limits, within one limit for every host and one for the rest.
    pub(crate) async fn connect(
        connection: &tokio_postgres::Config,
        limits: Limits,
        application_name: &str,
    ) -> Result<Self, Failure> {
        Self::connect_hearing(connection, limits, application_name, None).await
    }

    /// Like [`Session::connect`]; notifications go to `hearer`, which is dropped when the connection is lost.
    pub(crate) async fn connect_hearing(
        connection: &tokio_postgres::Config,
        limits: Limits,
        application_name: &str,
        hearer: Option<UnboundedSender<Notification>>,
    ) -> Result<Self, Failure> {
        let mut connection = connection.clone();
        connection.application_name(application_name);
        let per_attempt = connection.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        connection.connect_timeout(per_attempt);
        // A peer that is gone without a word is noticed by the kernel, whether we are sending or waiting.
        if connection.get_tcp_user_timeout().is_none() {
            connection.tcp_user_timeout(Duration::from_secs(30));
        }
        if connection.get_keepalives_interval().is_none() {
            connection.keepalives_idle(Duration::from_secs(10));
            connection.keepalives_interval(Duration::from_secs(5));
            connection.keepalives_retries(4);
        }
        // The driver's own limit is for the socket of each host. A server that takes the connection and then says
        // nothing would be waited for without end.
        let within = per_attempt * (connection.get_hosts().len().max(1) as u32 + 1);
        match timeout(within, Box::pin(Self::establish(connection, limits, hearer))).await {
            Ok(session) => session,
            Err(_) => Err(Failure::silence(within)),
        }
    }

    async fn establish(
        connection: tokio_postgres::Config,
        limits: Limits,
        hearer: Option<UnboundedSender<Notification>>,
    ) -> Result<Self, Failure> {
        let (client, mut connection) = connection.connect(NoTls).await?;
        let driver = tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    // A notice may quote rows, so its text is dropped.
                    Some(Ok(AsyncMessage::Notice(notice))) => debug!(code = notice.code().code(), "notice"),
                    // Whoever stopped hearing is about to drop the session.
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        hearer.as_ref().map(|hearer| hearer.send(notification).ok());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break,
                }
            }
        });
        let set_limits = sql::set_limits(
            limits.statement_timeout,
            limits.lock_timeout,
            limits.idle_in_transaction_session_timeout,
        );
        let mut session = Self {
            client,
            backend: 0,
            patience: patience(limits.statement_timeout),
            prepared: HashMap::new(),
            driver,
        };
        session.client.batch_execute(&set_limits).await?;
        let row = session.client.query_one("select pg_backend_pid()", &[]).await?;
        session.backend = row.try_get(0)?;
        Ok(session)
    }

    /// Closes the socket at once: all who wait for an answer are told that there will be none.
    #[cfg(feature = "lookup")]
    pub(crate) fn close(&self) {
        self.driver.abort();
    }

    /// Returns the prepared form of a text, preparing it once.
    pub(crate) async fn prepare(&mut self, sql: &str) -> Result<Statement, Failure> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = answered(self.patience, self.client.prepare(sql)).await?;
        if self.prepared.len() >= MAX_PREPARED {
            self.prepared.clear();
        }
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Ends a transaction that failed or is not wanted. Its own failure adds nothing: the connection is gone then, and
    /// the transaction with it.
    pub(crate) async fn roll_back(&self) {
        if let Err(failure) = answered(ROLLBACK_WITHIN, self.client.batch_execute(sql::ROLLBACK)).await {
            debug!(code = failure.code, "rollback failed");
        }
    }
}

/// How long an answer may take when a statement may run for `statement_timeout`; zero switches the server's limit off,
/// and ours with it.
fn patience(statement_timeout: Duration) -> Duration {
    match statement_timeout.is_zero() {
        true => Duration::MAX,
        false => statement_timeout.saturating_add(statement_timeout.min(LONGEST_GRACE)),
    }
}

/// Waits for an answer, but not without end.
pub(crate) async fn answered<T, E: Into<Failure>>(
    within: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    match timeout(within, answer).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(Failure::silence(within)),
    }
}

pub(crate) type Step<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// Sends all steps before it waits for the first answer, and returns the answers in order.
///
/// A step is sent when its future is polled for the first time; that is how the driver works. If one fails while it is
/// being sent, those behind it are not sent: a commit must never follow a statement that never left. The answers end with
/// the first one that does not come within `patience` after the one before it.
pub(crate) async fn pipelined(steps: Vec<Step<'_>>, patience: Duration) -> Vec<Result<(), Failure>> {
    let mut steps: Vec<MaybeDone<Step<'_>>> = steps.into_iter().map(maybe_done).collect();
    let mut sent = 0;
    for step in &mut steps {
        poll_fn(|context| {
            // The answer is looked at below; this poll is there to send.
            let _ = Pin::new(&mut *step).poll(context);
            std::task::Poll::Ready(())
        })
        .await;
        sent += 1;
        if matches!(step, MaybeDone::Done(Err(_))) {
            break;
        }
    }
    let mut answers = Vec::with_capacity(sent);
    for step in &mut steps[..sent] {
        let mut step = Pin::new(step);
        if timeout(patience, step.as_mut()).await.is_err() {
            answers.push(Err(Failure::silence(patience)));
            break;
        }
        // A step that was awaited has its answer, and it is taken once.
        answers.extend(step.take_output());
    }
    answers
}

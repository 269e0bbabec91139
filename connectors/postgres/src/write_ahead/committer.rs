//! Asks for markers, forgets them, and raises the fence.

use std::time::Duration;

use levada_core::template::{CheckpointCommitter, Marker};
use levada_core::{CheckpointId, ErrorClass, SinkContext, SinkError};
use tokio::time::Instant;
use tokio_postgres::types::ToSql;

use super::marker::{MARKERS, MarkerTable};
use super::sql;
use crate::PostgresSinkConfig;
use crate::sink::application_name;
use crate::sink::backoff::Pauses;
use crate::sink::catalog::Unfit;
use crate::sink::config::this_process;
use crate::sink::error::{Failure, fatal};
use crate::sink::failpoint::fail_point;
use crate::sink::session::{Limits, Session, answered};

/// Remembers in the table `levada.markers` which segments were sent.
///
/// It shares the sink's transaction: whoever sends a segment writes its marker with [`MarkerTable::write`]. For a target that
/// is not this database there is [`PostgresCommitter::alone`].
///
/// It has a connection of its own, beside the sink's.
pub struct PostgresCommitter {
    connection: tokio_postgres::Config,
    limits: Limits,
    open_timeout: Duration,
    owner: String,
    markers: MarkerTable,
    is_alone: bool,
    /// Empty until it is opened.
    application_name: String,
    job: String,
    session: Option<Session>,
}

/// Shows no password.
impl std::fmt::Debug for PostgresCommitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresCommitter")
            .field("hosts", &self.connection.get_hosts())
            .field("database", &self.connection.get_dbname())
            .field("is_alone", &self.is_alone)
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

impl PostgresCommitter {
    /// Makes a committer for a sink that writes markers through a clone of `markers`, in the same database.
    pub fn new(connection: tokio_postgres::Config, markers: MarkerTable) -> Self {
        let limits = Limits {
            statement_timeout: Duration::from_secs(60),
            lock_timeout: Duration::from_secs(10),
            idle_in_transaction_session_timeout: Duration::from_secs(10),
        };
        Self {
            connection,
            limits,
            open_timeout: Duration::from_secs(30),
            owner: this_process(),
            markers,
            is_alone: false,
            application_name: String::new(),
            job: String::new(),
            session: None,
        }
    }

    pub(super) fn of_sink(config: &PostgresSinkConfig, markers: MarkerTable) -> Self {
        Self {
            limits: config.limits(),
            open_timeout: config.open_timeout,
            owner: config.owner.clone(),
            ..Self::new(config.connection.clone(), markers)
        }
    }

    /// Writes each marker in a transaction of its own, after the segment was sent somewhere else: at least once.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }

    async fn try_open(&mut self) -> Result<(), Unfit> {
        let session = Session::connect(&self.connection, self.limits, &self.application_name).await?;
        MARKERS.ensure(&session).await?;
        self.session = Some(session);
        Ok(())
    }

    /// Returns the connection, a new one if it was lost.
    async fn session(&mut self) -> Result<&mut Session, Failure> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            self.session = None;
            let connecting = Session::connect(&self.connection, self.limits, &self.application_name);
            return Ok(self.session.insert(connecting.await?));
        }
        match &mut self.session {
            Some(session) => Ok(session),
            None => Err(Failure::silence(Duration::ZERO)),
        }
    }

    /// Lets a connection go that was lost: the next call makes a new one.
    fn let_go_if_lost(&mut self, failure: &Failure) {
        if failure.class == ErrorClass::Reconnect {
            self.session = None;
        }
    }

    /// Makes an error that says what was tried.
    fn failed(&mut self, failure: Failure, doing: String) -> SinkError {
        self.let_go_if_lost(&failure);
        failure.during(doing)
    }

    async fn try_fence(&mut self, uid: &str, first: CheckpointId) -> Result<Option<String>, Failure> {
        let (job, owner) = (self.job.clone(), self.owner.clone());
        let ours = (first.attempt.cast_signed(), first.sequence.cast_signed());
        let session = self.session().await?;
        let (patience, client) = (session.patience, &session.client);
        let read = async || answered(patience, client.query_opt(sql::READ_FENCE, &[&job, &uid])).await;
        // Another subtask of this opening may be sending already; raising the fence again would wait for it.
        if let Some(row) = read().await?
            && (row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?) == ours
        {
            return Ok(None);
        }
        let parameters: [&(dyn ToSql + Sync); 5] = [&job, &uid, &ours.0, &ours.1, &owner];
        if answered(patience, client.execute(sql::RAISE_FENCE, &parameters)).await? > 0 {
            return Ok(None);
        }
        let Some(row) = read().await? else { return Ok(Some("nobody".to_owned())) };
        let (owner, since): (String, String) = (row.try_get(2)?, row.try_get(3)?);
        Ok(Some(format!("{owner} since {since}")))
    }

    async fn find(&mut self, marker: &Marker) -> Result<bool, Failure> {
        let row = self.markers.row(marker);
        let session = self.session().await?;
        let find = session.prepare(sql::FIND_MARKER).await?;
        let found = answered(session.patience, session.client.query_one(&find, &row.parameters())).await?;
        Ok(found.try_get(0)?)
    }

    async fn write_alone(&mut self, marker: &Marker) -> Result<(), SinkError> {
        let markers = self.markers.clone();
        let doing = || format!("writing the marker of segment {marker}");
        let session = self.session().await.map_err(|failure| failure.during(doing()))?;
        let patience = session.patience;
        let failed = |failure: Failure| failure.during(doing());
        let transaction = answered(patience, session.client.transaction()).await.map_err(failed)?;
        markers.write(&transaction, marker).await?;
        answered(patience, transaction.commit()).await.map_err(failed)
    }

    async fn remove(&mut self, markers: &[Marker]) -> Result<(), Failure> {
        let jobs: Vec<&str> = markers.iter().map(|marker| &*marker.job).collect();
        let uids: Vec<&str> = markers.iter().map(|marker| &*marker.uid).collect();
        let subtasks: Vec<i32> = markers.iter().map(|marker| marker.subtask.cast_signed()).collect();
        let checkpoints = || markers.iter().map(|marker| marker.checkpoint);
        let attempts: Vec<i64> = checkpoints().map(|id| id.attempt.cast_signed()).collect();
        let sequences: Vec<i64> = checkpoints().map(|id| id.sequence.cast_signed()).collect();
        let session = self.session().await?;
        let forget = session.prepare(sql::FORGET_MARKERS).await?;
        let parameters: [&(dyn ToSql + Sync); 5] = [&jobs, &uids, &subtasks, &attempts, &sequences];
        answered(session.patience, session.client.execute(&forget, &parameters)).await?;
        Ok(())
    }
}

impl CheckpointCommitter for PostgresCommitter {
    async fn open(&mut self, ctx: &SinkContext) -> Result<(), SinkError> {
        self.application_name = format!("{}/markers", application_name(ctx));
        self.job.clone_from(&ctx.job);
        let deadline = Instant::now() + self.open_timeout;
        let mut pauses = Pauses::new(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            match self.try_open().await {
                Ok(()) => return Ok(()),
                Err(Unfit::Wrong(error)) => return Err(error),
                Err(Unfit::Failed(failure)) if failure.class.is_retriable() && Instant::now() < deadline => {}
                Err(Unfit::Failed(failure)) => return Err(failure.during("opening the table of markers")),
            }
            pauses.next().await;
        }
    }

    async fn fence(&mut self, uid: &str, first: CheckpointId) -> Result<(), SinkError> {
        if self.job.is_empty() {
            return Err(fatal("the committer is not open"));
        }
        fail_point!("pgwal::fence::before");
        let deadline = Instant::now() + self.open_timeout;
        let mut pauses = Pauses::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            match self.try_fence(uid, first).await {
                Ok(None) => break,
                Ok(Some(owner)) => {
                    let job = &self.job;
                    let message = format!(
                        "sink {uid:?} of job {job:?} belongs to a later opening, of {owner}; if the job is to start anew with \
                             an empty store of checkpoints, remove its rows from levada.fences and levada.markers first"
                    );
                    return Err(SinkError::new(ErrorClass::Fenced, message));
                }
                // An earlier opening stands still in its transaction; the server ends that.
                Err(failure) if failure.class.is_retriable() && Instant::now() < deadline => {
                    self.let_go_if_lost(&failure);
                }
                Err(failure) => {
                    return Err(self.failed(failure, format!("raising the fence of sink {uid:?}")));
                }
            }
            pauses.next().await;
        }
        self.markers.set_first(first);
        fail_point!("pgwal::fence::after");
        Ok(())
    }

    async fn is_committed(&mut self, marker: &Marker) -> Result<bool, SinkError> {
        fail_point!("pgwal::is_committed");
        let found = self.find(marker).await;
        found.map_err(|failure| self.failed(failure, format!("looking for the marker of segment {marker}")))
    }

    async fn commit(&mut self, marker: &Marker) -> Result<(), SinkError> {
        let written = self.write_alone(marker).await;
        if written.as_ref().is_err_and(|error| error.class == ErrorClass::Reconnect) {
            self.session = None;
        }
        written
    }

    async fn forget(&mut self, markers: &[Marker]) -> Result<(), SinkError> {
        fail_point!("pgwal::forget");
        let removed = self.remove(markers).await;
        removed.map_err(|failure| self.failed(failure, format!("removing {} markers", markers.len())))
    }

    fn shares_transaction(&self) -> bool {
        !self.is_alone
    }
}

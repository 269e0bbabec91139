//! A connection in use: many calls share it, one behind the other.
//!
//! ```text
//!   call 7 ─┐            ┌─ queue: 5, 6, 7 ─┐
//!   call 6 ─┼─▶ send ───▶│   connection     │──▶ answers in this order: 5, 6, 7
//!   call 5 ─┘            └──────────────────┘
//!
//!   6 is given up ──▶ no new calls ──▶ 5 is answered ──▶ 6 is the oldest: cancelled on the server ──▶ 7 is answered
//!                                                          (should the cancel hit 7, it is sent again elsewhere)
//!   nothing is owed any more ──▶ the last handle is dropped ──▶ back in the pool, which asks it before it is used again
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use deadpool::managed::Object;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row};
use tracing::debug;

use crate::sink::backoff::pause;

use super::cancel::cancel;
use super::config::PostgresLookupConfig;
use super::connect::{Connection, Connector};
use super::key::Parameter;
use super::queue::Queue;
use super::stats::Counters;

pub(crate) type Answer = Result<Vec<Row>, tokio_postgres::Error>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// How long a connection that has answered counts as one that lives.
const FRESH: Duration = Duration::from_secs(10);

/// How long a call that was given up may take to be answered by itself, once it is the oldest.
const MOMENT: Duration = Duration::from_millis(50);

/// A query that may be sent more than once.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) is_many: bool,
    pub(crate) parameters: Arc<Vec<Parameter>>,
}

/// Rings when it is dropped.
#[derive(Debug)]
struct Bell(Arc<Notify>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// A connection that is taken out of the pool as long as anybody holds this.
pub(crate) struct Line {
    /// Goes back to the pool first; only then whoever waits for a connection is woken.
    object: Object<Connector>,
    bell: Bell,
    queue: Mutex<Queue>,
    opened: Instant,
    /// When the last call was sent.
    used: Mutex<Option<Instant>>,
    counters: Arc<Counters>,
    drain_timeout: Duration,
    /// Where a cancel goes.
    connect_to: Config,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Line {
    pub(crate) fn new(
        object: Object<Connector>,
        config: &PostgresLookupConfig,
        freed: &Arc<Notify>,
        counters: &Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self {
            object,
            bell: Bell(Arc::clone(freed)),
            queue: Mutex::default(),
            opened: Instant::now(),
            used: Mutex::default(),
            counters: Arc::clone(counters),
            drain_timeout: config.drain_timeout,
            connect_to: config.connection.clone(),
        })
    }

    fn connection(&self) -> &Connection {
        &self.object
    }

    // Nothing panics while it is held.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether it takes calls.
    pub(crate) fn is_usable(&self) -> bool {
        !self.connection().session.client.is_closed() && !self.queue().is_draining()
    }

    /// Returns how many answers it owes.
    pub(crate) fn load(&self) -> usize {
        self.queue().len()
    }

    /// Tells whether it was silent for so long that it is to be asked whether it lives. It was asked, or made, for its
    /// first call, however short the limit.
    pub(crate) fn is_silent(&self, limit: Duration) -> bool {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match used {
            Some(used) => used.elapsed() >= limit,
            None => self.opened.elapsed() >= limit.max(FRESH),
        }
    }

    /// Sends a query. It is in the queue in the order of sending: the driver sends with the first poll.
    pub(crate) fn send(self: &Arc<Self>, query: &Query, context: &mut Context<'_>) -> Option<Sent> {
        let (line, query) = (Arc::clone(self), query.clone());
        let mut answering: Answering = Box::pin(async move {
            let connection = line.connection();
            let statement = if query.is_many { &connection.many } else { &connection.one };
            let parameters: Vec<&(dyn ToSql + Sync)> =
                query.parameters.iter().map(|parameter| parameter as &(dyn ToSql + Sync)).collect();
            connection.session.client.query(statement, &parameters).await
        });
        let mut queue = self.queue();
        let number = queue.push()?;
        let early = match answering.as_mut().poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        };
        drop(queue);
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.counters.queries.fetch_add(1, Relaxed);
        Some(Sent { line: Arc::clone(self), number, answering, early })
    }

    fn answered(self: &Arc<Self>, number: u64) {
        let is_late = self.queue().answered(number);
        if is_late {
            self.counters.late.fetch_add(1, Relaxed);
        }
        self.bell.0.notify_one();
        if self.queue().owes_a_cancel() {
            // Its answer may be here already, its task only has not seen it.
            let line = Arc::clone(self);
            tokio::spawn(async move {
                pause(MOMENT).await;
                line.cancel_oldest();
            });
        }
    }

    /// Cancels what the server works on, if nobody waits for it.
    fn cancel_oldest(self: &Arc<Self>) {
        if !self.queue().take_cancel() {
            return;
        }
        self.counters.cancelled.fetch_add(1, Relaxed);
        // It holds the line: what the server has not heard yet must not hit a call of its next use.
        let line = Arc::clone(self);
        tokio::spawn(async move {
            let token = line.connection().session.client.cancel_token();
            match timeout(line.drain_timeout, cancel(&token, &line.connect_to)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    debug!(%error, "the cancel was not heard; the server ends the query by its own limit")
                }
                Err(_) => debug!("the cancel was not heard in time"),
            }
        });
    }

    /// Takes no new calls, and leaves those that it has.
    pub(crate) fn retire(&self) {
        self.queue().retire();
    }

    /// The pool makes another connection instead of it: the server does not know its statements any more.
    pub(crate) fn set_stale(&self) {
        self.connection().is_stale.store(true, Relaxed);
    }
}

/// A query that was sent and is not answered yet.
pub(crate) struct Sent {
    pub(crate) line: Arc<Line>,
    number: u64,
    answering: Answering,
    early: Option<Answer>,
}

impl Sent {
    /// Waits for the answer. When the future is dropped before, the next call goes on waiting.
    pub(crate) async fn answer(&mut self) -> Answer {
        let answer = match self.early.take() {
            Some(answer) => answer,
            None => self.answering.as_mut().await,
        };
        self.line.answered(self.number);
        answer
    }

    /// Stops waiting. The answer is dropped when it comes; if it does not come, the connection is closed.
    pub(crate) fn give_up(mut self) {
        let line = Arc::clone(&self.line);
        line.counters.given_up.fetch_add(1, Relaxed);
        line.queue().give_up(self.number);
        line.cancel_oldest();
        tokio::spawn(async move {
            if timeout(self.line.drain_timeout, self.answer()).await.is_err() {
                self.line.counters.closed.fetch_add(1, Relaxed);
                self.line.connection().session.close();
                self.line.answered(self.number);
            }
        });
    }
}

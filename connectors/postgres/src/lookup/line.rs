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
use tokio_postgres::{NoTls, Row};
use tracing::debug;

use super::connect::{Connection, Connector};
use super::key::Parameter;
use super::queue::Queue;
use super::stats::Counters;

pub(crate) type Answer = Result<Vec<Row>, tokio_postgres::Error>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

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
    /// When the last call was sent.
    used: Mutex<Instant>,
    counters: Arc<Counters>,
    drain_timeout: Duration,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Line {
    pub(crate) fn new(object: Object<Connector>, freed: &Arc<Notify>, counters: &Arc<Counters>) -> Arc<Self> {
        let drain_timeout =
            Object::pool(&object).map_or(Duration::ZERO, |pool| pool.manager().config.drain_timeout);
        Arc::new(Self {
            object,
            bell: Bell(Arc::clone(freed)),
            queue: Mutex::default(),
            used: Mutex::new(Instant::now()),
            counters: Arc::clone(counters),
            drain_timeout,
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

    /// Returns for how long no call was sent.
    pub(crate) fn idle(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
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
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.counters.queries.fetch_add(1, Relaxed);
        Some(Sent { line: Arc::clone(self), number, answering, early })
    }

    fn answered(self: &Arc<Self>, number: u64) {
        let is_late = self.queue().answered(number);
        if is_late {
            self.counters.late.fetch_add(1, Relaxed);
        }
        self.bell.0.notify_one();
        self.cancel_oldest();
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
            match timeout(line.drain_timeout, token.cancel_query(NoTls)).await {
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

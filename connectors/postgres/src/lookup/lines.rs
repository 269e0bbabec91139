//! The connections in use, and how a call finds room on one.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Pool, PoolError, TimeoutType, Timeouts};
use levada_core::ErrorClass;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::sink::backoff::Pauses;
use crate::sink::error::Failure;

use super::connect::{Connector, too_slow};
use super::error::LookupError;
use super::line::{Line, Query, Sent};
use super::stats::Counters;

/// All connections of a lookup.
#[derive(Debug)]
pub(crate) struct Lines {
    pool: Pool<Connector>,
    state: Mutex<State>,
    /// Rings when there is room, a connection more, or a reason why there is none.
    freed: Arc<Notify>,
    counters: Arc<Counters>,
    target: Arc<str>,
    most: usize,
    each: usize,
    idle_check: Duration,
}

#[derive(Debug, Default)]
struct State {
    open: Vec<Arc<Line>>,
    is_opening: bool,
    /// How many calls wait for room. Nobody connects again and again for none.
    waiting: usize,
    /// Why the last attempt to connect failed, until one succeeds.
    failure: Option<LookupError>,
    /// How many attempts have failed.
    failures: u64,
}

impl Lines {
    pub(crate) fn new(connector: Connector) -> Result<Arc<Self>, LookupError> {
        let (config, counters) = (connector.config.clone(), Arc::clone(&connector.counters));
        let target = Arc::clone(&connector.plan.target);
        let pool = Pool::builder(connector)
            .max_size(config.connections)
            .timeouts(Timeouts {
                wait: Some(config.wait_timeout),
                create: Some(config.create_timeout),
                recycle: Some(config.recycle_timeout),
            })
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| LookupError::Config(error.to_string()))?;
        Ok(Arc::new(Self {
            pool,
            state: Mutex::default(),
            freed: Arc::default(),
            counters,
            target,
            most: config.connections,
            each: config.calls_per_connection,
            idle_check: config.idle_check,
        }))
    }

    // Nothing panics while it is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a query on the connection with the fewest calls, as soon as there is room.
    ///
    /// # Errors
    /// There was none until `deadline`, and why.
    pub(crate) async fn send(
        self: &Arc<Self>,
        query: &Query,
        deadline: Instant,
    ) -> Result<Sent, LookupError> {
        if self.state().waiting == 0
            && let Some(sent) = self.sent_now(query).await
        {
            return Ok(sent);
        }
        let since = Instant::now();
        let deadline = deadline.min(since + self.pool.timeouts().wait.unwrap_or(Duration::MAX));
        // Whoever comes later waits behind, and does not take the room that this one is woken for.
        let mut waiting = Waiting::new(self);
        loop {
            let freed = self.freed.notified();
            let mut freed = std::pin::pin!(freed);
            // From here on no ring is missed.
            freed.as_mut().enable();
            if waiting.is_first_or_woken()
                && let Some(sent) = self.sent_now(query).await
            {
                return Ok(sent);
            }
            self.open_one();
            let is_over = timeout_at(deadline, freed).await.is_err();
            waiting.was_woken = true;
            if let Some(failure) = self.failure(is_over, waiting.failures) {
                return Err(failure);
            }
            if is_over {
                return Err(self.exhausted(since.elapsed()));
            }
        }
    }

    /// Sends if there is room.
    async fn sent_now(self: &Arc<Self>, query: &Query) -> Option<Sent> {
        poll_fn(|context| Poll::Ready(self.try_send(query, context))).await
    }

    fn try_send(self: &Arc<Self>, query: &Query, context: &mut Context<'_>) -> Option<Sent> {
        let (sent, unused) = {
            let mut state = self.state();
            let unused = self.take_unusable(&mut state);
            let best = state.open.iter().map(|line| (line.load(), line)).min_by_key(|(load, _)| *load);
            let best = best.filter(|(load, _)| *load < self.each);
            let has_company = best.as_ref().is_some_and(|(load, _)| *load > 0);
            // Under the lock, so that no two calls see the same room.
            let sent = best.and_then(|(_, line)| line.send(query, context));
            let wants_more = has_company && state.open.len() < self.most;
            (sent.map(|sent| (sent, wants_more)), unused)
        };
        drop(unused);
        let (sent, wants_more) = sent?;
        if wants_more {
            self.open_one();
        }
        Some(sent)
    }

    /// Takes out what is closed or takes no calls, and what was silent for so long that it is to be asked first.
    fn take_unusable(&self, state: &mut State) -> Vec<Arc<Line>> {
        let is_good =
            |line: &Arc<Line>| line.is_usable() && (line.load() > 0 || !line.is_silent(self.idle_check));
        state.open.extract_if(.., |line| !is_good(line)).collect()
    }

    /// Takes a connection out of use; it goes back to the pool when nothing is owed on it.
    pub(crate) fn retire(&self, line: &Arc<Line>) {
        line.retire();
        self.state().open.retain(|open| !Arc::ptr_eq(open, line));
    }

    /// Has one connection more, unless one is being made or there are enough.
    fn open_one(self: &Arc<Self>) {
        {
            let mut state = self.state();
            if state.is_opening || state.open.len() >= self.most {
                return;
            }
            state.is_opening = true;
        }
        let lines = Arc::clone(self);
        tokio::spawn(async move { lines.open().await });
    }

    async fn open(self: Arc<Self>) {
        let mut pauses = Pauses::new(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            let opened = self.pool.get().await;
            let failure = match opened {
                Ok(object) => {
                    let line = Line::new(object, &self.pool.manager().config, &self.freed, &self.counters);
                    let mut state = self.state();
                    state.open.push(line);
                    state.failure = None;
                    return self.end_opening(state);
                }
                Err(PoolError::Timeout(TimeoutType::Wait)) => return self.end_opening(self.state()),
                Err(error) => self.failure_of(error),
            };
            let is_final = !failure.class.is_retriable();
            self.note(failure);
            // Also where nobody waits: the next call must not try at once.
            pauses.next().await;
            let state = self.state();
            if is_final || state.waiting == 0 {
                return self.end_opening(state);
            }
        }
    }

    fn note(&self, failure: Failure) {
        let mut state = self.state();
        if state.failure.is_none() {
            warn!(error = %failure.cause, target = %self.target, "the lookup cannot connect");
        }
        state.failure = Some(LookupError::unreachable(&self.target, failure));
        state.failures += 1;
        drop(state);
        self.freed.notify_waiters();
    }

    fn end_opening(&self, mut state: MutexGuard<'_, State>) {
        state.is_opening = false;
        drop(state);
        self.freed.notify_waiters();
    }

    fn failure_of(&self, error: PoolError<Failure>) -> Failure {
        let timeouts = self.pool.timeouts();
        match error {
            PoolError::Backend(failure) => failure,
            PoolError::Timeout(TimeoutType::Create) => {
                too_slow("connecting", timeouts.create.unwrap_or_default())
            }
            PoolError::Timeout(_) => too_slow("asking a connection", timeouts.recycle.unwrap_or_default()),
            _ => Failure { class: ErrorClass::Fatal, ..too_slow("the pool is closed; it", Duration::ZERO) },
        }
    }

    /// Tells why there is no connection: at once if waiting does not help, else when the time is over. What attempts up to
    /// number `before` have met may be mended since.
    fn failure(&self, is_over: bool, before: u64) -> Option<LookupError> {
        let state = self.state();
        // As long as there is a connection, it is room that is missing.
        let failure = state.failure.as_ref().filter(|_| state.open.is_empty())?;
        let is_final = !failure.is_retriable() && state.failures > before;
        (is_over || is_final).then(|| failure.clone())
    }

    fn exhausted(&self, within: Duration) -> LookupError {
        let in_use = self.state().open.len();
        let draining = self.pool.status().size.saturating_sub(self.pool.status().available + in_use);
        LookupError::Exhausted {
            target: Arc::clone(&self.target),
            within,
            connections: self.most,
            each: self.each,
            draining,
        }
    }

    /// Returns how many connections there are, how many of them take calls, and how many are owed an answer.
    pub(crate) fn census(&self) -> Census {
        let state = self.state();
        let status = self.pool.status();
        Census {
            connections: status.size,
            in_use: state.open.len(),
            idle: status.available,
            unanswered: state.open.iter().map(|line| line.load()).sum(),
        }
    }
}

/// Where the connections of a lookup are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// All connections.
    pub connections: usize,
    /// Those that take calls.
    pub in_use: usize,
    /// Those that wait in the pool.
    pub idle: usize,
    /// Unanswered calls on the connections in use.
    pub unanswered: usize,
}

/// Counts a waiting call as long as it waits; then the next one looks for room: there may be some for it, too.
struct Waiting<'a> {
    lines: &'a Lines,
    is_first: bool,
    was_woken: bool,
    /// How many attempts to connect had failed before it came.
    failures: u64,
}

impl<'a> Waiting<'a> {
    fn new(lines: &'a Lines) -> Self {
        let mut state = lines.state();
        state.waiting += 1;
        Self { lines, is_first: state.waiting == 1, was_woken: false, failures: state.failures }
    }

    fn is_first_or_woken(&self) -> bool {
        self.is_first || self.was_woken
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.lines.state().waiting -= 1;
        self.lines.freed.notify_one();
    }
}

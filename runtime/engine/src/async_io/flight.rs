//! Calls in flight: the machine, the futures of its calls, and its one timer.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use levada_core::async_io::{CallId, Left, Operator, Outcome, Pending};
use tokio::time::{Instant, Sleep, sleep_until};

use super::callable::{Answers, Callable};
use super::status::CallReport;
use super::watched::{Watch, Watched};

/// A call whose answer is on its way.
struct Running<O> {
    id: CallId,
    answer: Abortable<Watched<O>>,
}

impl<O> Future for Running<O> {
    /// No answer of a call that was given up.
    type Output = (CallId, Option<Answers<O>>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id;
        self.answer.poll_unpin(context).map(|answer| (id, answer.ok()))
    }
}

/// The calls of one subtask in flight.
pub(crate) struct Flight<I, O, T, M> {
    pub(crate) operator: Operator<I, O, T, M>,
    function: Arc<dyn Callable<I, O>>,
    running: FuturesUnordered<Running<O>>,
    to_give_up: HashMap<CallId, AbortHandle>,
    begun: Instant,
    /// One timer for all that is due some time.
    alarm: Pin<Box<Sleep>>,
    watch: Arc<Watch>,
    report: Arc<CallReport>,
}

impl<I, O, T, M> Flight<I, O, T, M> {
    pub(crate) fn new(
        operator: Operator<I, O, T, M>,
        function: Arc<dyn Callable<I, O>>,
        watch: Arc<Watch>,
        report: Arc<CallReport>,
    ) -> Self {
        let begun = Instant::now();
        Self {
            operator,
            function,
            running: FuturesUnordered::new(),
            to_give_up: HashMap::new(),
            begun,
            alarm: Box::pin(sleep_until(begun)),
            watch,
            report,
        }
    }

    /// Returns the function: to open it.
    pub(crate) fn function(&self) -> Arc<dyn Callable<I, O>> {
        Arc::clone(&self.function)
    }

    /// Returns the time since the flight was begun.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Drops the calls that nobody waits for any more, and makes those that are due.
    pub(crate) fn call(&mut self) {
        for id in self.operator.take_given_up() {
            if let Some(call) = self.to_give_up.remove(&id) {
                call.abort();
            }
        }
        let now = self.now();
        while let Some(call) = self.operator.next_call(now) {
            let answering = self.watch.over(|| self.function.begin(call.inputs));
            let (handle, registration) = AbortHandle::new_pair();
            let watched = Watched::new(answering, Arc::clone(&self.watch));
            self.to_give_up.insert(call.id, handle);
            self.running.push(Running { id: call.id, answer: Abortable::new(watched, registration) });
        }
    }

    /// Waits for an answer, or for what is due, and takes it in. For ever, if there is neither. Cancel safe.
    pub(crate) async fn progress(&mut self) {
        let wake_at = self.operator.wake_at().map(|at| self.begun + at);
        if let Some(at) = wake_at.filter(|at| *at != self.alarm.deadline()) {
            self.alarm.as_mut().reset(at);
        }
        tokio::select! {
            // An answer that is there counts before a timeout that is due as well.
            biased;
            Some(answer) = self.running.next() => self.take_in(answer),
            () = self.alarm.as_mut(), if wake_at.is_some() => {}
            else => std::future::pending().await,
        }
        while let Some(Some(answer)) = self.running.next().now_or_never() {
            self.take_in(answer);
        }
        let now = self.now();
        self.operator.wake(now);
        self.call();
    }

    fn take_in(&mut self, (id, answers): (CallId, Option<Answers<O>>)) {
        self.to_give_up.remove(&id);
        if let Some(answers) = answers {
            let now = self.now();
            self.operator.answered(id, answers, now);
        }
    }

    /// Takes out the next element that may leave.
    pub(crate) fn pop(&mut self) -> Option<Left<Pending<I, T>, Outcome<O>, M>> {
        self.operator.pop()
    }

    /// Drops everything, calls included.
    pub(crate) fn clear(&mut self) {
        self.operator.clear();
        self.operator.take_given_up();
        self.to_give_up.clear();
        self.running.clear();
    }

    /// Notes for others how it stands; `waiting` inputs have no slot.
    pub(crate) fn publish(&self, waiting: usize) {
        let mut metrics = self.operator.metrics();
        metrics.waiting = waiting as u64;
        metrics.blocking = self.watch.blocking();
        self.report.publish(metrics, self.function.late_results());
    }
}

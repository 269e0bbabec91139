//! The async step of a job with checkpoints: what is built, and how its tasks are wired.

use std::sync::Arc;

use levada_core::async_io::{AsyncBatchFunction, AsyncFunction, AsyncSettings, Batching};
use levada_core::{Storable, StreamElement};
use tokio::sync::mpsc;

use super::call_task::{CallTask, Standing};
use super::flow::Flow;
use super::inlet::Inlet;
use super::launch::{Launch, Role};
use super::outlet::{CAPACITY, Outlet};
use super::segment::{Feeds, Inflow, Segment, Steps, Upstream};
use crate::async_io::{Calls, Many, One, Watch};

impl<I: Send + 'static, T: Storable + Send + Sync + 'static, L: 'static> Flow<I, T, L> {
    /// Adds a step that calls another system, with many calls in flight. One function serves all subtasks.
    ///
    /// Inputs that have not left are stored with each checkpoint, whether they were answered or not, and are called again after
    /// a restore, before all others: what a function does to the other system may happen twice. A stuck call holds up no
    /// checkpoint.
    ///
    /// Unless the settings name an order, it is that of the inputs; before sinks whose key is that of the record, only those of
    /// one key keep theirs. An unordered step before a sink that keeps the last record of a key is refused at the start.
    pub fn async_map<F>(
        self,
        uid: impl Into<String>,
        function: F,
        settings: AsyncSettings<T, F::Output>,
    ) -> Flow<F::Output, F::Output, L>
    where
        F: AsyncFunction<T>,
    {
        self.then_calls(Calls::of(uid.into(), Arc::new(One(function)), settings, None))
    }

    /// The same for a function that answers many inputs by one call.
    pub fn async_map_many<F>(
        self,
        uid: impl Into<String>,
        function: F,
        settings: AsyncSettings<T, F::Output>,
        batching: Batching,
    ) -> Flow<F::Output, F::Output, L>
    where
        F: AsyncBatchFunction<T>,
    {
        self.then_calls(Calls::of(uid.into(), Arc::new(Many(function)), settings, Some(batching)))
    }

    fn then_calls<O: Send + 'static>(mut self, calls: Calls<T, O>) -> Flow<O, O, L> {
        self.stages.push(calls.stage());
        self.rebuild(|segment| {
            let inflow = Box::new(FromCalls { upstream: Box::new(segment), calls: Arc::new(calls) });
            Segment { inflow, steps: Steps::none() }
        })
    }
}

struct FromCalls<A, O, L> {
    upstream: Box<dyn Upstream<A, L>>,
    calls: Arc<Calls<A, O>>,
}

impl<A, O, L> Inflow<O, L> for FromCalls<A, O, L>
where
    A: Storable + Send + Sync + 'static,
    O: Send + 'static,
{
    fn open(&self, launch: &mut Launch<'_>, line: L) -> Feeds<O> {
        let (senders, receivers): (Vec<mpsc::Sender<StreamElement<A>>>, Vec<_>) =
            (0..launch.parallelism).map(|_| mpsc::channel(CAPACITY)).unzip();
        self.upstream.spawn(launch, line, senders.into_iter().map(Outlet::Forward).collect());
        let head = |receiver| {
            let (inlet, calls) = (Inlet::new(vec![receiver]), Arc::clone(&self.calls));
            Box::new(CallFeed { inlet, calls }) as Box<dyn CallHead<O>>
        };
        Feeds::Calls(receivers.into_iter().map(head).collect())
    }
}

/// An async step of one subtask that is to be spawned.
pub(super) trait CallHead<O> {
    fn spawn(self: Box<Self>, launch: &mut Launch<'_>, subtask: u32, outlet: Outlet<O>);
}

struct CallFeed<A, O> {
    inlet: Inlet<A>,
    calls: Arc<Calls<A, O>>,
}

impl<A, O> CallHead<O> for CallFeed<A, O>
where
    A: Storable + Send + Sync + 'static,
    O: Send + 'static,
{
    fn spawn(self: Box<Self>, launch: &mut Launch<'_>, subtask: u32, outlet: Outlet<O>) {
        let uid = &self.calls.uid;
        let watch = Watch::new(uid.clone(), Arc::clone(launch.clock));
        let report = launch.calls.begin(uid, subtask, self.calls.function.late_results());
        let order = launch.order_of(uid);
        let Some(intake) = self.calls.intake(order, watch, report) else { return };
        let (participant, commands) = launch.enlist(uid, subtask, Role::Calls);
        let (turn, holding) = launch.restoring.turn_of(uid);
        let backlog = launch.backlogs.of_step(subtask, launch.has_exchange);
        let task = CallTask {
            turn,
            holding,
            backlog,
            restored: launch.state_of(&participant),
            participant,
            intake,
            inlet: self.inlet,
            commands,
            events: launch.events.clone(),
            cancel: launch.cancel.clone(),
            standing: Standing::default(),
        };
        launch.tasks.spawn(subtask, task.run(outlet));
    }
}

//! Where a line ends: a sink of one of the templates, driven by its driver.

use std::sync::Arc;

use levada_core::template::{CheckpointCommitter, IdempotentSink, TwoPhaseCommitSink, WriteAheadSink};
use levada_core::{Storable, WriteOrder};
use tokio::sync::mpsc;

use super::flow::Flow;
use super::gather::{Writers, gathering};
use super::inlet::Inlet;
use super::launch::{Launch, Role};
use super::line::{Ending, Line};
use super::outlet::{CAPACITY, Outlet};
use super::pieces::PieceHome;
use super::segment::{Feeds, Segment, Steps, spawn_tasks};
use super::sink_part::{Shared, SinkPart};
use super::sink_task::SinkTask;
use super::two_phase_part::TwoPhasePart;
use super::write_ahead_part::WriteAheadPart;
use crate::driver::{IdempotentDriver, Retry, SinkDriver, TwoPhaseDriver, TwoPhaseOptions, WriteAheadDriver};
use crate::map::{Chain, Identity};
use crate::plan::{Stage, StageKind};

impl<I: Send + 'static, T: Send + 'static, L: Line> Flow<I, T, L> {
    /// Ends the line with a sink that may write the same again.
    pub fn idempotent_sink<K, F>(self, uid: impl Into<String>, make: F) -> L::Ended
    where
        K: IdempotentSink<T> + 'static,
        F: Fn(u32) -> K + Send + 'static,
    {
        let make = Shared::new(make);
        let asked = make.clone();
        let writes = move || IdempotentSink::<T>::write_order(&asked.make(0));
        self.sink(uid, true, writes, move |subtask| IdempotentDriver::new(make.make(subtask)))
    }

    /// Ends the line with a sink whose records wait in the checkpoints until these are complete; those of a long interval are
    /// written to the checkpoint store while it grows ([`CheckpointedJob::piece_bytes`](super::CheckpointedJob::piece_bytes)).
    pub fn write_ahead_sink<K, C, F>(self, uid: impl Into<String>, retry: Retry, make: F) -> L::Ended
    where
        T: Storable + Sync,
        K: WriteAheadSink<T> + 'static,
        C: CheckpointCommitter + 'static,
        F: Fn(u32) -> (K, C) + Send + 'static,
    {
        let (uid, make, pieces) = (uid.into(), Shared::new(make), PieceHome::default());
        let part = WriteAheadPart::new(uid.clone(), make.clone(), pieces.clone());
        let asked = make.clone();
        let writes = move || {
            let (sink, _): (K, C) = asked.make(0);
            WriteAheadSink::<T>::write_order(&sink)
        };
        self.resolving(part).sink(uid, false, writes, move |subtask| {
            let (sink, committer) = make.make(subtask);
            WriteAheadDriver::with_pieces(sink, committer, retry, pieces.clone())
        })
    }

    /// Ends the line with a sink that commits in two phases, around the checkpoints. At each start one more is made and
    /// opened, before those of the subtasks: it is asked what became of everything that waits, and fences earlier attempts.
    pub fn two_phase_sink<K, F>(self, uid: impl Into<String>, options: TwoPhaseOptions, make: F) -> L::Ended
    where
        K: TwoPhaseCommitSink<T> + 'static,
        F: Fn(u32) -> K + Send + 'static,
    {
        let (uid, make, writers) = (uid.into(), Shared::new(make), Writers::default());
        let part = TwoPhasePart::new(uid.clone(), options, make.clone(), writers.clone());
        let asked = make.clone();
        let writes = move || TwoPhaseCommitSink::<T>::write_order(&asked.make(0));
        let driver = move |subtask| TwoPhaseDriver::new(make.make(subtask), options);
        self.resolving(part).sink_with(writers, uid, false, writes, driver)
    }

    /// Adds what the sink has to do once a start.
    fn resolving(mut self, part: impl SinkPart + 'static) -> Self {
        self.sinks.push(Box::new(part));
        self
    }

    pub(super) fn sink<D, F>(
        self,
        uid: impl Into<String>,
        is_idempotent: bool,
        writes: impl Fn() -> WriteOrder + Send + 'static,
        make_driver: F,
    ) -> L::Ended
    where
        D: SinkDriver<T> + 'static,
        F: Fn(u32) -> D + Send + 'static,
    {
        self.sink_with(Writers::default(), uid, is_idempotent, writes, make_driver)
    }

    fn sink_with<D, F>(
        mut self,
        writers: Writers,
        uid: impl Into<String>,
        is_idempotent: bool,
        writes: impl Fn() -> WriteOrder + Send + 'static,
        make_driver: F,
    ) -> L::Ended
    where
        D: SinkDriver<T> + 'static,
        F: Fn(u32) -> D + Send + 'static,
    {
        let uid = uid.into();
        self.stages.push(Stage::new(uid.clone(), StageKind::CheckpointedSink));
        self.writes.push((uid.clone(), Box::new(writes)));
        let Flow { job, stages, sinks_idempotent, sinks, writes, segment } = self;
        let spawn = move |launch: &mut Launch<'_>, line| {
            let writers = writers.fewer_than(launch.parallelism);
            let sink = Sink { uid: &uid, writers, make_driver: &make_driver };
            sink.spawn_behind(launch, line, &segment);
        };
        let sinks_idempotent = sinks_idempotent && is_idempotent;
        L::ended(Ending { job, stages, sinks_idempotent, sinks, writes, spawn: Box::new(spawn) })
    }
}

/// Wires one task to one.
fn straight<T>() -> (Outlet<T>, Inlet<T>) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    (Outlet::Forward(sender), Inlet::new(vec![receiver]))
}

/// A sink whose tasks are spawned.
struct Sink<'a, D> {
    uid: &'a str,
    /// How many subtasks write, if not all.
    writers: Option<u32>,
    make_driver: &'a dyn Fn(u32) -> D,
}

impl<D> Sink<'_, D> {
    /// Spawns the sink's tasks, and everything in front of them.
    fn spawn_behind<I, T, L>(&self, launch: &mut Launch<'_>, line: L, segment: &Segment<I, T, L>)
    where
        I: Send + 'static,
        T: Send + 'static,
        D: SinkDriver<T> + 'static,
    {
        match (segment.inflow.open(launch, line), &segment.steps) {
            (Feeds::Inlets(inlets), Steps::Chain(make)) if self.writers.is_none() => {
                for (subtask, inlet) in (0..).zip(inlets) {
                    self.spawn_task(launch, subtask, inlet, make(subtask));
                }
            }
            // Steps run with a source, so that they overlap the writing; and where lines part, nobody of them waits for a
            // snapshot of another's sink.
            (feeds, steps) => {
                let (outlets, inlets) = match self.writers {
                    Some(writers) => gathering(launch.parallelism, writers),
                    None => (0..launch.parallelism).map(|_| straight()).unzip(),
                };
                let outlets = steps.wire(launch, outlets);
                spawn_tasks(launch, feeds, outlets);
                for (subtask, inlet) in (0..).zip(inlets) {
                    self.spawn_task(launch, subtask, inlet, Box::new(Identity));
                }
            }
        }
    }

    fn spawn_task<I, T>(
        &self,
        launch: &mut Launch<'_>,
        subtask: u32,
        inlet: Inlet<I>,
        chain: Box<dyn Chain<I, T>>,
    ) where
        I: Send + 'static,
        T: Send + 'static,
        D: SinkDriver<T> + 'static,
    {
        let (participant, commands) = launch.enlist(self.uid, subtask, Role::Sink);
        let ctx = launch.driver_context(&participant);
        let restored = launch.restored_of(&participant);
        let task = SinkTask {
            participant,
            inlet,
            chain,
            driver: (self.make_driver)(subtask),
            clock: Arc::clone(launch.clock),
            report: launch.time.stage(self.uid, subtask),
            commands,
            events: launch.events.clone(),
            cancel: launch.cancel.clone(),
        };
        launch.tasks.spawn(subtask, task.run(ctx, restored));
    }
}

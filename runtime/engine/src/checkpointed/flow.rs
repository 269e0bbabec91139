//! The builder of checkpointed jobs: a source, steps, exchanges by key, and a sink.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use levada_core::template::{
    CheckpointCommitter, IdempotentSink, SourceFunction, TwoPhaseCommitSink, WriteAheadSink,
};
use levada_core::{BoxError, Source, Storable, StreamElement};
use tokio::sync::mpsc;

use super::inlet::Inlet;
use super::input::{Function, Input as SourceInput, Splits};
use super::launch::Launch;
use super::middle_task::MiddleTask;
use super::outlet::{CAPACITY, KeyHash, Outlet, hash_of};
use super::pieces::PieceHome;
use super::run::CheckpointedJob;
use super::sink_part::{Shared, TwoPhasePart, WriteAheadPart};
use super::sink_task::SinkTask;
use super::source_task::SourceTask;
use crate::driver::{IdempotentDriver, Retry, SinkDriver, TwoPhaseDriver, TwoPhaseOptions, WriteAheadDriver};
use crate::job::{Job, Make, Pipeline};
use crate::map::{Chain, FlatMap, Identity, Input, Then, keeping, one_to_one};
use crate::plan::{Stage, StageKind};

/// Where a segment of a flow has its elements from.
enum Inflow<I> {
    /// A source in the same task.
    Source { uid: String, make: Make<Box<dyn SourceInput<I>>> },
    /// All subtasks of the segment before, by key.
    Exchange { upstream: Box<dyn Upstream<I>>, key: KeyHash<I> },
}

/// The tasks in front of a segment.
trait Upstream<T>: Send {
    /// Spawns them; subtask `n` sends into outlet `n`.
    fn spawn(&self, launch: &mut Launch<'_>, outlets: Vec<Outlet<T>>);
}

/// A part of a flow that runs in one task per subtask.
struct Segment<I, T> {
    inflow: Inflow<I>,
    make_chain: Make<Box<dyn Chain<I, T>>>,
}

impl<I: Send + 'static, T: Send + 'static> Upstream<T> for Segment<I, T> {
    fn spawn(&self, launch: &mut Launch<'_>, outlets: Vec<Outlet<T>>) {
        match &self.inflow {
            Inflow::Source { uid, make } => {
                for (subtask, outlet) in (0..).zip(outlets) {
                    let (participant, commands) = launch.enlist(uid, subtask, true);
                    let restored = launch.state_of(&participant);
                    let ctx = launch.source_context(subtask);
                    let task = SourceTask {
                        participant,
                        input: make(subtask),
                        chain: (self.make_chain)(subtask),
                        outlet,
                        commands,
                        events: launch.events.clone(),
                        cancel: launch.cancel.clone(),
                    };
                    launch.tasks.spawn(task.run(ctx, restored));
                }
            }
            Inflow::Exchange { upstream, key } => {
                let inlets = exchange(launch, upstream.as_ref(), key);
                for ((subtask, inlet), outlet) in (0..).zip(inlets).zip(outlets) {
                    let chain = (self.make_chain)(subtask);
                    let task = MiddleTask { inlet, chain, outlet, cancel: launch.cancel.clone() };
                    launch.tasks.spawn(task.run());
                }
            }
        }
    }
}

/// Connects every subtask of `upstream` with every subtask behind it.
fn exchange<I: Send + 'static>(
    launch: &mut Launch<'_>,
    upstream: &dyn Upstream<I>,
    key: &KeyHash<I>,
) -> Vec<Inlet<I>> {
    let parallelism = launch.parallelism;
    let mut senders: Vec<Vec<mpsc::Sender<StreamElement<I>>>> =
        (0..parallelism).map(|_| Vec::new()).collect();
    let mut inlets = Vec::new();
    for _ in 0..parallelism {
        let mut receivers = Vec::new();
        for from in &mut senders {
            let (sender, receiver) = mpsc::channel(CAPACITY);
            from.push(sender);
            receivers.push(receiver);
        }
        inlets.push(Inlet::new(receivers));
    }
    let outlets = senders.into_iter().map(|to| Outlet::Exchange { to, key: Arc::clone(key) }).collect();
    upstream.spawn(launch, outlets);
    inlets
}

/// A source with steps and exchanges behind it, in a job with checkpoints.
///
/// `I` is what the last task reads, `T` what its steps have made of it.
pub struct Flow<I, T> {
    job: Job,
    stages: Vec<Stage>,
    segment: Segment<I, T>,
}

impl<I, T> fmt::Debug for Flow<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("job", &self.job).field("stages", &self.stages).finish_non_exhaustive()
    }
}

impl Job {
    /// Adds a source that is written as a function; `make` is called once a subtask, and again after each restart.
    pub fn source_function<F, M>(self, uid: impl Into<String>, make: M) -> Flow<F::Item, F::Item>
    where
        F: SourceFunction + 'static,
        M: Fn(u32) -> F + Send + 'static,
    {
        let uid = uid.into();
        let stages = vec![Stage::new(uid.clone(), StageKind::Source)];
        let name = uid.clone();
        let make: Make<Box<dyn SourceInput<F::Item>>> =
            Box::new(move |subtask| Box::new(Function::new(&name, subtask, make(subtask))));
        let segment =
            Segment { inflow: Inflow::Source { uid, make }, make_chain: Box::new(|_| Box::new(Identity)) };
        Flow { job: self, stages, segment }
    }
}

impl<S: Source + 'static, T: Send + 'static> Pipeline<S, T> {
    /// Goes on with checkpoints: for sinks whose exactness rests on them, and for exchanges by key. The positions of the
    /// source are in the checkpoints then.
    pub fn checkpointed(self) -> Flow<(), T> {
        let Pipeline { job, stages, make_source, make_chain } = self;
        let uid = stages.first().map(|stage| stage.uid.clone()).unwrap_or_default();
        let make: Make<Box<dyn SourceInput<()>>> =
            Box::new(move |subtask| Box::new(Splits::new(make_source(subtask))));
        Flow { job, stages, segment: Segment { inflow: Inflow::Source { uid, make }, make_chain } }
    }
}

impl<I: Send + 'static, T: Send + 'static> Flow<I, T> {
    /// Adds a step that makes 0..n records of one, or refuses it. `make` is called once a subtask.
    pub fn flat_map<O, M, F>(mut self, uid: impl Into<String>, make: F) -> Flow<I, O>
    where
        O: Send + 'static,
        M: FlatMap<T, O> + 'static,
        F: Fn(u32) -> M + Send + 'static,
    {
        self.stages.push(Stage::new(uid, StageKind::Map));
        let make_before = self.segment.make_chain;
        let make_chain: Make<Box<dyn Chain<I, O>>> =
            Box::new(move |subtask| Box::new(Then { before: make_before(subtask), step: make(subtask) }));
        Flow {
            job: self.job,
            stages: self.stages,
            segment: Segment { inflow: self.segment.inflow, make_chain },
        }
    }

    /// Adds a step that makes one record of one, or refuses it.
    pub fn map<O, F>(self, uid: impl Into<String>, step: F) -> Flow<I, O>
    where
        O: Send + 'static,
        F: Fn(Input<'_, T>) -> Result<O, BoxError> + Clone + Send + 'static,
    {
        self.flat_map(uid, move |_| one_to_one(step.clone()))
    }

    /// Adds a step that keeps the records for which `keep` says so.
    pub fn filter<F>(self, uid: impl Into<String>, keep: F) -> Flow<I, T>
    where
        T: Clone,
        F: Fn(&Input<'_, T>) -> bool + Clone + Send + 'static,
    {
        self.flat_map(uid, move |_| keeping(keep.clone()))
    }

    /// Sends each record to the subtask of its key: those of one key stay in order and together.
    pub fn key_by<K, F>(mut self, uid: impl Into<String>, key: F) -> Flow<T, T>
    where
        K: Hash,
        F: Fn(&T) -> K + Send + Sync + 'static,
    {
        self.stages.push(Stage::new(uid, StageKind::Exchange));
        let key: KeyHash<T> = Arc::new(move |item| hash_of(&key(item)));
        let inflow = Inflow::Exchange { upstream: Box::new(self.segment), key };
        let make_chain: Make<Box<dyn Chain<T, T>>> = Box::new(|_| Box::new(Identity));
        Flow { job: self.job, stages: self.stages, segment: Segment { inflow, make_chain } }
    }

    /// Ends the flow with a sink that may write the same again.
    pub fn idempotent_sink<K, F>(self, uid: impl Into<String>, make: F) -> CheckpointedJob
    where
        K: IdempotentSink<T> + 'static,
        F: Fn(u32) -> K + Send + 'static,
    {
        let mut job = self.sink(uid, move |subtask| IdempotentDriver::new(make(subtask)));
        job.every_sink_idempotent = true;
        job
    }

    /// Ends the flow with a sink whose records wait in the checkpoints until these are complete; those of a long interval are
    /// written to the checkpoint store while it grows ([`CheckpointedJob::piece_bytes`]).
    pub fn write_ahead_sink<K, C, F>(self, uid: impl Into<String>, retry: Retry, make: F) -> CheckpointedJob
    where
        T: Storable + Sync,
        K: WriteAheadSink<T> + 'static,
        C: CheckpointCommitter + 'static,
        F: Fn(u32) -> (K, C) + Send + 'static,
    {
        let (uid, make, pieces) = (uid.into(), Shared::new(make), PieceHome::default());
        let part = WriteAheadPart::new(uid.clone(), make.clone(), pieces.clone());
        let job = self.sink(uid, move |subtask| {
            let (sink, committer) = make.make(subtask);
            WriteAheadDriver::with_pieces(sink, committer, retry, pieces.clone())
        });
        job.resolving(part)
    }

    /// Ends the flow with a sink that commits in two phases, around the checkpoints. At each start one more is made and
    /// opened, before those of the subtasks: it is asked what became of everything that waits, and fences earlier attempts.
    pub fn two_phase_sink<K, F>(
        self,
        uid: impl Into<String>,
        options: TwoPhaseOptions,
        make: F,
    ) -> CheckpointedJob
    where
        K: TwoPhaseCommitSink<T> + 'static,
        F: Fn(u32) -> K + Send + 'static,
    {
        let (uid, make) = (uid.into(), Shared::new(make));
        let part = TwoPhasePart::new(uid.clone(), options, make.clone());
        self.sink(uid, move |subtask| TwoPhaseDriver::new(make.make(subtask), options)).resolving(part)
    }

    fn sink<D, F>(mut self, uid: impl Into<String>, make_driver: F) -> CheckpointedJob
    where
        D: SinkDriver<T> + 'static,
        F: Fn(u32) -> D + Send + 'static,
    {
        let uid = uid.into();
        self.stages.push(Stage::new(uid.clone(), StageKind::CheckpointedSink));
        let segment = self.segment;
        let spawn = move |launch: &mut Launch<'_>| spawn_sinks(launch, &uid, &segment, &make_driver);
        CheckpointedJob::new(self.job, self.stages, Box::new(spawn))
    }
}

/// Spawns the sink's tasks, and everything in front of them.
fn spawn_sinks<I, T, D>(
    launch: &mut Launch<'_>,
    uid: &str,
    segment: &Segment<I, T>,
    make_driver: &dyn Fn(u32) -> D,
) where
    I: Send + 'static,
    T: Send + 'static,
    D: SinkDriver<T> + 'static,
{
    match &segment.inflow {
        // The steps run with the source, so that they overlap the writing.
        Inflow::Source { .. } => {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..launch.parallelism).map(|_| mpsc::channel(CAPACITY)).unzip();
            segment.spawn(launch, senders.into_iter().map(Outlet::Forward).collect());
            for (subtask, receiver) in (0..).zip(receivers) {
                let inlet = Inlet::new(vec![receiver]);
                spawn_sink(launch, uid, subtask, inlet, Box::new(Identity), make_driver(subtask));
            }
        }
        Inflow::Exchange { upstream, key } => {
            for (subtask, inlet) in (0..).zip(exchange(launch, upstream.as_ref(), key)) {
                let chain = (segment.make_chain)(subtask);
                spawn_sink(launch, uid, subtask, inlet, chain, make_driver(subtask));
            }
        }
    }
}

fn spawn_sink<I, T, D>(
    launch: &mut Launch<'_>,
    uid: &str,
    subtask: u32,
    inlet: Inlet<I>,
    chain: Box<dyn Chain<I, T>>,
    driver: D,
) where
    I: Send + 'static,
    T: Send + 'static,
    D: SinkDriver<T> + 'static,
{
    let (participant, commands) = launch.enlist(uid, subtask, false);
    let ctx = launch.driver_context(&participant);
    let restored = launch.restored_of(&participant);
    let task = SinkTask {
        participant,
        inlet,
        chain,
        driver,
        clock: Arc::clone(launch.clock),
        commands,
        events: launch.events.clone(),
        cancel: launch.cancel.clone(),
    };
    launch.tasks.spawn(task.run(ctx, restored));
}

//! The lines of a job: one from its source, and one from each side output; what each begins and ends with.

use std::fmt;

use super::inlet::Inlet;
use super::launch::Launch;
use super::run::CheckpointedJob;
use super::segment::{Feeds, Inflow};
use super::side_output::Branch;
use super::sink_part::{SinkPart, Writes};
use crate::job::Job;
use crate::plan::Stage;

/// The line that begins with the job's source. Its sink makes the job whole.
#[derive(Debug)]
#[non_exhaustive]
pub struct MainLine;

/// A line that begins with records of the type `S` of another one. Its sink ends the branch.
pub struct SideLine<S> {
    /// From each subtask of the line before.
    pub(super) inlets: Vec<Inlet<S>>,
}

impl<S> fmt::Debug for SideLine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideLine").field("subtasks", &self.inlets.len()).finish()
    }
}

/// What a line becomes when a sink ends it. Implemented by [`MainLine`] and [`SideLine`].
pub trait Line: Sized + 'static {
    /// The whole job, or a branch of it.
    type Ended;

    /// Ends the line.
    #[doc(hidden)]
    fn ended(ending: Ending<Self>) -> Self::Ended;
}

/// A line up to its sink.
#[doc(hidden)]
pub struct Ending<L> {
    pub(super) job: Job,
    pub(super) stages: Vec<Stage>,
    pub(super) sinks_idempotent: bool,
    pub(super) sinks: Vec<Box<dyn SinkPart>>,
    pub(super) writes: Writes,
    pub(super) spawn: SpawnLine<L>,
}

/// Spawns the tasks of a line and of its branches.
pub(super) type SpawnLine<L> = Box<dyn Fn(&mut Launch<'_>, L) + Send>;

impl<L> fmt::Debug for Ending<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("stages", &self.stages).finish_non_exhaustive()
    }
}

impl Line for MainLine {
    type Ended = CheckpointedJob;

    fn ended(ending: Ending<Self>) -> CheckpointedJob {
        let Ending { job, stages, sinks_idempotent, sinks, writes, spawn } = ending;
        let mut job = CheckpointedJob::new(job, stages, Box::new(move |launch| spawn(launch, MainLine)));
        job.every_sink_idempotent = sinks_idempotent;
        job.sinks = sinks;
        job.writes = writes;
        job
    }
}

impl<S: 'static> Line for SideLine<S> {
    type Ended = Branch<S>;

    fn ended(ending: Ending<Self>) -> Branch<S> {
        let Ending { stages, sinks_idempotent, sinks, writes, spawn, .. } = ending;
        Branch { stages, sinks_idempotent, sinks, writes, spawn }
    }
}

/// The beginning of a side line.
pub(super) struct FromBranch;

impl<S> Inflow<S, SideLine<S>> for FromBranch {
    fn open(&self, _: &mut Launch<'_>, line: SideLine<S>) -> Feeds<S> {
        Feeds::Inlets(line.inlets)
    }
}

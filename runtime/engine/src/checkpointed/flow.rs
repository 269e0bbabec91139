//! The builder of jobs with checkpoints: a source, steps, exchanges by key, side outputs, and sinks.

use std::fmt;

use levada_core::BoxError;
use levada_core::time::WatermarkStrategy;

use super::line::MainLine;
use super::segment::Segment;
use super::sink_part::{SinkPart, Writes};
use crate::job::Job;
use crate::map::{FlatMap, Input, keeping, one_to_one};
use crate::plan::{Stage, StageKind};

/// A source, or a side output, with steps and exchanges behind it, in a job with checkpoints.
///
/// `I` is what the last task reads, `T` what its steps have made of it. `L` is the line it stands in: the
/// [main line](MainLine) from a source, or a [side line](super::SideLine).
///
/// A line ends with one sink; more sinks stand in side lines: [`Flow::side_output`] parts the records, [`Flow::tee`]
/// copies them. There is no atomic sink here: it would restart from positions of its own, not from the job's checkpoints.
///
/// ```compile_fail
/// # use levada_core::BoxAtomicSink;
/// # fn add<I: Send + 'static, T: Clone + Send + Sync + 'static>(flow: levada_engine::Flow<I, T>, sink: fn() -> BoxAtomicSink<T>) {
/// flow.tee("copy", |copy| copy.atomic_sink("table", move |_| sink()));
/// # }
/// ```
pub struct Flow<I, T, L = MainLine> {
    pub(super) job: Job,
    /// In the order of the chain; those of a branch stand where it leaves its line.
    pub(super) stages: Vec<Stage>,
    /// Whether all sinks that branches have brought are idempotent.
    pub(super) sinks_idempotent: bool,
    /// What the sinks that branches have brought have to do once a start.
    pub(super) sinks: Vec<Box<dyn SinkPart>>,
    /// What order means to the sinks.
    pub(super) writes: Writes,
    pub(super) segment: Segment<I, T, L>,
}

impl<I, T, L> fmt::Debug for Flow<I, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("job", &self.job).field("stages", &self.stages).finish_non_exhaustive()
    }
}

impl<I: Send + 'static, T: Send + 'static, L: 'static> Flow<I, T, L> {
    /// Adds a step that makes 0..n records of one, or refuses it. `make` is called once a subtask.
    pub fn flat_map<O, M, F>(mut self, uid: impl Into<String>, make: F) -> Flow<I, O, L>
    where
        O: Send + 'static,
        M: FlatMap<T, O> + 'static,
        F: Fn(u32) -> M + Send + 'static,
    {
        self.stages.push(Stage::new(uid, StageKind::Map));
        self.rebuild(|segment| Segment { inflow: segment.inflow, steps: segment.steps.then(make) })
    }

    /// Adds a step that makes one record of one, or refuses it.
    pub fn map<O, F>(self, uid: impl Into<String>, step: F) -> Flow<I, O, L>
    where
        O: Send + 'static,
        F: Fn(Input<'_, T>) -> Result<O, BoxError> + Clone + Send + 'static,
    {
        self.flat_map(uid, move |_| one_to_one(step.clone()))
    }

    /// Adds a step that keeps the records for which `keep` says so.
    pub fn filter<F>(self, uid: impl Into<String>, keep: F) -> Flow<I, T, L>
    where
        T: Clone,
        F: Fn(&Input<'_, T>) -> bool + Clone + Send + 'static,
    {
        self.flat_map(uid, move |_| keeping(keep.clone()))
    }

    /// Goes on with another segment.
    pub(super) fn rebuild<J, O>(
        self,
        rebuilt: impl FnOnce(Segment<I, T, L>) -> Segment<J, O, L>,
    ) -> Flow<J, O, L> {
        Flow {
            job: self.job,
            stages: self.stages,
            sinks_idempotent: self.sinks_idempotent,
            sinks: self.sinks,
            writes: self.writes,
            segment: rebuilt(self.segment),
        }
    }
}

impl<I: Send + 'static, T: Send + 'static> Flow<I, T, MainLine> {
    /// Gives records their time by what the steps so far have made of them, and says when no more of a time will come, for
    /// each split by itself. What a strategy is, [`WatermarkStrategy`] tells.
    ///
    /// Stands in front of every exchange, once; behind one a job is refused at its start. A source that emits watermarks of
    /// its own needs none; what it says of its splits counts beside what the strategy makes of their records.
    pub fn watermarks(mut self, uid: impl Into<String>, strategy: WatermarkStrategy<T>) -> Self {
        self.stages.push(Stage::new(uid, StageKind::Watermarks));
        self.rebuild(|Segment { inflow, steps }| Segment { inflow, steps: steps.timed(strategy) })
    }
}

//! Where a job with checkpoints begins: a source with splits, or one that is written as a function.

use levada_core::Source;
use levada_core::template::SourceFunction;

use super::flow::Flow;
use super::function_input::Function;
use super::input::{Input as SourceInput, Splits};
use super::launch::{Launch, Role};
use super::line::MainLine;
use super::segment::{Feeds, Inflow, Segment, Steps};
use super::source_task::SourceFeed;
use crate::job::{Job, Make, Pipeline};
use crate::plan::{Stage, StageKind};

struct FromSource<I> {
    uid: String,
    make: Make<Box<dyn SourceInput<I>>>,
}

impl<I> Inflow<I, MainLine> for FromSource<I> {
    fn open(&self, launch: &mut Launch<'_>, _: MainLine) -> Feeds<I> {
        let parallelism = launch.parallelism;
        let feed = |subtask| {
            let (participant, commands) = launch.enlist(&self.uid, subtask, Role::Source);
            let restored = launch.state_of(&participant);
            let (ctx, time) = (launch.source_context(subtask), launch.time_context(&participant));
            let (turn, ahead) = (launch.restoring.turn_of_source(), launch.backlogs.ahead_of(subtask));
            SourceFeed {
                participant,
                input: (self.make)(subtask),
                ctx,
                restored,
                commands,
                time,
                turn,
                ahead,
            }
        };
        Feeds::Sources((0..parallelism).map(feed).collect())
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
        let segment = Segment { inflow: Box::new(FromSource { uid, make }), steps: Steps::none() };
        Flow { job: self, stages, sinks_idempotent: true, sinks: Vec::new(), writes: Vec::new(), segment }
    }
}

impl<S: Source + 'static, T: Send + 'static> Pipeline<S, T> {
    /// Goes on with checkpoints: for sinks whose exactness rests on them, for exchanges by key, and for side outputs. The
    /// positions of the source are in the checkpoints then.
    pub fn checkpointed(self) -> Flow<(), T> {
        let Pipeline { job, stages, make_source, make_chain } = self;
        let uid = stages.first().map(|stage| stage.uid.clone()).unwrap_or_default();
        let make: Make<Box<dyn SourceInput<()>>> =
            Box::new(move |subtask| Box::new(Splits::new(make_source(subtask))));
        let segment = Segment { inflow: Box::new(FromSource { uid, make }), steps: Steps::Chain(make_chain) };
        Flow { job, stages, sinks_idempotent: true, sinks: Vec::new(), writes: Vec::new(), segment }
    }
}

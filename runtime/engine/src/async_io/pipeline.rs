//! An async step in a job with an atomic sink: what is built, and how its tasks are wired.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use levada_core::async_io::{AsyncBatchFunction, AsyncFunction, AsyncSettings, Batching, Operator};
use levada_core::{AtomicSink, BoxError, Source, StreamElement, Tally};
use tokio::sync::mpsc;

use super::atomic_task::CallTask;
use super::callable::{Callable, Many, One};
use super::flight::Flight;
use super::intake::Intake;
use super::watched::Watch;
use crate::job::{CHANNEL_CAPACITY, Front, Job, Make, Pipeline, RunnableJob, SubtaskLaunch};
use crate::map::{Chain, FlatMap, Identity, Input, Then, keeping, one_to_one};
use crate::message::{Body, Message, Stopped};
use crate::plan::{AskedOrder, Stage, StageKind};

/// A source with an async step, and the steps behind it.
///
/// `S` is the source, `I` what the last async step makes, `T` what the steps behind have made of it. For a job with checkpoints
/// call [`Pipeline::checkpointed`] first.
pub struct Enriched<S, T, I> {
    job: Job,
    stages: Vec<Stage>,
    head: Box<dyn CallHead<I>>,
    make_chain: Make<Box<dyn Chain<I, T>>>,
    source: PhantomData<fn() -> S>,
}

impl<S, T, I> fmt::Debug for Enriched<S, T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enriched")
            .field("job", &self.job)
            .field("stages", &self.stages)
            .finish_non_exhaustive()
    }
}

impl<S: Source + 'static, T: Send + Sync + 'static> Pipeline<S, T> {
    /// Adds a step that calls another system, with many calls in flight. One function serves all subtasks.
    ///
    /// Commit points wait in line, so a job with an atomic sink needs a timeout: a stuck call holds up commits until then.
    /// Unless the settings name an order, it is that of the inputs; before a sink whose key is that of the record, only those of
    /// one key keep theirs.
    pub fn async_map<F>(
        self,
        uid: impl Into<String>,
        function: F,
        settings: AsyncSettings<T, F::Output>,
    ) -> Enriched<S, F::Output, F::Output>
    where
        F: AsyncFunction<T>,
    {
        let Pipeline { job, mut stages, make_source, make_chain } = self;
        let before = Pipeline { job: job.clone(), stages: stages.clone(), make_source, make_chain };
        let calls = Calls::of(uid.into(), Arc::new(One(function)), settings, None);
        stages.push(calls.stage());
        Enriched::behind(job, stages, FromCalls { before: Box::new(before), calls })
    }

    /// The same for a function that answers many inputs by one call.
    pub fn async_map_many<F>(
        self,
        uid: impl Into<String>,
        function: F,
        settings: AsyncSettings<T, F::Output>,
        batching: Batching,
    ) -> Enriched<S, F::Output, F::Output>
    where
        F: AsyncBatchFunction<T>,
    {
        let Pipeline { job, mut stages, make_source, make_chain } = self;
        let before = Pipeline { job: job.clone(), stages: stages.clone(), make_source, make_chain };
        let calls = Calls::of(uid.into(), Arc::new(Many(function)), settings, Some(batching));
        stages.push(calls.stage());
        Enriched::behind(job, stages, FromCalls { before: Box::new(before), calls })
    }
}

impl<S: Source + 'static, O: Send + 'static> Enriched<S, O, O> {
    fn behind(job: Job, stages: Vec<Stage>, head: impl CallHead<O> + 'static) -> Self {
        let make_chain: Make<Box<dyn Chain<O, O>>> = Box::new(|_| Box::new(Identity));
        Self { job, stages, head: Box::new(head), make_chain, source: PhantomData }
    }
}

impl<S: Source + 'static, T: Send + 'static, I: Send + 'static> Enriched<S, T, I> {
    /// Adds a step that makes 0..n records of one, or refuses it. `make` is called once a subtask.
    pub fn flat_map<O, M, F>(mut self, uid: impl Into<String>, make: F) -> Enriched<S, O, I>
    where
        O: Send + 'static,
        M: FlatMap<T, O> + 'static,
        F: Fn(u32) -> M + Send + 'static,
    {
        self.stages.push(Stage::new(uid, StageKind::Map));
        let Enriched { job, stages, head, make_chain: make_before, source } = self;
        let make_chain: Make<Box<dyn Chain<I, O>>> =
            Box::new(move |subtask| Box::new(Then::new(make_before(subtask), make(subtask))));
        Enriched { job, stages, head, make_chain, source }
    }

    /// Adds a step that makes one record of one, or refuses it.
    pub fn map<O, F>(self, uid: impl Into<String>, step: F) -> Enriched<S, O, I>
    where
        O: Send + 'static,
        F: Fn(Input<'_, T>) -> Result<O, BoxError> + Clone + Send + 'static,
    {
        self.flat_map(uid, move |_| one_to_one(step.clone()))
    }

    /// Adds a step that keeps the records for which `keep` says so; the others are counted as filtered.
    pub fn filter<F>(self, uid: impl Into<String>, keep: F) -> Enriched<S, T, I>
    where
        T: Clone,
        F: Fn(&Input<'_, T>) -> bool + Clone + Send + 'static,
    {
        self.flat_map(uid, move |_| keeping(keep.clone()))
    }

    /// Adds another async step.
    pub fn async_map<F>(
        self,
        uid: impl Into<String>,
        function: F,
        settings: AsyncSettings<T, F::Output>,
    ) -> Enriched<S, F::Output, F::Output>
    where
        T: Sync,
        F: AsyncFunction<T>,
    {
        self.then_calls(Calls::of(uid.into(), Arc::new(One(function)), settings, None))
    }

    /// Adds another async step that answers many inputs by one call.
    pub fn async_map_many<F>(
        self,
        uid: impl Into<String>,
        function: F,
        settings: AsyncSettings<T, F::Output>,
        batching: Batching,
    ) -> Enriched<S, F::Output, F::Output>
    where
        T: Sync,
        F: AsyncBatchFunction<T>,
    {
        self.then_calls(Calls::of(uid.into(), Arc::new(Many(function)), settings, Some(batching)))
    }

    fn then_calls<O: Send + 'static>(mut self, calls: Calls<T, O>) -> Enriched<S, O, O>
    where
        T: Sync,
    {
        self.stages.push(calls.stage());
        let (job, stages) = (self.job.clone(), self.stages.clone());
        Enriched::behind(job, stages, FromCalls { before: Box::new(self), calls })
    }

    /// Ends the chain with an atomic sink; `make` is called once a subtask, and once more to ask what order means to it.
    pub fn atomic_sink<K, F>(mut self, uid: impl Into<String>, make: F) -> RunnableJob<S, K, T>
    where
        K: AtomicSink<T> + 'static,
        F: Fn(u32) -> K + Send + 'static,
    {
        self.stages.push(Stage::new(uid, StageKind::AtomicSink));
        let (job, stages) = (self.job.clone(), self.stages.clone());
        RunnableJob::new(job, stages, Box::new(self), Box::new(make))
    }
}

impl<S: Source + 'static, T: Send + 'static, I: Send + 'static> Front<T> for Enriched<S, T, I> {
    fn spawn(&self, launch: &mut SubtaskLaunch<'_>, to: mpsc::Sender<Message<T>>) {
        let chain = (self.make_chain)(launch.subtask);
        self.head.spawn(launch, Box::new(Behind { chain, to }));
    }
}

/// An async step with everything in front of it.
trait CallHead<O>: Send {
    fn spawn(&self, launch: &mut SubtaskLaunch<'_>, to: Box<dyn Outflow<O>>);
}

/// A function, and how it is called.
pub(crate) struct Calls<A, O> {
    pub(crate) uid: String,
    pub(crate) function: Arc<dyn Callable<A, O>>,
    settings: AsyncSettings<A, O>,
    batching: Option<Batching>,
}

impl<A, O> Calls<A, O> {
    pub(crate) fn of(
        uid: String,
        function: Arc<dyn Callable<A, O>>,
        settings: AsyncSettings<A, O>,
        batching: Option<Batching>,
    ) -> Self {
        Self { uid, function, settings, batching }
    }

    pub(crate) fn stage(&self) -> Stage {
        let of_batching =
            self.batching.map_or(Ok(()), |batching| batching.check_within(self.settings.timeout_after()));
        Stage::asking(
            self.uid.clone(),
            AskedOrder {
                order: self.settings.order(),
                has_timeout: self.settings.timeout_after().is_some(),
                settings: self.settings.check().and(of_batching),
            },
        )
    }

    /// Makes the intake of a subtask. The settings were looked at when the job was started.
    pub(crate) fn intake<M: super::InLine>(
        &self,
        order: levada_core::async_io::Order,
        watch: Arc<Watch>,
        report: super::status::CallReport,
    ) -> Option<Intake<A, O, M>> {
        let settings = self.settings.clone();
        let operator = match self.batching {
            None => Operator::single(settings, order),
            Some(batching) => Operator::batched(settings, batching, order),
        };
        let flight = Flight::new(operator.ok()?, Arc::clone(&self.function), watch, Arc::new(report));
        Some(Intake::new(flight, order))
    }
}

struct FromCalls<A, O> {
    before: Box<dyn Front<A>>,
    calls: Calls<A, O>,
}

impl<A: Send + Sync + 'static, O: Send + 'static> CallHead<O> for FromCalls<A, O> {
    fn spawn(&self, launch: &mut SubtaskLaunch<'_>, to: Box<dyn Outflow<O>>) {
        let (to_calls, from) = mpsc::channel(CHANNEL_CAPACITY);
        self.before.spawn(launch, to_calls);
        let uid = self.calls.uid.clone();
        let watch = Watch::new(uid.clone(), Arc::clone(launch.clock));
        let report = launch.calls.begin(&uid, launch.subtask, self.calls.function.late_results());
        let order = launch.order_of(&uid);
        let Some(intake) = self.calls.intake(order, watch, report) else { return };
        let task = CallTask {
            uid,
            subtask: launch.subtask,
            function: Arc::clone(&self.calls.function),
            intake,
            from,
            to,
            generation: launch.generation.clone(),
            stop: launch.stop.clone(),
            cancel: launch.cancel.clone(),
        };
        launch.spawn(task.run());
    }
}

pub(crate) type Sending<'a> = Pin<Box<dyn Future<Output = Result<Tally, Stopped>> + Send + 'a>>;

/// Where the outputs of an async step go on: through steps, and into a channel. Tells what was counted on the way.
pub(crate) trait Outflow<O>: Send {
    fn send(&mut self, message: Message<O>) -> Sending<'_>;
}

struct Behind<I, T> {
    chain: Box<dyn Chain<I, T>>,
    to: mpsc::Sender<Message<T>>,
}

impl<I: Send + 'static, T: Send + 'static> Outflow<I> for Behind<I, T> {
    fn send(&mut self, Message { generation, body }: Message<I>) -> Sending<'_> {
        Box::pin(async move {
            let body = match body {
                Body::Element(StreamElement::Batch(batch)) => {
                    let produced = self.chain.process(batch);
                    for element in produced.elements {
                        self.hand_on(generation, Body::Element(element)).await?;
                    }
                    return produced
                        .failure
                        .map_or(Ok(produced.tally), |failure| Err(Stopped::Error(failure)));
                }
                Body::Element(StreamElement::Watermark(watermark)) => {
                    Body::Element(StreamElement::Watermark(watermark))
                }
                Body::Element(StreamElement::Status(status)) => Body::Element(StreamElement::Status(status)),
                Body::Element(StreamElement::Refused(refused)) => {
                    Body::Element(StreamElement::Refused(refused))
                }
                Body::Element(StreamElement::CommitPoint(point)) => {
                    Body::Element(StreamElement::CommitPoint(point))
                }
                Body::Element(StreamElement::End) => Body::Element(StreamElement::End),
                // An atomic job has no other.
                Body::Element(_) => return Ok(Tally::default()),
                Body::Claim { release, assignment, reply } => Body::Claim { release, assignment, reply },
                Body::Settle { release, reply } => Body::Settle { release, reply },
            };
            self.hand_on(generation, body).await?;
            Ok(Tally::default())
        })
    }
}

impl<I, T> Behind<I, T> {
    async fn hand_on(&mut self, generation: u64, body: Body<T>) -> Result<(), Stopped> {
        self.to.send(Message { generation, body }).await.map_err(|_| Stopped::PeerGone)
    }
}

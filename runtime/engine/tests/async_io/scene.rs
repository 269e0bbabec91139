//! A source that counts as far as it may, calls that a test answers, and a sink that notes what it gets.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::async_io::{AsyncFunction, AsyncSettings, CallError, Called};
use levada_core::template::{Emit, IdempotentSink, Next, SourceFunction, WriteContext};
use levada_core::{
    Batch, CheckpointId, ListState, SinkContext, SinkError, SourceContext, SourceError, Spread, State,
    Timestamp, WriteOrder,
};
use levada_engine::store::Store;
use levada_engine::{CheckpointedHandle, CheckpointedJob, Job};
use tokio::sync::{oneshot, watch};

use crate::scripted::promptly;

/// Emits numbers below a bound that the test raises, one a poll: subtask `n` of `p` those with the remainder `n`. Ends at `end`.
#[derive(Debug)]
pub(crate) struct Count {
    next: Vec<u64>,
    ways: u64,
    end: u64,
    up_to: watch::Receiver<u64>,
    with_time: bool,
}

impl SourceFunction for Count {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        self.next = match restored.get("next") {
            Some(list) => list.values()?,
            None => (0..self.ways)
                .filter(|way| way % u64::from(ctx.parallelism) == u64::from(ctx.subtask))
                .collect(),
        };
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        let Some(next) = self.next.iter_mut().filter(|next| **next < self.end).min() else {
            return Ok(Next::End);
        };
        // The sender is there as long as the test.
        self.up_to.wait_for(|up_to| *next < *up_to).await.ok();
        match self.with_time {
            true => {
                out.record_at(*next, Timestamp(*next as i64));
                out.watermark(Timestamp(*next as i64));
            }
            false => out.record(*next),
        }
        *next += self.ways;
        Ok(Next::More)
    }

    fn snapshot(&mut self, _: CheckpointId) -> State {
        State::new().with("next", ListState::of(Spread::Split, self.next.iter().copied()))
    }
}

type Open = BTreeMap<u64, Vec<oneshot::Sender<Called<u64>>>>;

/// Answers calls as the test says.
#[derive(Debug, Clone)]
pub(crate) struct Oracle {
    open: Arc<Mutex<Open>>,
    /// Every input that was called, in order.
    called: Arc<watch::Sender<Vec<u64>>>,
    /// Inputs that are answered by themselves.
    answers_from: Arc<Mutex<Option<u64>>>,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let called = Arc::new(watch::Sender::new(Vec::new()));
        Self { open: Arc::default(), called, answers_from: Arc::default() }
    }

    /// Answers inputs from this one on by themselves.
    pub(crate) fn answers_from(&self, first: u64) {
        *self.answers_from.lock().unwrap() = Some(first);
    }

    pub(crate) fn called(&self) -> Vec<u64> {
        self.called.borrow().clone()
    }

    pub(crate) async fn until(&self, is_so: impl FnMut(&Vec<u64>) -> bool) {
        let mut called = self.called.subscribe();
        promptly(called.wait_for(is_so)).await.unwrap();
    }

    /// Waits until these, and no others, were called, in this order.
    pub(crate) async fn until_called(&self, inputs: &[u64]) {
        let until = async {
            let mut called = self.called.subscribe();
            called.wait_for(|called| called.len() >= inputs.len()).await.unwrap();
        };
        promptly(until).await;
        assert_eq!(self.called(), inputs);
    }

    /// Answers the calls of an input that are open; a call that was dropped takes no answer.
    pub(crate) fn answer(&self, input: u64, answer: Called<u64>) {
        let calls = self.open.lock().unwrap().remove(&input).expect("an open call");
        for call in calls {
            call.send(answer.clone()).ok();
        }
    }

    /// Answers an input with ten times itself.
    pub(crate) fn answer_well(&self, input: u64) {
        self.answer(input, Ok(vec![input * 10]));
    }

    /// Forgets what was called so far.
    pub(crate) fn forget(&self) {
        self.open.lock().unwrap().clear();
        self.called.send_replace(Vec::new());
    }
}

impl AsyncFunction<u64> for Oracle {
    type Output = u64;

    fn call(&self, input: Arc<u64>) -> impl Future<Output = Called<u64>> + Send + 'static {
        let (answer, answered) = oneshot::channel();
        let answers_itself = self.answers_from.lock().unwrap().is_some_and(|first| *input >= first);
        match answers_itself {
            true => {
                answer.send(Ok(vec![*input * 10])).ok();
            }
            false => self.open.lock().unwrap().entry(*input).or_default().push(answer),
        }
        self.called.send_modify(|called| called.push(*input));
        async move { answered.await.unwrap_or_else(|_| Err(CallError::bad_record("the test forgot the call"))) }
    }
}

/// What came to a sink: outputs, and the watermark each of them saw.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    pub(crate) seen: Arc<watch::Sender<Vec<(u64, Timestamp)>>>,
    order: WriteOrder,
    /// Whether the sink is busy until told otherwise.
    is_busy: Arc<watch::Sender<bool>>,
}

impl Recorder {
    pub(crate) fn new(order: WriteOrder) -> Self {
        Self { seen: Arc::default(), order, is_busy: Arc::default() }
    }

    /// Makes the sink take nothing until it is told that it is no longer busy.
    pub(crate) fn keep_busy(&self, is_busy: bool) {
        self.is_busy.send_replace(is_busy);
    }

    pub(crate) fn outputs(&self) -> Vec<u64> {
        self.seen.borrow().iter().map(|(output, _)| *output).collect()
    }

    pub(crate) async fn until(&self, outputs: &[u64]) {
        let mut seen = self.seen.subscribe();
        promptly(seen.wait_for(|seen| seen.len() >= outputs.len())).await.unwrap();
        assert_eq!(self.outputs(), outputs);
    }

    pub(crate) fn forget(&self) {
        self.seen.send_replace(Vec::new());
    }
}

impl IdempotentSink<u64> for Recorder {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<u64>, ctx: &WriteContext) -> Result<(), SinkError> {
        self.is_busy.subscribe().wait_for(|is_busy| !is_busy).await.ok();
        let outputs = batch.records().iter().map(|record| (record.item, ctx.watermark));
        self.seen.send_modify(|seen| seen.extend(outputs));
        Ok(())
    }

    fn write_order(&self) -> WriteOrder {
        self.order
    }
}

pub(crate) type Settings = AsyncSettings<u64, u64>;

/// What outlives the jobs of a test.
pub(crate) struct Scene {
    pub(crate) up_to: watch::Sender<u64>,
    pub(crate) oracle: Oracle,
    pub(crate) sink: Recorder,
    pub(crate) store: Store,
    pub(crate) end: u64,
    pub(crate) with_time: bool,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let (oracle, sink) = (Oracle::new(), Recorder::new(WriteOrder::Any));
        let store = Store::open("memory:").await.unwrap();
        Self { up_to: watch::Sender::new(0), oracle, sink, store, end: u64::MAX, with_time: false }
    }

    pub(crate) fn source(&self) -> impl Fn(u32) -> Count + Send + use<> {
        let (up_to, end, with_time) = (self.up_to.subscribe(), self.end, self.with_time);
        move |_| Count { next: Vec::new(), ways: 6, end, up_to: up_to.clone(), with_time }
    }

    /// Lets the source emit all numbers below this one.
    pub(crate) fn emit(&self, up_to: u64) {
        self.up_to.send_replace(up_to);
    }

    pub(crate) fn job(&self, parallelism: u32, settings: Settings) -> CheckpointedJob {
        let sink = self.sink.clone();
        Job::new("job")
            .parallelism(parallelism)
            .source_function("numbers", self.source())
            .async_map("tens", self.oracle.clone(), settings)
            .idempotent_sink("seen", move |_| sink.clone())
    }

    /// The same, and outputs are dealt out by a key behind the step.
    pub(crate) fn keyed_job(&self, parallelism: u32, settings: Settings) -> CheckpointedJob {
        let sink = self.sink.clone();
        Job::new("job")
            .parallelism(parallelism)
            .source_function("numbers", self.source())
            .async_map("tens", self.oracle.clone(), settings)
            .key_by("keys", |output| *output)
            .idempotent_sink("seen", move |_| sink.clone())
    }

    /// The same, and a copy of the outputs is dealt out by a key.
    pub(crate) fn copied_job(&self, parallelism: u32, settings: Settings) -> CheckpointedJob {
        let (sink, copy) = (self.sink.clone(), Recorder::new(self.sink.order));
        Job::new("job")
            .parallelism(parallelism)
            .source_function("numbers", self.source())
            .tee("copy", move |copied| {
                let copy = copy.clone();
                copied.key_by("keys", |number| *number).idempotent_sink("copies", move |_| copy.clone())
            })
            .async_map("tens", self.oracle.clone(), settings)
            .idempotent_sink("seen", move |_| sink.clone())
    }

    pub(crate) fn start(&self, settings: Settings) -> CheckpointedHandle {
        self.job(1, settings).start(self.store.clone()).unwrap()
    }

    /// Takes a checkpoint, and ends the job with whatever is in flight.
    pub(crate) async fn leave_off(&self, mut job: CheckpointedHandle) {
        promptly(job.trigger_checkpoint()).await.unwrap();
        job.cancel();
        promptly(job.wait()).await.unwrap_err();
        self.oracle.forget();
        self.sink.forget();
    }
}

/// Lets the tasks go on until none of them can: time that is paused passes only then.
pub(crate) async fn until_all_rest() {
    tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await.ok();
}

/// Prints an error with what is behind it.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    levada_core::ErrorChain(error).to_string()
}

pub(crate) fn sorted<V: Ord + Debug>(mut values: Vec<V>) -> Vec<V> {
    values.sort_unstable();
    values
}

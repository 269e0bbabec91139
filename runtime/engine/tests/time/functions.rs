//! Sources written as functions, which tell time themselves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::time::{SplitStatus, WatermarkStrategy};
use levada_core::{SourceContext, SourceError, State, StreamStatus, Timestamp};
use levada_engine::{Flow, Job};
use tokio::sync::Notify;

use crate::scene::{Look as _, Scene, pass, until};

/// What a sensor emits, by split.
#[derive(Debug, Clone, Copy)]
enum Said {
    At(u32, i64),
    Watermark(u32, i64),
    Idle(u32),
    Active(u32),
    EndOf(u32),
    End,
}

use Said::{Active, At, End, EndOf, Idle, Watermark};

#[derive(Debug, Default)]
struct Script {
    said: Mutex<VecDeque<Said>>,
    more: Notify,
}

impl Script {
    fn say(&self, said: impl IntoIterator<Item = Said>) {
        self.said.lock().unwrap().extend(said);
        self.more.notify_one();
    }
}

#[derive(Debug)]
struct Sensors {
    splits: Option<Vec<u32>>,
    script: Arc<Script>,
}

impl SourceFunction for Sensors {
    type Item = i64;

    async fn open(&mut self, _: SourceContext, _: &State) -> Result<(), SourceError> {
        Ok(())
    }

    fn splits(&self) -> Option<Vec<u32>> {
        self.splits.clone()
    }

    async fn next(&mut self, out: &mut Emit<'_, i64>) -> Result<Next, SourceError> {
        let said = loop {
            let more = self.script.more.notified();
            if let Some(said) = self.script.said.lock().unwrap().pop_front() {
                break said;
            }
            more.await;
        };
        match said {
            At(split, at) => out.split(split).record_at(at, Timestamp(at)),
            Watermark(split, at) => out.split(split).watermark(Timestamp(at)),
            Idle(split) => out.split(split).idle(),
            Active(split) => out.split(split).active(),
            EndOf(split) => out.split(split).end(),
            End => return Ok(Next::End),
        }
        Ok(Next::More)
    }
}

/// A flow of sensors, a subtask for each list of splits.
fn flow(splits: &[Option<Vec<u32>>]) -> (Vec<Arc<Script>>, Flow<i64, i64>) {
    let scripts: Vec<Arc<Script>> = splits.iter().map(|_| Arc::default()).collect();
    let (splits, of) = (splits.to_vec(), scripts.clone());
    let flow =
        Job::new("sensors").parallelism(splits.len() as u32).source_function("sensors", move |subtask| {
            let subtask = subtask as usize;
            Sensors { splits: splits[subtask].clone(), script: Arc::clone(&of[subtask]) }
        });
    (scripts, flow)
}

/// [TPL-03] [TIM-07] [TIM-09] [TIM-10] a source emits timestamps and watermarks of its own for each split, and says which are
/// idle, active, and at their ends.
#[tokio::test(start_paused = true)]
async fn function_tells_the_time_of_each_split() {
    let scene = Scene::default();
    let (scripts, flow) = flow(&[Some(vec![3, 4])]);
    let mut job = scene.start(flow.for_each("note", scene.note())).await;
    let says = |said| scripts[0].say(said);
    says(vec![At(3, 10), Watermark(3, 10)]);
    until(&job.time(), |time| time.split(3).watermark.0 == 10).await;
    assert_eq!(job.time().snapshot().at("note"), i64::MIN, "a split that has said nothing is waited for");
    says(vec![At(4, 7), Watermark(4, 7)]);
    until(&job.time(), |time| time.at("note") == 7).await;
    says(vec![Idle(4)]);
    until(&job.time(), |time| time.at("note") == 10).await;
    says(vec![Watermark(3, 20)]);
    until(&job.time(), |time| time.at("note") == 20).await;
    says(vec![Active(4), Watermark(3, 30)]);
    let time = until(&job.time(), |time| time.split(3).watermark.0 == 30).await;
    assert_eq!((time.split(4).status, time.at("note")), (SplitStatus::Active, 20));
    says(vec![EndOf(4)]);
    until(&job.time(), |time| time.at("note") == 30).await;
    says(vec![Idle(3)]);
    until(&job.time(), |time| time.source(0).status == StreamStatus::Idle).await;
    says(vec![At(3, 5), End]);
    job.wait().await.unwrap();
    assert_eq!(job.time().snapshot().at("note"), i64::MAX);
    let written = scene.written();
    assert_eq!(written, [(10, Some(10), i64::MIN), (7, Some(7), i64::MIN), (5, Some(5), 30)]);
    assert_eq!(job.time().snapshot().source(0).late, 1);
}

/// [TPL-03] a subtask is one split unless it says otherwise; one that says it has none holds nobody back.
#[tokio::test(start_paused = true)]
async fn function_without_splits_is_idle_and_one_that_tells_none_apart_is_one() {
    let scene = Scene::default();
    let (scripts, flow) = flow(&[None, Some(vec![])]);
    let job = scene.start(flow.key_by("by itself", |n| *n).for_each("note", scene.note())).await;
    let time = until(&job.time(), |time| time.source(1).status == StreamStatus::Idle).await;
    assert_eq!(time.source(0).status, StreamStatus::Active, "it has emitted nothing yet");
    scripts[0].say([Watermark(0, 10)]);
    until(&job.time(), |time| time.at("note") == 10).await;
    assert_eq!(job.time().snapshot().source(0).splits.len(), 1);
}

/// [TPL-03] [TIM-02] with a strategy, the source's own word counts beside what is made of the records.
#[tokio::test(start_paused = true)]
async fn strategy_and_the_source_itself_go_together() {
    let scene = Scene::default();
    let (scripts, flow) = flow(&[Some(vec![0, 1])]);
    let strategy = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(10));
    let job = scene.start(flow.watermarks("time", strategy).for_each("note", scene.note())).await;
    scripts[0].say([At(0, 100), At(1, 50)]);
    until(&job.time(), |time| time.at("note") == 39).await;
    scripts[0].say([Watermark(1, 60)]);
    until(&job.time(), |time| time.at("note") == 60).await;
    scripts[0].say([Idle(1)]);
    until(&job.time(), |time| time.at("note") == 89).await;
}

/// [TIM-17] a function is not asked while all that it has is ahead of its group.
#[tokio::test(start_paused = true)]
async fn function_that_is_ahead_is_not_asked() {
    let scene = Scene::default();
    let (scripts, flow) = flow(&[None, None]);
    let strategy = WatermarkStrategy::monotonic().within_drift("group", Duration::from_millis(100));
    let flow = flow.watermarks("time", strategy).key_by("by itself", |n| *n);
    let mut job = scene.start(flow.for_each("note", scene.note())).await;
    scripts[0].say([At(0, 10)]);
    scripts[1].say([At(1, 1_000)]);
    until(&job.time(), |time| time.split(1).status.is_blocked()).await;
    scripts[1].say([At(1, 1_001)]);
    pass(5).await;
    assert_eq!(scene.written().len(), 2, "it would have emitted one more");
    job.trigger_checkpoint().await.unwrap();
    scripts[0].say([At(0, 950)]);
    until(&job.time(), |_| scene.written().len() == 4).await;
    job.stop().await.unwrap();
    job.wait().await.unwrap();
}

//! Records that come too late, and where they go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::time::SplitEvent;
use levada_core::{Batch, SinkContext, SinkError};
use tokio::sync::watch;

use crate::scene::{Look as _, Scene, scripts, strategy, until};

/// Takes what comes, unless the test holds it.
#[derive(Debug)]
pub(crate) struct Slow(pub(crate) watch::Receiver<bool>);

impl IdempotentSink<i64> for Slow {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, _: Batch<i64>, _: &WriteContext) -> Result<(), SinkError> {
        // A test that has ended lets go.
        self.0.wait_for(|is_held| !is_held).await.ok();
        Ok(())
    }
}

/// [TIM-11] exactly the records whose timestamp the watermark has covered go into the side output, each once.
#[tokio::test(start_paused = true)]
async fn late_records_and_no_others_go_into_the_side_output() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let late: Arc<Mutex<Vec<i64>>> = Arc::default();
    let kept = Arc::clone(&late);
    let flow = Scene::flow(&scripts).watermarks("time", strategy()).late_side_output("late", |side| {
        side.for_each("keep", move |record, _| {
            kept.lock().unwrap().push(record.item);
            Ok(())
        })
    });
    let mut job = scene.start(flow.key_by("by itself", |n| *n).for_each("note", scene.note())).await;
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 100), (0, 20)]);
    until(&job.time(), |time| time.at("note") == 89).await;
    scripts[0].read(&[(0, 89), (0, 90), (0, 88), (0, 200), (0, 150)]);
    scripts[0].news(0, SplitEvent::MarkIdle);
    until(&job.time(), |time| time.at("note") == 189).await;
    scripts[0].read(&[(0, 189), (0, 190)]);
    scripts[0].read(&[(0, 1)]);
    scripts[0].end();
    job.wait().await.unwrap();
    assert_eq!(*late.lock().unwrap(), [89, 88, 189, 1]);
    let on_time: Vec<i64> = scene.written().into_iter().map(|(item, ..)| item).collect();
    assert_eq!(on_time, [100, 20, 90, 200, 150, 190]);
    let time = job.time().snapshot();
    assert_eq!((time.source(0).late, time.stage("late")[0].late, time.stage("note")[0].late), (4, 4, 0));
}

/// [TIM-11] [TIM-15] behind an exchange a record is late by what the others have said, though it was not where it was read.
#[tokio::test(start_paused = true)]
async fn record_may_be_late_only_behind_the_exchange() {
    let scene = Scene::default();
    let scripts = scripts(2);
    let late: Arc<Mutex<BTreeMap<i64, usize>>> = Arc::default();
    let kept = Arc::clone(&late);
    let flow = Scene::flow(&scripts).watermarks("time", strategy()).key_by("by itself", |n| *n);
    let flow = flow.late_side_output("late", |side| {
        side.for_each("keep", move |record, _| {
            *kept.lock().unwrap().entry(record.item).or_default() += 1;
            Ok(())
        })
    });
    let mut job = scene.start(flow.for_each("note", scene.note())).await;
    scripts[0].assign(&[0]);
    scripts[1].assign(&[1]);
    scripts[0].read(&[(0, 50)]);
    scripts[1].read(&[(1, 1_000)]);
    until(&job.time(), |time| time.at("late") == 39).await;
    scripts[0].news(0, SplitEvent::MarkIdle);
    until(&job.time(), |time| time.at("late") == 989).await;
    let old: Vec<(u32, i64)> = (0..30).map(|n| (0, 100 + n)).collect();
    scripts[0].read(&old);
    scripts[0].end();
    scripts[1].read(&[(1, 1_500)]);
    scripts[1].end();
    job.wait().await.unwrap();
    assert_eq!(*late.lock().unwrap(), old.iter().map(|(_, at)| (*at, 1)).collect());
    let time = job.time().snapshot();
    assert_eq!(time.stage("late").iter().map(|stage| stage.late).sum::<u64>(), 30);
    assert_eq!(time.source(0).late, 0, "not where it was read");
    assert_eq!(scene.written().len(), 3);
}

//! Which order stands before which sink. [ASY-16]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use levada_core::async_io::AsyncSettings;
use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, SinkContext, SinkError, WriteOrder};
use levada_engine::{Job, ShapeError};
use tokio::sync::watch;

use crate::scene::{Recorder, Scene, Settings};
use crate::scripted::{Script, numbered, once, promptly, text};
use crate::table::Table;

fn patient() -> Settings {
    AsyncSettings::new().no_timeout()
}

/// [ASY-16] refused by the builder, with the names of step and sink; a version guard, or a target that replaces nothing, lifts it.
#[tokio::test(start_paused = true)]
async fn unordered_step_before_an_upsert_is_refused() {
    let mut scene = Scene::new().await;
    for order in [WriteOrder::ByOwnKey, WriteOrder::ByRecordKey] {
        scene.sink = Recorder::new(order);
        let refused = scene.job(1, patient().unordered()).start(scene.store.clone()).unwrap_err();
        let expected = ShapeError::UnorderedBeforeKeyedSink { stage: "tens".into(), sink: "seen".into() };
        assert_eq!(refused, expected);
        scene.job(1, patient().key_ordered_by(|number| *number)).start(scene.store.clone()).unwrap();
    }
    scene.sink = Recorder::new(WriteOrder::Any);
    scene.job(1, patient().unordered()).start(scene.store.clone()).unwrap();
}

/// A table that keeps the last value of each key: ten numbers have one key.
#[derive(Debug, Clone)]
struct Keyed {
    rows: Arc<Mutex<BTreeMap<u64, u64>>>,
    written: Arc<watch::Sender<usize>>,
    order: WriteOrder,
}

impl IdempotentSink<u64> for Keyed {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<u64>, _: &WriteContext) -> Result<(), SinkError> {
        for record in batch.records() {
            self.rows.lock().unwrap().insert(record.item / 100, record.item);
            self.written.send_modify(|written| *written += 1);
        }
        Ok(())
    }

    fn write_order(&self) -> WriteOrder {
        self.order
    }
}

/// The final row of a key whose older record is answered last.
async fn final_row(settings: Settings, order: WriteOrder) -> u64 {
    let scene = Scene::new().await;
    let table = Keyed { rows: Arc::default(), written: Arc::new(watch::Sender::new(0)), order };
    let sink = table.clone();
    let job = Job::new("job")
        .source_function("numbers", scene.source())
        .async_map("tens", scene.oracle.clone(), settings)
        .idempotent_sink("table", move |_| sink.clone());
    let _job = job.start(scene.store.clone()).unwrap();
    scene.emit(2);
    scene.oracle.until_called(&[0, 1]).await;
    scene.oracle.answer_well(1);
    scene.oracle.until(|_| true).await;
    // Whatever can be written by now is.
    tokio::task::yield_now().await;
    scene.oracle.answer_well(0);
    let mut written = table.written.subscribe();
    promptly(written.wait_for(|written| *written == 2)).await.unwrap();
    let rows = table.rows.lock().unwrap();
    rows[&0]
}

/// [ASY-16] with the refusal out of the way (a sink that says that order means nothing to it, and is wrong) the older record is
/// written over the newer one; by default, and by key, the newer one stays.
#[tokio::test(start_paused = true)]
async fn unordered_step_before_an_upsert_would_leave_the_older_row() {
    assert_eq!(final_row(patient().unordered(), WriteOrder::Any).await, 0, "the wrong final row");
    assert_eq!(final_row(patient(), WriteOrder::ByOwnKey).await, 10);
    assert_eq!(final_row(patient(), WriteOrder::ByRecordKey).await, 10);
    assert_eq!(final_row(patient().key_ordered_by(|number| number / 10), WriteOrder::ByOwnKey).await, 10);
}

/// [ASY-09] an atomic job needs a timeout, and every job settings that can work.
#[tokio::test(start_paused = true)]
async fn step_without_a_timeout_before_an_atomic_sink_is_refused() {
    let start = |settings: AsyncSettings<String, String>| {
        let (_, source) = Script::of(&Arc::new(numbered(&[1])));
        let echo = |text: Arc<String>| async move { Ok(vec![(*text).clone()]) };
        let table = Table::new();
        Job::new("job")
            .source("log", once(vec![source]))
            .map("text", text)
            .async_map("echo", echo, settings)
            .atomic_sink("table", move |_| table.sink("us"))
            .start()
            .map(drop)
    };
    let (stage, sink) = ("echo".to_owned(), "table".to_owned());
    let refused = start(AsyncSettings::new().no_timeout());
    assert_eq!(refused, Err(ShapeError::AsyncWithoutTimeout { stage, sink }));
    let refused = start(AsyncSettings::new().capacity(0)).unwrap_err();
    assert!(matches!(refused, ShapeError::AsyncSettings { .. }), "{refused}");
    assert_eq!(start(AsyncSettings::new()), Ok(()));
}

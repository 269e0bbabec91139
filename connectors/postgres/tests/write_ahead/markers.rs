//! Markers for sinks of one's own.

use levada_core::batch::RawRecord;
use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink, WriteContext};
use levada_core::{Batch, BatchBuilder, ErrorClass, Record, SinkContext, SinkError, SplitId, Timestamp};
use levada_engine::driver::{Retry, SinkDriver, WriteAheadDriver};
use levada_postgres::{MarkerTable, PostgresCommitter};

use crate::driven::{LOG, MARKERS, ROWS, UID, context, id, restored};
use crate::scene::{JOB, Scene, connect};

/// A sink with SQL of its own.
#[derive(Debug)]
struct OwnSink {
    url: String,
    client: Option<tokio_postgres::Client>,
    markers: MarkerTable,
    writes_marker: bool,
}

impl WriteAheadSink<u64> for OwnSink {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        self.client = Some(connect(&self.url, "own").await);
        Ok(())
    }

    async fn send(&mut self, segment: &Segment<u64>) -> Result<bool, SinkError> {
        let failed =
            |error: tokio_postgres::Error| SinkError::new(ErrorClass::Retry, "own SQL").caused_by(error);
        let client = self.client.as_mut().expect("open");
        let transaction = client.transaction().await.map_err(failed)?;
        if self.writes_marker && !self.markers.write(&transaction, &segment.marker).await? {
            return Ok(true);
        }
        for number in &segment.records {
            let number = *number as i32;
            transaction.execute("insert into log values ($1)", &[&number]).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(true)
    }
}

type OwnDriver = WriteAheadDriver<u64, OwnSink, PostgresCommitter>;

fn own(scene: &Scene, writes_marker: bool) -> OwnDriver {
    let (url, markers) = (scene.database.url().to_owned(), MarkerTable::new());
    let committer = PostgresCommitter::new(url.parse().expect("a URL"), markers.clone());
    let committer = if writes_marker { committer } else { committer.alone() };
    WriteAheadDriver::new(OwnSink { url, client: None, markers, writes_marker }, committer, Retry::default())
}

fn numbers(of: impl IntoIterator<Item = u64>) -> Batch<u64> {
    let mut builder = BatchBuilder::new();
    let split = builder.split(&SplitId::new("n", 0));
    let items: Vec<u64> = of.into_iter().collect();
    for offset in 0..items.len() as u64 {
        builder.push(split, RawRecord { offset, ..RawRecord::default() });
    }
    let (parts, records) = builder.finish().0.into_parts();
    let records = records.into_iter().zip(items).map(|(record, item)| Record { origin: record.origin, item });
    parts.with_records(records.collect())
}

async fn with_segment(scene: &Scene, writes_marker: bool) -> (OwnDriver, levada_core::State) {
    let mut driver = own(scene, writes_marker);
    driver.open(context(0, 1, 1), None).await.expect("open");
    let ctx = WriteContext { processing_time: Timestamp(0), watermark: Timestamp(0) };
    driver.write(numbers([1, 2]), &ctx).await.expect("write");
    let state = driver.barrier(id(1, 1), Timestamp(0)).await.expect("barrier");
    (driver, state)
}

/// [TPL-07] a sink with its own SQL writes the marker in its transaction: exactly once, over a crash and a late twin.
#[tokio::test(flavor = "multi_thread")]
async fn own_sink_writes_the_marker_in_its_transaction() {
    let scene = Scene::new(LOG);
    let (mut driver, state) = with_segment(&scene, true).await;
    driver.complete(id(1, 1)).await.expect("complete");
    assert_eq!(driver.tally().published, 2);
    let mut next = own(&scene, true);
    next.open(context(0, 1, 2), restored(id(1, 1), &state)).await.expect("open");
    next.complete(id(1, 1)).await.expect("complete");
    assert_eq!((next.tally().known, scene.rows(ROWS)), (2, vec!["1".to_owned(), "2".to_owned()]));
}

/// [TPL-07] the marker and the fence hold inside a transaction of one's own, too.
#[tokio::test(flavor = "multi_thread")]
async fn own_transaction_is_told_of_an_earlier_marker_and_of_a_later_opening() {
    let scene = Scene::new(LOG);
    let markers = MarkerTable::new();
    let open = async |markers: &MarkerTable, attempt| {
        let url = scene.database.url().parse().expect("a URL");
        let mut committer = PostgresCommitter::new(url, markers.clone());
        committer.open(&context(0, 1, 1).sink).await.expect("open");
        committer.fence(UID, id(attempt, 0)).await.expect("fence");
        committer
    };
    let mut committer = open(&markers, 1).await;
    let marker = |sequence| Marker {
        job: JOB.to_owned(),
        uid: UID.to_owned(),
        subtask: 0,
        checkpoint: id(1, sequence),
    };
    let mut client = connect(scene.database.url(), "own").await;
    for is_first in [true, false] {
        let transaction = client.transaction().await.expect("begin");
        assert_eq!(markers.write(&transaction, &marker(1)).await.expect("written"), is_first);
        transaction.commit().await.expect("commit");
    }
    assert!(committer.is_committed(&marker(1)).await.expect("asked"));
    assert!(!committer.is_committed(&marker(2)).await.expect("asked"));
    open(&MarkerTable::new(), 2).await;
    let transaction = client.transaction().await.expect("begin");
    let error = markers.write(&transaction, &marker(2)).await.expect_err("taken over");
    assert!(error.is_fenced(), "{error}");
}

/// [TPL-07] a committer alone writes each marker by itself, after the send.
#[tokio::test(flavor = "multi_thread")]
async fn committer_alone_remembers_what_was_sent() {
    let scene = Scene::new(LOG);
    let (mut driver, state) = with_segment(&scene, false).await;
    driver.complete(id(1, 1)).await.expect("complete");
    assert_eq!(scene.rows(MARKERS), ["job|log|0|1-1"]);
    let mut next = own(&scene, false);
    next.open(context(0, 1, 2), restored(id(1, 1), &state)).await.expect("open");
    assert_eq!((next.tally().known, scene.rows(ROWS).len()), (2, 2));
}

/// [TPL-07] a sink that breaks its promise fails the task, as each repetition would double the records.
#[tokio::test(flavor = "multi_thread")]
async fn sink_that_omits_the_marker_fails_the_task() {
    let scene = Scene::new(LOG);
    let (mut driver, _) = with_segment(&scene, true).await;
    drop(driver);
    let (url, markers) = (scene.database.url().to_owned(), MarkerTable::new());
    let committer = PostgresCommitter::new(url.parse().expect("a URL"), markers.clone());
    let sink = OwnSink { url, client: None, markers, writes_marker: false };
    driver = WriteAheadDriver::new(sink, committer, Retry::default());
    driver.open(context(0, 1, 2), None).await.expect("open");
    let ctx = WriteContext { processing_time: Timestamp(0), watermark: Timestamp(0) };
    driver.write(numbers([1]), &ctx).await.expect("write");
    driver.barrier(id(2, 1), Timestamp(0)).await.expect("barrier");
    let error = driver.complete(id(2, 1)).await.expect_err("no marker");
    assert!(error.to_string().contains("without its marker"), "{error}");
}

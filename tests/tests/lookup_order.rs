//! Two changes of one row, each with a lookup on the way to an upsert: which one stays.

use std::sync::Arc;

use levada_core::async_io::{AsyncSettings, CallError, Called};
use levada_core::template::{Emit, IdempotentSink, Next, SourceFunction, WriteContext};
use levada_core::{
    Batch, Change, Keyed, Row, Shape, SinkContext, SinkError, SourceContext, SourceError, State, Value,
    WriteOrder,
};
use levada_engine::store::Store;
use levada_engine::{CheckpointedJob, Job, ShapeError};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresLookup, PostgresLookupConfig, PostgresSinkConfig, PostgresUpsert, WriteMode};
use levada_testcontainers::{Database, Postgres, wait_until};
use levada_tests::process::PATIENCE;
use tokio::sync::watch;

/// The code of the older change of the one thing, and that of the newer one.
const OLDER: u64 = 1;
const NEWER: u64 = 2;

/// Emits the two codes.
#[derive(Debug)]
struct Changes(Vec<u64>);

impl SourceFunction for Changes {
    type Item = u64;

    async fn open(&mut self, _: SourceContext, _: &State) -> Result<(), SourceError> {
        self.0 = vec![NEWER, OLDER];
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        match self.0.pop() {
            Some(code) => out.record(code),
            None => return Ok(Next::End),
        }
        Ok(Next::More)
    }
}

/// An upsert that says of itself that order means nothing to it, and is wrong: nothing is refused before it.
#[derive(Debug)]
struct Careless(PostgresUpsert);

impl IdempotentSink<Keyed> for Careless {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.0.open(ctx).await
    }

    async fn upsert(&mut self, batch: Batch<Keyed>, ctx: &WriteContext) -> Result<(), SinkError> {
        self.0.upsert(batch, ctx).await
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        self.0.flush().await
    }

    async fn close(&mut self) {
        self.0.close().await;
    }

    fn write_order(&self) -> WriteOrder {
        WriteOrder::Any
    }
}

/// How far the lookups have come.
#[derive(Debug, Clone)]
struct Progress {
    newer_is_found: watch::Sender<bool>,
    older_may_leave: watch::Sender<bool>,
}

async fn until(is_so: &watch::Sender<bool>) {
    is_so.subscribe().wait_for(|is_so| *is_so).await.expect("a sender that lives");
}

/// Looks the colour of a code up, and makes it that of the thing. The answer to the older change waits until it may leave.
async fn look_up(lookup: PostgresLookup, progress: Progress, code: Arc<u64>) -> Called<Keyed> {
    let found = lookup.get(&[Value::Int(*code as i64)]).await;
    let found =
        found.map_err(|cause| CallError::new(cause.class(), "look the colour up").caused_by(cause))?;
    let colour = found.first().and_then(|row| row.get("name")).cloned();
    let colour = colour.ok_or_else(|| CallError::bad_record("no such colour"))?;
    match *code {
        OLDER => until(&progress.older_may_leave).await,
        _ => drop(progress.newer_is_found.send_replace(true)),
    }
    let key = Row::new(Shape::new(["id"]), vec![Value::Int(7)]);
    let row = Row::new(Shape::new(["colour"]), vec![colour]);
    Ok(vec![Keyed { key: Some(key), change: Change::Upsert(row) }])
}

struct Scene {
    database: Database,
    lookup: PostgresLookup,
    progress: Progress,
}

impl Scene {
    async fn new() -> Self {
        let database = Postgres::database().expect("a database");
        let tables = "CREATE TABLE colours (code int PRIMARY KEY, name text); \
                      INSERT INTO colours VALUES (1, 'red'), (2, 'blue'); \
                      CREATE TABLE things (id int PRIMARY KEY, colour text)";
        database.psql(tables).expect("tables");
        let table = TableName::new("colours").expect("a name");
        let config = PostgresLookupConfig::by_table(database.url().parse().expect("a URL"), table, ["code"])
            .columns(["name"]);
        let lookup = PostgresLookup::open(config).await.expect("a table with this key");
        let (newer_is_found, older_may_leave) = (watch::Sender::new(false), watch::Sender::new(false));
        Self { database, lookup, progress: Progress { newer_is_found, older_may_leave } }
    }

    fn job<K: IdempotentSink<Keyed> + 'static>(
        &self,
        settings: AsyncSettings<u64, Keyed>,
        sink: fn(PostgresUpsert) -> K,
    ) -> CheckpointedJob {
        let (lookup, progress) = (self.lookup.clone(), self.progress.clone());
        let table = TableName::new("things").expect("a name");
        let config = PostgresSinkConfig::from_url(self.database.url(), table, WriteMode::Upsert);
        let config = config.expect("a URL").key(["id"]);
        Job::new("things")
            .source_function("changes", |_| Changes(Vec::new()))
            .async_map("colour", move |code| look_up(lookup.clone(), progress.clone(), code), settings)
            // Each change is written as soon as it comes.
            .idempotent_sink("things", move |_| sink(PostgresUpsert::new(config.clone()).rows_per_flush(1)))
    }

    fn colour(&self) -> String {
        self.database.psql("SELECT colour FROM things").expect("the table").trim().to_owned()
    }
}

async fn store() -> Store {
    Store::open("memory:").await.expect("a store")
}

/// [ASY-16] before a real upsert: an unordered lookup is refused.
#[tokio::test(flavor = "multi_thread")]
async fn unordered_lookup_before_an_upsert_is_refused() {
    let scene = Scene::new().await;
    let refused = scene.job(AsyncSettings::new().unordered(), |sink| sink).start(store().await);
    let expected = ShapeError::UnorderedBeforeKeyedSink { stage: "colour".into(), sink: "things".into() };
    assert_eq!(refused.map(drop), Err(expected));
}

/// [ASY-16] with the refusal out of the way: the older change, whose lookup takes longer, is written over the newer one, and
/// stays.
#[tokio::test(flavor = "multi_thread")]
async fn unordered_lookup_before_an_upsert_would_leave_the_older_row() {
    let scene = Scene::new().await;
    let mut job =
        scene.job(AsyncSettings::new().unordered(), Careless).start(store().await).expect("a shape");
    wait_until(PATIENCE, "the row of the newer change", || scene.colour() == "blue").expect("it is written");
    scene.progress.older_may_leave.send_replace(true);
    job.wait().await.expect("it ends well");
    assert_eq!(scene.colour(), "red", "the wrong final row");
}

/// [ASY-16] [ASY-04] the same lookups in the order that nobody asked for: the newer change waits for the older one.
#[tokio::test(flavor = "multi_thread")]
async fn lookup_before_an_upsert_leaves_the_newer_row() {
    let scene = Scene::new().await;
    let mut job = scene.job(AsyncSettings::new(), |sink| sink).start(store().await).expect("a shape");
    until(&scene.progress.newer_is_found).await;
    scene.progress.older_may_leave.send_replace(true);
    job.wait().await.expect("it ends well");
    assert_eq!(scene.colour(), "blue");
}

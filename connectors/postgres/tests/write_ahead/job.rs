//! A whole job with checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{CheckpointId, ErrorClass, ListState, SourceContext, SourceError, Spread, State, Storable};
use levada_engine::Job;
use levada_engine::checkpoint::{CheckpointSettings, RestartStrategy};
use levada_engine::driver::Retry;
use levada_engine::store::Store;
use levada_postgres::PostgresWriteAhead;

use crate::driven::{LOG, ROWS};
use crate::scene::{Scene, keyless, number};

/// Counts to 1000, and fails once on the way.
#[derive(Debug)]
struct Count {
    next: u64,
    has_failed: Arc<AtomicBool>,
}

impl SourceFunction for Count {
    type Item = u64;

    async fn open(&mut self, _: SourceContext, restored: &State) -> Result<(), SourceError> {
        let stored = restored.get("next").and_then(|list| list.elements.first());
        self.next = stored.map_or(0, |bytes| u64::load(1, bytes).expect("a number"));
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        if self.next == 700 && !self.has_failed.swap(true, Ordering::Relaxed) {
            return Err(SourceError::new(ErrorClass::Fatal, "asked to fail"));
        }
        if self.next == 1000 {
            return Ok(Next::End);
        }
        out.record(self.next);
        self.next += 1;
        // Lets others run, so that checkpoints fall between the records.
        tokio::task::yield_now().await;
        Ok(Next::More)
    }

    fn snapshot(&mut self, _: CheckpointId) -> State {
        let mut bytes = Vec::new();
        self.next.store(&mut bytes);
        State::new().with("next", ListState::new(Spread::Split, 1, vec![bytes]))
    }
}

/// [TPL-07] through the engine: a job that fails and restarts, with checkpoints as fast as they come.
#[tokio::test(flavor = "multi_thread")]
async fn job_that_fails_on_the_way_writes_each_row_once() {
    let scene = Scene::new(LOG);
    let (config, has_failed) = (scene.insert("log"), Arc::<AtomicBool>::default());
    let seen = Arc::clone(&has_failed);
    let settings = CheckpointSettings { interval: Some(Duration::from_millis(10)), ..Default::default() };
    let restarts = RestartStrategy::FixedDelay { attempts: 3, delay: Duration::from_millis(1) };
    let job = Job::new("log")
        .source_function("numbers", move |_| Count { next: 0, has_failed: Arc::clone(&has_failed) })
        .map("row", |input| Ok(keyless(&[("a", number(&input.item().to_string()))])))
        .write_ahead_sink("log", Retry::default(), move |_| {
            PostgresWriteAhead::with_committer(config.clone())
        });
    let store = Store::open("memory:").await.expect("a store");
    let mut job = job.checkpoints(settings).restarts(restarts).start(store).expect("a job");
    let report = job.wait().await.expect("the job");
    assert!(seen.load(Ordering::Relaxed) && report.restarts == 1);
    assert_eq!(scene.rows(ROWS), (0..1000).map(|n| n.to_string()).collect::<Vec<_>>());
}

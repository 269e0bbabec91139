//! Places to run the same tests in.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use levada_core::{CheckpointId, Clock, ListState, Spread, State, Timestamp};
use levada_engine::store::{Lease, Manifest, OperatorState, PartHome, ProcessId, Store, SubtaskState};
use tempfile::TempDir;

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub(crate) struct StillClock(AtomicI64);

impl StillClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Names a bucket of an S3 server to run the same tests in; `.ci/s3/run` sets it.
pub(crate) const S3_STORE: &str = "LEVADA_S3_STORE";

#[derive(Debug)]
enum Kind {
    Memory(Store),
    Directory,
    /// Below a prefix of its own.
    Cloud(String),
}

pub(crate) struct Place {
    kind: Kind,
    folder: TempDir,
    pub(crate) clock: Arc<StillClock>,
}

impl Place {
    pub(crate) async fn all() -> Vec<Place> {
        let mut places = vec![Self::memory().await, Self::directory()];
        if let Ok(bucket) = std::env::var(S3_STORE) {
            places.push(Self::cloud(&bucket).await);
        }
        places
    }

    fn of(kind: Kind) -> Place {
        Place { kind, folder: tempfile::tempdir().unwrap(), clock: Arc::default() }
    }

    pub(crate) async fn memory() -> Place {
        Self::of(Kind::Memory(Store::open("memory:").await.unwrap()))
    }

    pub(crate) fn directory() -> Place {
        Self::of(Kind::Directory)
    }

    pub(crate) async fn cloud(bucket: &str) -> Place {
        let url = format!("{bucket}/{:032x}", rand::random::<u128>());
        // Tried once here, and not again by everybody who opens it.
        Store::open(&url).await.unwrap();
        Self::of(Kind::Cloud(url))
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Opens the store as one more process of this machine would.
    pub(crate) async fn open(&self) -> Store {
        let store = match &self.kind {
            Kind::Memory(store) => store.clone(),
            Kind::Directory => Store::open_folder(self.folder()).await.unwrap(),
            Kind::Cloud(url) => Store::open_to_read(url).unwrap(),
        };
        let clock: Arc<dyn Clock> = Arc::<StillClock>::clone(&self.clock);
        store.with_clock(clock)
    }

    /// Opens the store as a process of another machine would.
    pub(crate) async fn open_elsewhere(&self, host: &str) -> Store {
        let process = ProcessId { host: host.into(), host_id: host.into(), pid: 7, started: 70 };
        self.open().await.with_process(process)
    }
}

/// A state of `bytes` bytes in one element.
pub(crate) fn state_of(bytes: usize) -> State {
    let element = (0..bytes).map(|index| (index % 251) as u8).collect();
    State::new().with("elements", ListState::new(Spread::Split, 1, vec![element]))
}

/// Writes the parts of a checkpoint with one large and one small subtask, and returns the manifest.
pub(crate) async fn written(store: &Store, id: CheckpointId) -> Manifest {
    let home = PartHome::Checkpoint(id);
    let mut operator = OperatorState { parallelism: 2, subtasks: Vec::new() };
    for bytes in [10_000, 10] {
        let stored = store.put_state(&home, &state_of(bytes)).await.unwrap();
        let positions = [(format!("topic-{bytes}"), bytes as u64)].into();
        operator.subtasks.push(SubtaskState {
            stored,
            positions,
            pending_transactions: 1,
            ..SubtaskState::default()
        });
    }
    let mut manifest = Manifest::new(id, Timestamp(5));
    manifest.operators.insert("source".into(), operator);
    manifest
}

/// Completes checkpoint `sequence` of the lease's attempt.
pub(crate) async fn complete(lease: &mut Lease, sequence: u64) -> CheckpointId {
    let id = CheckpointId::new(lease.attempt(), sequence);
    let manifest = written(lease.store(), id).await;
    lease.complete(manifest).await.unwrap();
    id
}

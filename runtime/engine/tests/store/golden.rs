//! [CHK-09] What earlier versions wrote is read.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use levada_core::{CheckpointId, ListState, Spread, State};
use levada_engine::store::{EntryKind, LeaseRecord, ProcessId, Row, Store, TakeOver, codec};

use crate::places::{StillClock, complete, state_of, written};

/// Set to a folder, writes the golden files of this version there instead of reading those that are checked in.
const WRITE: &str = "LEVADA_WRITE_GOLDEN";

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn state() -> State {
    State::new()
        .with("broadcast", ListState::new(Spread::Broadcast, 3, vec![b"all".to_vec()]))
        .with("none", ListState::new(Spread::Split, 1, vec![]))
        .with("split", ListState::new(Spread::Split, 258, vec![vec![], vec![0, 255], b"third".to_vec()]))
        .with("ünion", ListState::new(Spread::Union, 0, vec![vec![1; 300]]))
}

async fn write(folder: PathBuf) {
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("state-1.bin"), codec::encode(&state())).unwrap();
    let process = ProcessId { host: "host".into(), host_id: "boot".into(), pid: 17, started: 4711 };
    let store = Store::open(folder.join("store-1").to_str().unwrap()).await.unwrap();
    let store = store.with_process(process).with_clock(Arc::new(StillClock::default()));
    let mut lease = store.take_lease("golden", TakeOver::IfAbandoned).await.unwrap();
    for sequence in 1..=3 {
        let id = complete(&mut lease, sequence).await;
        lease.resolve(id).await.unwrap();
    }
    lease.retain(2).await.unwrap();
    let manifest = written(lease.store(), CheckpointId::new(1, 4)).await;
    lease.complete(manifest).await.unwrap();
}

/// [CHK-09]
#[tokio::test]
async fn state_of_every_format_is_read() {
    if let Some(folder) = env::var_os(WRITE) {
        return write(folder.into()).await;
    }
    let bytes = fs::read(golden().join("state-1.bin")).unwrap();
    assert_eq!(codec::decode(bytes.clone().into()).unwrap(), state());
    assert_eq!(codec::encode(&state()), bytes, "a changed encoding needs a new format number");
}

/// [CHK-09] A whole store, with an entry of every kind.
#[tokio::test]
async fn a_store_of_every_format_is_restored() {
    if env::var_os(WRITE).is_some() {
        return;
    }
    let store = Store::open_to_read(golden().join("store-1").to_str().unwrap()).unwrap();
    let recovery = store.latest().await.unwrap();
    assert!(recovery.log.damages.is_empty());
    let manifest = recovery.newest.unwrap();
    assert_eq!(manifest.id, CheckpointId::new(1, 4));
    for (subtask, bytes) in manifest.operators["source"].subtasks.iter().zip([10_000, 10]) {
        assert_eq!(store.get_state(&manifest.home(), &subtask.stored).await.unwrap(), state_of(bytes));
    }
    let EntryKind::Lease(LeaseRecord { owner, process, .. }) = &recovery.log.entries[0].kind else {
        panic!()
    };
    assert_eq!((owner.as_str(), process.pid, process.started), ("golden", 17, 4711));
    let kinds = recovery.log.entries.iter().map(|entry| match entry.kind {
        EntryKind::Resolved(id) => format!("resolved {id}"),
        EntryKind::Discarding(id) => format!("discarding {id}"),
        _ => String::new(),
    });
    let kinds: Vec<_> = kinds.filter(|kind| !kind.is_empty()).collect();
    assert_eq!(kinds, ["resolved 1-2", "resolved 1-3", "discarding 1-1"]);
    let rows = store.verify().await.unwrap().rows;
    assert!(
        matches!(rows.last(), Some(Row::Checkpoint { summary, .. }) if summary.operators["source"].parts == 1)
    );
}

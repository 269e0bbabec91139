//! [CHK-14] Disks that are full or may not be written any more.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use levada_core::CheckpointId;
use levada_engine::store::{Lease, PartHome, Store, StoreError, TakeOver};

use crate::places::{complete, written};
use crate::small_disk::SmallDisk;

async fn holder(folder: &Path) -> Lease {
    let store = Store::open(folder.to_str().unwrap()).await.unwrap();
    store.take_lease("job", TakeOver::IfAbandoned).await.unwrap()
}

/// Every name in the log, also those that the store does not list.
fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder.join("log")).unwrap();
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

async fn assert_fails_without_a_trace(lease: &mut Lease, folder: &Path) {
    let before = names(folder);
    let home = PartHome::Checkpoint(CheckpointId::new(1, 2));
    for size in [100_000, 12 << 20] {
        let part = lease.store().put_part(&home, Bytes::from(vec![7; size])).await;
        assert!(matches!(part, Err(StoreError::Unavailable { .. })), "{part:?}");
    }
    let mut manifest = written_before(lease).await;
    manifest.id = CheckpointId::new(1, 2);
    let error = lease.complete(manifest).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert_eq!(names(folder), before, "no half entry, under no name");
    let recovery = lease.store().latest().await.unwrap();
    assert_eq!(recovery.newest.unwrap().id, CheckpointId::new(1, 1));
    assert!(recovery.log.damages.is_empty());
}

async fn written_before(lease: &Lease) -> levada_engine::store::Manifest {
    lease.store().latest().await.unwrap().newest.unwrap()
}

/// [CHK-14]
#[tokio::test]
async fn a_full_disk_fails_the_checkpoint_and_corrupts_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let mut lease = holder(&disk.store()).await;
    complete(&mut lease, 1).await;
    disk.fill();
    assert_fails_without_a_trace(&mut lease, &disk.store()).await;
    disk.free();
    complete(&mut lease, 3).await;
    assert!(lease.store().verify().await.unwrap().damages.is_empty());
}

/// [CHK-14]
#[tokio::test]
async fn a_disk_that_turned_read_only_fails_the_checkpoint_and_corrupts_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let mut lease = holder(&disk.store()).await;
    complete(&mut lease, 1).await;
    disk.set_read_only(true);
    assert_fails_without_a_trace(&mut lease, &disk.store()).await;
    disk.set_read_only(false);
    complete(&mut lease, 3).await;
    assert!(lease.store().verify().await.unwrap().damages.is_empty());
}

/// [CHK-14] Who may not write cannot open, and is told where.
#[tokio::test]
async fn a_place_that_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let below = file.join("store");
    let error = Store::open(below.to_str().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains(below.to_str().unwrap()), "{error}");
    let ok = Store::open(&format!("file://{}/a/b", folder.path().display())).await.unwrap();
    written(&ok, CheckpointId::new(1, 1)).await;
}

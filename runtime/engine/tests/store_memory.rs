//! Memory of large parts; alone in its process, whose peak is measured.

#![cfg(target_os = "linux")]

use std::fs;

use bytes::Bytes;
use levada_core::CheckpointId;
use levada_engine::store::{PartHome, Store};

const LARGE: usize = 100 << 20;
/// Two chunks of 8 MiB under way, one being cut, and what the runtime takes.
const ALLOWED: usize = 40 << 20;

/// The most memory the process ever had, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// [CHK-17] State is handed over by value, and not copied on its way to the disk or back.
#[tokio::test]
async fn a_large_part_is_written_and_read_without_a_second_copy() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).await.unwrap();
    let home = PartHome::Checkpoint(CheckpointId::new(1, 1));
    let state = Bytes::from(vec![42; LARGE]);
    let before = peak();
    let part = store.put_part(&home, state.clone()).await.unwrap();
    assert_eq!(part.length, LARGE as u64);
    let mut reader = store.part_reader(&home, &part).await.unwrap();
    let mut read = 0;
    while let Some(chunk) = reader.next().await.unwrap() {
        read += chunk.len();
    }
    assert_eq!(read, LARGE);
    // The kernel's figure is off by some pages.
    let grown = peak().saturating_sub(before);
    assert!(grown < ALLOWED, "the peak grew by {} MiB", grown >> 20);

    // The measure is one: a second copy is seen.
    let copy = store.get_part(&home, &part).await.unwrap();
    assert!(copy == state);
    let grown = peak().saturating_sub(before);
    assert!(grown > LARGE / 2, "the peak grew by {} MiB only", grown >> 20);
}

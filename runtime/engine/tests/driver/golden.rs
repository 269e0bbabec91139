//! [TPL-19] State of every version that was ever written is read by this one.
//!
//! The files are never changed: a new version of a format adds a file and keeps the old one. A file that is missing is
//! written when `LEVADA_WRITE_GOLDEN` is set.

use std::fs;
use std::path::PathBuf;

use levada_core::{CheckpointId, ListState, Spread, State};
use levada_engine::driver::{JobRecovery, SinkDriver};

use crate::scripted::{barrier, context, context_at, deal, id, restored, write};
use crate::{segments, transactions};

fn golden(name: &str, written: Option<&[u8]>) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if let (Some(bytes), false, Some(_)) = (written, path.exists(), std::env::var_os("LEVADA_WRITE_GOLDEN")) {
        fs::write(&path, bytes).unwrap();
    }
    fs::read(&path).unwrap()
}

fn state_of(name: &str, element: Vec<u8>) -> State {
    State::new().with(name, ListState::new(Spread::Split, 1, vec![element]))
}

fn only_element<'a>(state: &'a State, name: &str) -> &'a [u8] {
    let list = state.get(name).unwrap();
    assert_eq!((list.spread, list.version, list.elements.len()), (Spread::Split, 1, 1));
    &list.elements[0]
}

/// [TPL-19]
#[tokio::test]
async fn version_1_of_pending_transactions() {
    let target = transactions::Target::default();
    let clock = std::sync::Arc::<crate::scripted::ManualClock>::default();
    clock.set(1_700_000_000_123);
    let mut driver = target.driver();
    driver.open(context_at(&clock, 1), None).await.unwrap();
    write(&mut driver, [1, 2]).await.unwrap();
    barrier(&mut driver, id(1)).await.unwrap();
    write(&mut driver, [3]).await.unwrap();
    target.lock().context = Some(b"names in use".to_vec());
    let state = barrier(&mut driver, id(2)).await.unwrap();
    let written = only_element(&state, "transactions");
    let stored = golden("two_phase_v1.bin", Some(written));
    assert_eq!(written, stored);

    let state = state_of("transactions", stored);
    let recovery = JobRecovery::<String>::read([&state]).unwrap();
    let found = recovery.transactions().iter();
    let found = found.map(|one| (one.handle.as_str(), one.checkpoint, one.begun_at.0, one.records));
    let begun_at = 1_700_000_000_123;
    assert_eq!(found.collect::<Vec<_>>(), [("1-0-0", id(1), begun_at, 2), ("1-2-0", id(2), begun_at, 1)]);
    let mut next = target.driver();
    next.open(context(0, 1, 2), restored(id(2), &state)).await.unwrap();
    assert_eq!(target.visible(), [1, 2, 3]);
    assert_eq!(target.lock().restored_contexts, [b"names in use"]);
}

/// An entry that a program has stored with its transaction open. This version leaves none open, but reads it.
pub(crate) fn state_with_an_open_transaction() -> State {
    state_of("transactions", golden("two_phase_v1_open.bin", Some(&entry_with_an_open_transaction())))
}

/// Spells the format out, byte by byte.
fn entry_with_an_open_transaction() -> Vec<u8> {
    let transaction = |sequence: u64, records: u64| {
        let mut bytes = Vec::new();
        for number in [3, sequence, 1_000, records] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.push(5);
        bytes.extend_from_slice(format!("3-{sequence}-0").as_bytes());
        bytes
    };
    let mut entry = b"LTPC\0\x01\0\x01".to_vec();
    entry.push(1);
    entry.extend(transaction(3, 4));
    entry.push(2);
    entry.extend(transaction(1, 2));
    entry.extend(transaction(2, 3));
    entry.extend_from_slice(b"\x01\x07context");
    entry
}

/// [TPL-19]
#[tokio::test]
async fn version_1_of_a_segment() {
    let target = segments::Target::default();
    let mut driver = target.driver_with_pieces(18);
    driver.open(context(3, 4, 7), None).await.unwrap();
    write(&mut driver, [1, 2]).await.unwrap();
    write(&mut driver, [u64::MAX]).await.unwrap();
    let state = barrier(&mut driver, CheckpointId::new(7, 9)).await.unwrap();
    let written = only_element(&state, "segments");
    let stored = golden("write_ahead_v1.bin", Some(written));
    assert_eq!(written, stored);

    let mut next = target.driver_with_pieces(18);
    let restored = restored(CheckpointId::new(7, 9), &state_of("segments", stored));
    next.open(context(0, 1, 8), restored).await.unwrap();
    next.complete(CheckpointId::new(7, 9)).await.unwrap();
    assert_eq!(target.visible(), [1, 2, u64::MAX]);
    assert_eq!(target.markers(), ["job/sink/3/7-9"]);
    assert_eq!(target.lock().sent[0].2.0, 7_009);
}

/// [TPL-19]
#[tokio::test]
async fn state_of_a_later_version_is_refused() {
    let later = |name| State::new().with(name, ListState::new(Spread::Split, 2, Vec::new()));
    let mut driver = transactions::Target::default().driver();
    let error = driver.open(context(0, 1, 2), restored(id(1), &later("transactions"))).await.unwrap_err();
    assert_eq!(error.to_string(), "stored state cannot be read");
    let mut driver = segments::Target::default().driver();
    driver.open(context(0, 1, 2), restored(id(1), &later("segments"))).await.unwrap_err();
}

/// [TPL-19] Whatever byte is missing: an error, and nothing is done.
#[tokio::test]
async fn state_cut_anywhere_is_refused_before_anything_is_done() {
    for (list, file) in [("transactions", "two_phase_v1.bin"), ("segments", "write_ahead_v1.bin")] {
        let whole = golden(file, None);
        for length in 0..whole.len() {
            let state = &deal(&[state_of(list, whole[..length].to_vec())], 1)[0];
            let restored = restored(id(2), state);
            let (transactions, segments) = (transactions::Target::default(), segments::Target::default());
            let opened = match list {
                "transactions" => transactions.driver().open(context(0, 1, 2), restored).await,
                _ => segments.driver().open(context(0, 1, 2), restored).await,
            };
            opened.unwrap_err();
            assert!(transactions.take_calls().is_empty(), "{file} cut at {length}");
        }
    }
}

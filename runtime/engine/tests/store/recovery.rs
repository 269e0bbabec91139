//! [CHK-08] [CHK-21] What a start goes on from.

use std::fs;
use std::path::PathBuf;

use levada_core::CheckpointId;
use levada_engine::store::{
    Decision, Flaw, Lease, Piece, Recovery, Refusal, RestoreFrom, RestorePolicy, Row, TakeOver, choose,
};

use crate::places::{Place, complete, state_of};

const IDEMPOTENT: RestorePolicy =
    RestorePolicy { every_sink_idempotent: true, allow_replay: false, allow_fresh_start: false };
const REPLAY: RestorePolicy =
    RestorePolicy { every_sink_idempotent: false, allow_replay: true, allow_fresh_start: false };

fn id(sequence: u64) -> CheckpointId {
    CheckpointId::new(1, sequence)
}

fn decide(recovery: &Recovery, policy: RestorePolicy) -> Decision {
    choose(&recovery.log.entries, &recovery.log.damages, RestoreFrom::Latest, policy)
}

async fn three_checkpoints(place: &Place) -> Lease {
    let mut lease = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
    for sequence in 1..=3 {
        let id = complete(&mut lease, sequence).await;
        lease.resolve(id).await.unwrap();
    }
    lease
}

fn entry_file(place: &Place, number: u64) -> PathBuf {
    place.folder().join("log").join(format!("{number:020}"))
}

/// [CHK-08]
#[tokio::test]
async fn the_newest_checkpoint_is_restored_with_its_state() {
    for place in Place::all().await {
        let lease = three_checkpoints(&place).await;
        let recovery = lease.store().latest().await.unwrap();
        let Decision::Restore(manifest) = decide(&recovery, RestorePolicy::default()) else { panic!() };
        assert_eq!(manifest.id, id(3));
        let subtasks = &manifest.operators["source"].subtasks;
        for (subtask, bytes) in subtasks.iter().zip([10_000, 10]) {
            let state = lease.store().get_state(&manifest.home(), &subtask.stored).await.unwrap();
            assert_eq!(state, state_of(bytes));
        }
    }
}

/// [CHK-08] A start before the first checkpoint is none that was lost.
#[tokio::test]
async fn a_store_with_leases_only_starts_from_nothing() {
    for place in Place::all().await {
        let store = place.open().await;
        for _ in 0..3 {
            store.take_lease("job", TakeOver::Always).await.unwrap();
            let recovery = store.latest().await.unwrap();
            assert_eq!(decide(&recovery, RestorePolicy::default()), Decision::Fresh);
        }
    }
}

/// [CHK-08] Torn at any length, the newest is told, passed over with idempotent sinks, and refused with others.
#[tokio::test]
async fn a_torn_entry_is_passed_over_only_when_that_is_safe() {
    let place = Place::directory();
    let lease = three_checkpoints(&place).await;
    let file = entry_file(&place, 6);
    let whole = fs::read(&file).unwrap();
    for length in (0..whole.len()).step_by(7) {
        fs::write(&file, &whole[..length]).unwrap();
        let recovery = lease.store().latest().await.unwrap();
        let [damage] = &recovery.log.damages[..] else { panic!("{:?}", recovery.log.damages) };
        assert_eq!((damage.entry, &damage.piece), (Some(6), &Piece::Entry));
        let Decision::Replay { from, passed_over } = decide(&recovery, IDEMPOTENT) else { panic!() };
        assert_eq!((from.id, passed_over.len()), (id(2), 1));
        assert!(matches!(decide(&recovery, REPLAY), Decision::Replay { .. }));
        let Decision::Refuse(Refusal::NeedsReplay { from, resolved, .. }) =
            decide(&recovery, RestorePolicy::default())
        else {
            panic!()
        };
        assert_eq!((from, resolved), (id(2), Some(id(3))));
    }
}

/// [CHK-08] The entry and the damage are named.
#[tokio::test]
async fn a_corrupt_or_missing_part_is_named_with_its_entry() {
    let place = Place::directory();
    let lease = three_checkpoints(&place).await;
    let newest = lease.store().latest().await.unwrap().newest.unwrap();
    let part = newest.parts().next().unwrap().clone();
    let file = place.folder().join("parts").join(&part.name);
    let whole = fs::read(&file).unwrap();
    let flip = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        Some(bytes)
    };
    let cases = [
        (flip(0), Flaw::Checksum),
        (flip(whole.len() - 1), Flaw::Checksum),
        (Some(whole[1..].to_vec()), Flaw::Length { expected: part.length, found: part.length - 1 }),
        (None, Flaw::Missing),
    ];
    for (content, flaw) in cases {
        match content {
            Some(content) => fs::write(&file, content).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let recovery = lease.store().latest().await.unwrap();
        assert_eq!(recovery.newest.as_ref().unwrap().id, id(2));
        let [damage] = &recovery.log.damages[..] else { panic!("{:?}", recovery.log.damages) };
        assert_eq!(damage.entry, Some(6));
        assert_eq!((&damage.piece, &damage.flaw), (&Piece::Part(part.name.clone()), &flaw));
        let Decision::Refuse(refusal) = decide(&recovery, RestorePolicy::default()) else { panic!() };
        let message = refusal.to_string();
        assert!(message.contains("entry 6") && message.contains(&part.name), "{message}");
        let (_, damages) = lease.store().show(id(3)).await.unwrap().unwrap();
        assert_eq!(&damages, std::slice::from_ref(damage));
    }
}

/// [CHK-08] A hole behind the newest whole checkpoint may have been a newer one.
#[tokio::test]
async fn a_missing_entry_is_damage() {
    let place = Place::directory();
    let lease = three_checkpoints(&place).await;
    fs::remove_file(entry_file(&place, 6)).unwrap();
    let recovery = lease.store().latest().await.unwrap();
    let [damage] = &recovery.log.damages[..] else { panic!("{:?}", recovery.log.damages) };
    assert_eq!((damage.entry, &damage.flaw), (Some(6), &Flaw::Missing));
    assert!(matches!(decide(&recovery, RestorePolicy::default()), Decision::Refuse(_)));
}

/// [CHK-08] Damage before the newest whole checkpoint is reported and stops nobody.
#[tokio::test]
async fn damage_to_an_older_checkpoint_is_reported_only() {
    let place = Place::directory();
    let lease = three_checkpoints(&place).await;
    fs::write(entry_file(&place, 4), b"no entry").unwrap();
    let recovery = lease.store().latest().await.unwrap();
    assert_eq!(recovery.log.damages.len(), 1);
    assert!(matches!(decide(&recovery, RestorePolicy::default()), Decision::Restore(m) if m.id == id(3)));
}

/// [CHK-08]
#[tokio::test]
async fn when_nothing_can_be_used_the_job_does_not_start_empty_by_itself() {
    let place = Place::directory();
    let lease = three_checkpoints(&place).await;
    for number in [2, 4, 6] {
        fs::write(entry_file(&place, number), b"levada-store 1 5 00000000\nhello").unwrap();
    }
    let recovery = lease.store().latest().await.unwrap();
    for policy in [RestorePolicy::default(), IDEMPOTENT, REPLAY] {
        let decision = decide(&recovery, policy);
        let Decision::Refuse(Refusal::NothingUsable(damages)) = decision else { panic!("{decision:?}") };
        assert_eq!(damages.len(), 3);
    }
    let asked = RestorePolicy { allow_fresh_start: true, ..RestorePolicy::default() };
    assert_eq!(decide(&recovery, asked), Decision::Fresh);
}

/// [CHK-08] A new attempt goes on behind a damaged entry and never writes over it.
#[tokio::test]
async fn a_damaged_number_stays_taken() {
    let place = Place::directory();
    let mut old = three_checkpoints(&place).await;
    fs::write(entry_file(&place, 8), b"torn").unwrap();
    assert!(old.resolve(id(3)).await.is_err());
    assert_eq!(old.store().take_lease("job", TakeOver::Always).await.unwrap().attempt(), 9);
    assert_eq!(fs::read(entry_file(&place, 8)).unwrap(), b"torn");
}

/// [CHK-21]
#[tokio::test]
async fn an_older_checkpoint_by_name_needs_replay_also_with_idempotent_sinks() {
    for place in Place::all().await {
        let lease = three_checkpoints(&place).await;
        let named = async |wanted: CheckpointId, policy| {
            let from = RestoreFrom::Checkpoint(wanted);
            let log = lease.store().recover(from).await.unwrap().log;
            choose(&log.entries, &log.damages, from, policy)
        };
        let refused = named(id(2), IDEMPOTENT).await;
        let expected =
            Refusal::NeedsReplay { from: id(2), resolved: Some(id(3)), passed_over: vec![], sinks: vec![] };
        assert_eq!(refused, Decision::Refuse(expected));
        assert!(matches!(named(id(2), REPLAY).await, Decision::Replay { from, .. } if from.id == id(2)));
        assert!(matches!(named(id(3), IDEMPOTENT).await, Decision::Restore(_)));
        assert_eq!(named(id(9), REPLAY).await, Decision::Refuse(Refusal::Unknown(id(9))));
    }
}

/// [CHK-18]
#[tokio::test]
async fn a_listing_tells_ids_sizes_positions_and_pending_transactions() {
    for place in Place::all().await {
        let mut lease = three_checkpoints(&place).await;
        complete(&mut lease, 4).await;
        let listing = lease.store().list().await.unwrap();
        let Some(Row::Checkpoint { number: 8, summary }) = listing.rows.last() else { panic!("{listing:?}") };
        assert_eq!((summary.id, summary.resolved, summary.discarded), (id(4), false, false));
        assert_eq!(summary.pending_transactions, 2);
        let source = &summary.operators["source"];
        assert_eq!((source.parallelism, source.parts), (2, 1));
        assert!(source.bytes > 10_010 && source.bytes < 10_200, "{}", source.bytes);
        let positions = [("topic-10".to_owned(), 10), ("topic-10000".to_owned(), 10_000)];
        assert_eq!(source.positions, positions.into());
        assert!(matches!(&listing.rows[0], Row::Lease { holder } if holder.owner == "job"));
        assert_eq!(lease.store().verify().await.unwrap().rows, listing.rows);
    }
}

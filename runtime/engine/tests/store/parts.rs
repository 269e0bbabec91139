//! State parts, and what becomes of those nobody names.

use bytes::Bytes;
use levada_core::{CheckpointId, State};
use levada_engine::store::{Flaw, PartHome, PartRef, StoreError, Stored, TakeOver};

use crate::places::{Place, complete, state_of, written};

/// [CHK-03] Parts of every size around the chunk read back as they were written.
#[tokio::test]
async fn parts_read_back_as_they_were_written() {
    for place in Place::all().await {
        let store = place.open().await;
        let home = PartHome::Checkpoint(CheckpointId::new(1, 1));
        for length in [0, 1, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20 << 20] {
            let bytes: Vec<u8> = (0..length).map(|index: usize| (index % 253) as u8).collect();
            let part = store.put_part(&home, Bytes::from(bytes.clone())).await.unwrap();
            assert_eq!(part.length, length as u64);
            assert!(store.get_part(&home, &part).await.unwrap() == bytes, "{length} bytes");
        }
    }
}

/// [CHK-03] A part in small pieces is the same as one in a large one.
#[tokio::test]
async fn a_part_may_come_in_pieces() {
    for place in Place::all().await {
        let store = place.open().await;
        let home = PartHome::Checkpoint(CheckpointId::new(1, 1));
        let bytes: Vec<u8> = (0..9 << 20).map(|index: usize| (index % 241) as u8).collect();
        let whole = store.put_part(&home, Bytes::from(bytes.clone())).await.unwrap();
        let mut writer = store.part_writer(&home);
        for piece in bytes.chunks(1_000_003) {
            writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        let pieces = writer.finish().await.unwrap();
        assert_eq!((pieces.length, pieces.checksum), (whole.length, whole.checksum));
        assert!(store.get_part(&home, &pieces).await.unwrap() == bytes);
    }
}

/// [CHK-08]
#[tokio::test]
async fn a_part_that_is_not_what_was_written_is_damage() {
    for place in Place::all().await {
        let store = place.open().await;
        let home = PartHome::Checkpoint(CheckpointId::new(1, 1));
        let part = store.put_part(&home, Bytes::from_static(b"state")).await.unwrap();
        let other = PartRef { checksum: part.checksum ^ 1, ..part.clone() };
        let longer = PartRef { length: 6, ..part.clone() };
        let missing = PartRef { name: "1-1/none".into(), ..part.clone() };
        let expected = [Flaw::Checksum, Flaw::Length { expected: 6, found: 5 }, Flaw::Missing];
        for (part, flaw) in [other, longer, missing].iter().zip(expected) {
            let error = store.get_part(&home, part).await.unwrap_err();
            let StoreError::Damaged(damage) = error else { panic!("{error:?}") };
            assert_eq!(damage.flaw, flaw);
        }
    }
}

/// [CHK-09] Small state needs no object of its own; no state needs nothing.
#[tokio::test]
async fn state_is_inlined_when_it_is_small() {
    for place in Place::all().await {
        let store = place.open().await;
        let home = PartHome::Checkpoint(CheckpointId::new(1, 1));
        for (state, is_part) in [(State::new(), false), (state_of(100), false), (state_of(100_000), true)] {
            let stored = store.put_state(&home, &state).await.unwrap();
            assert_eq!(matches!(stored, Stored::Part(_)), is_part);
            assert_eq!(store.get_state(&home, &stored).await.unwrap(), state);
        }
    }
}

/// [CHK-08] Parts without a manifest are no checkpoint, and go when the horizon passes them.
#[tokio::test]
async fn parts_without_a_manifest_are_ignored_and_swept() {
    for place in Place::all().await {
        let mut lease = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
        let lost = written(lease.store(), CheckpointId::new(1, 1)).await;
        assert_eq!(lease.store().latest().await.unwrap().newest, None);
        for sequence in 2..=5 {
            let id = complete(&mut lease, sequence).await;
            lease.resolve(id).await.unwrap();
        }
        let swept = lease.retain(2).await.unwrap();
        assert_eq!(swept.discarded, Some(CheckpointId::new(1, 3)));
        assert_eq!(swept.parts, 3, "of 1-1, 1-2 and 1-3");
        let part = lost.parts().next().unwrap();
        let error = lease.store().get_part(&lost.home(), part).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
        assert_eq!(lease.retain(2).await.unwrap(), Default::default());
        assert!(lease.store().verify().await.unwrap().damages.is_empty());
    }
}

/// [CHK-08] Years of checkpoints leave no folders behind.
#[tokio::test]
async fn discarded_checkpoints_leave_no_folders() {
    let place = Place::directory();
    let mut lease = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
    for sequence in 1..=6 {
        let id = complete(&mut lease, sequence).await;
        lease.resolve(id).await.unwrap();
        lease.retain(2).await.unwrap();
    }
    let folders = std::fs::read_dir(place.folder().join("parts")).unwrap();
    let mut names: Vec<_> = folders.map(|folder| folder.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["1-5", "1-6"]);
}

/// [CHK-05] State of an aborted checkpoint goes; that of a complete one does not.
#[tokio::test]
async fn an_abandoned_checkpoint_leaves_no_parts() {
    for place in Place::all().await {
        let mut lease = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
        let id = complete(&mut lease, 1).await;
        let aborted = written(lease.store(), CheckpointId::new(1, 2)).await;
        lease.abandon(aborted.id).await.unwrap();
        lease.abandon(id).await.unwrap();
        let part = aborted.parts().next().unwrap();
        assert!(lease.store().get_part(&aborted.home(), part).await.is_err());
        assert!(lease.store().verify().await.unwrap().damages.is_empty());
        assert_eq!(lease.store().latest().await.unwrap().newest.unwrap().id, id);
    }
}

/// [CHK-08] A part that a later checkpoint names again stays when its own is discarded.
#[tokio::test]
async fn a_part_that_is_still_named_stays() {
    for place in Place::all().await {
        let mut lease = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
        let mut manifest = written(lease.store(), CheckpointId::new(1, 1)).await;
        for sequence in 1..=4 {
            manifest.id = CheckpointId::new(1, sequence);
            lease.complete(manifest.clone()).await.unwrap();
            lease.resolve(manifest.id).await.unwrap();
        }
        let swept = lease.retain(2).await.unwrap();
        assert_eq!((swept.discarded, swept.parts), (Some(CheckpointId::new(1, 2)), 0));
        assert!(lease.store().verify().await.unwrap().damages.is_empty());
    }
}

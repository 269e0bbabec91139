//! Which of the ids that brokers know may be ended at a start.

use std::collections::BTreeMap;

use levada_core::CheckpointId;

use super::handle::TransactionHandle;
use super::name::TransactionNaming;

/// Chooses among `ids`, as brokers list them, those that a start ends by initialising them.
///
/// * An id that is not of this prefix, job and sink is somebody else's.
/// * One that `kept` names waits for its commit: initialising it would abort it. A handle without records has nothing to wait for,
///   and what is open in its epoch is the next transaction, which no handle names.
/// * One of an attempt above `first`'s belongs to whoever took over, while this process stood still.
/// * One of an attempt below is a left-over, whatever subtask or slot it was.
/// * One of the same attempt was made by this process, whose earlier run has ended. `begun` says for which checkpoint each of
///   those was begun that may still be written to; from `first` on they are left alone.
pub fn to_fence<'a>(
    naming: &TransactionNaming,
    ids: impl IntoIterator<Item = &'a str>,
    first: CheckpointId,
    kept: &[TransactionHandle],
    begun: &BTreeMap<String, CheckpointId>,
) -> Vec<&'a str> {
    let is_left_over = |id: &&str| {
        let Some(slot) = naming.slot_of(id) else { return false };
        let is_kept = kept.iter().any(|handle| handle.records > 0 && handle.transactional_id == *id);
        let is_live = slot.attempt == first.attempt && begun.get(*id).is_some_and(|named| *named >= first);
        slot.attempt <= first.attempt && !is_kept && !is_live
    };
    ids.into_iter().filter(is_left_over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming() -> TransactionNaming {
        TransactionNaming::new("foo", "job", "out").expect("parts of a name")
    }

    fn kept(id: &str) -> TransactionHandle {
        TransactionHandle { transactional_id: id.to_owned(), ..super::super::scene::handle() }
    }

    fn fenced(ids: &[&'static str], first: CheckpointId, kept: &[TransactionHandle]) -> Vec<&'static str> {
        to_fence(&naming(), ids.iter().copied(), first, kept, &BTreeMap::new())
    }

    const FIRST: CheckpointId = CheckpointId { attempt: 10, sequence: 1 };

    /// [KSK-17] left-overs of earlier attempts, of more subtasks and of more slots; ids compare as numbers.
    #[test]
    fn left_overs_of_earlier_attempts_are_fenced() {
        let ids = ["foo.job.out.a9.s0.t0", "foo.job.out.a2.s31.t0", "foo.job.out.a1.s0.t7"];
        assert_eq!(fenced(&ids, FIRST, &[]), ids);
    }

    /// [KSK-12] an id named in an unresolved handle is never initialised.
    #[test]
    fn ids_in_kept_handles_are_spared() {
        let ids = ["foo.job.out.a9.s0.t0", "foo.job.out.a9.s0.t1"];
        assert_eq!(fenced(&ids, FIRST, &[kept(ids[0])]), [ids[1]]);
    }

    /// [KSK-17] [KSK-08] a transaction in which nothing was written leaves its epoch to the next one.
    #[test]
    fn id_of_a_handle_without_records_is_fenced() {
        let ids = ["foo.job.out.a9.s0.t0"];
        let empty = TransactionHandle { records: 0, ..kept(ids[0]) };
        assert_eq!(fenced(&ids, FIRST, &[empty]), ids);
    }

    /// [KSK-16] the fence's part: a process that was taken over ends nothing of its successor.
    #[test]
    fn ids_of_later_attempts_are_spared() {
        assert_eq!(fenced(&["foo.job.out.a11.s0.t0", "foo.job.out.a100.s0.t0"], FIRST, &[]), [""; 0]);
    }

    /// [KSK-17]
    #[test]
    fn ids_of_others_are_spared() {
        let others = ["foo-bar.job.out.a1.s0.t0", "foo.job.out-2.a1.s0.t0", "foo.job.out.x", "payments"];
        assert_eq!(fenced(&others, FIRST, &[]), [""; 0]);
    }

    #[test]
    fn restart_in_the_process_fences_what_its_earlier_run_has_left() {
        let ids = ["foo.job.out.a10.s0.t0", "foo.job.out.a10.s0.t1", "foo.job.out.a10.s0.t2"];
        let first = CheckpointId { sequence: 10, ..FIRST };
        let begun =
            [(ids[0].to_owned(), CheckpointId { sequence: 9, ..FIRST }), (ids[1].to_owned(), first)].into();
        assert_eq!(to_fence(&naming(), ids, first, &[], &begun), [ids[0], ids[2]]);
    }
}

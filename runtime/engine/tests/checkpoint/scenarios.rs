//! The coordinator, rule by rule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use levada_core::{Barrier, BarrierKind, CheckpointId};
use levada_engine::checkpoint::{
    AbortReason, Action, CheckpointKind, CheckpointSettings, Command, Coordinator, DeclineReason, FailReason,
    Input, RequestId, SubtaskId,
};

use self::Action::{
    DiscardParts, Done, EndSelf, FailJob, Inject, NotifyAborted, NotifyComplete, Resolved, Settled,
};

type Part = (u32, u64);
type Actions = Vec<Action<Part>>;

const SECOND: Duration = Duration::from_secs(1);

fn id(sequence: u64) -> CheckpointId {
    CheckpointId::new(7, sequence)
}

fn inject(sequence: u64) -> Action<Part> {
    inject_kind(sequence, BarrierKind::Checkpoint, false)
}

fn inject_kind(sequence: u64, kind: BarrierKind, drain: bool) -> Action<Part> {
    Inject {
        barrier: Barrier { checkpoint: id(sequence), kind, triggered_at: levada_core::Timestamp::default() },
        drain,
    }
}

fn answer(request: u64, outcome: Result<CheckpointId, AbortReason>) -> Action<Part> {
    Action::Answer { request: RequestId(request), outcome }
}

fn discard(sequence: u64, subtasks: &[u32]) -> Action<Part> {
    DiscardParts { checkpoint: id(sequence), parts: subtasks.iter().map(|task| (*task, sequence)).collect() }
}

/// A coordinator with a clock in seconds. Ticks asked for are left out of what it returns and kept.
struct Fixture {
    coordinator: Coordinator<Part>,
    now: Duration,
    tick_at: Option<Duration>,
}

impl Fixture {
    fn new(settings: CheckpointSettings, tasks: u32) -> Self {
        let coordinator = Coordinator::new(settings, 7, None, (0..tasks).map(SubtaskId), Duration::ZERO);
        let mut fixture = Self { coordinator, now: Duration::ZERO, tick_at: None };
        assert_eq!(fixture.tick(0), []);
        fixture
    }

    fn on_request(tasks: u32) -> Self {
        Self::new(CheckpointSettings::default(), tasks)
    }

    fn handle(&mut self, input: Input<Part>) -> Actions {
        let mut actions = self.coordinator.handle(self.now, input);
        actions.retain(|action| match action {
            Action::ScheduleTick(at) => {
                self.tick_at = Some(*at);
                false
            }
            _ => true,
        });
        actions
    }

    fn tick(&mut self, second: u64) -> Actions {
        self.now = SECOND * u32::try_from(second).expect("a small number");
        self.handle(Input::Tick)
    }

    fn ask(&mut self, request: u64, command: Command) -> Actions {
        self.handle(Input::Trigger { request: RequestId(request), command })
    }

    fn ack(&mut self, subtask: u32, sequence: u64) -> Actions {
        self.handle(Input::Acked {
            subtask: SubtaskId(subtask),
            checkpoint: id(sequence),
            parts: (subtask, sequence),
        })
    }

    fn ack_all(&mut self, tasks: u32, sequence: u64) -> Actions {
        (0..tasks).flat_map(|task| self.ack(task, sequence)).collect()
    }

    fn decline(&mut self, subtask: u32, sequence: u64, reason: DeclineReason) -> Actions {
        self.handle(Input::Declined { subtask: SubtaskId(subtask), checkpoint: id(sequence), reason })
    }

    fn written(&mut self, sequence: u64) -> Actions {
        self.handle(Input::EntryWritten(id(sequence)))
    }

    fn write_failed(&mut self, sequence: u64) -> Actions {
        self.handle(Input::EntryFailed { checkpoint: id(sequence), error: "disk full".into() })
    }

    fn handled(&mut self, subtask: u32, sequence: u64) -> Actions {
        self.handle(Input::Handled { subtask: SubtaskId(subtask), checkpoint: id(sequence) })
    }

    fn starts_found(&mut self, subtask: u32, after: Option<CheckpointId>) -> Actions {
        self.handle(Input::StartsFound { subtask: SubtaskId(subtask), after })
    }

    fn at_end(&mut self, subtask: u32) -> Actions {
        self.handle(Input::EndReached { subtask: SubtaskId(subtask) })
    }

    fn finished(&mut self, subtask: u32) -> Actions {
        self.handle(Input::Finished { subtask: SubtaskId(subtask) })
    }

    fn restarted(&mut self, tasks: u32) -> Actions {
        self.handle(Input::Restarted { subtasks: (0..tasks).map(SubtaskId).collect() })
    }

    /// Asks for a checkpoint and lets it become complete.
    fn complete_one(&mut self, tasks: u32, sequence: u64) {
        assert_eq!(self.ask(sequence, Command::Checkpoint), [inject(sequence)]);
        self.ack_all(tasks, sequence);
        assert_eq!(
            self.written(sequence),
            [NotifyComplete(id(sequence)), answer(sequence, Ok(id(sequence)))]
        );
    }
}

fn write(sequence: u64, kind: CheckpointKind, acked: &[u32], finished: &[u32]) -> Action<Part> {
    let parts: BTreeMap<_, _> = acked.iter().map(|task| (SubtaskId(*task), (*task, sequence))).collect();
    let finished: BTreeSet<_> = finished.iter().copied().map(SubtaskId).collect();
    Action::WriteManifest { checkpoint: id(sequence), kind, parts, finished }
}

fn failed() -> DeclineReason {
    DeclineReason::Failed("no space".into())
}

fn declined(subtask: u32) -> AbortReason {
    AbortReason::Declined { subtask: SubtaskId(subtask), reason: failed() }
}

fn too_many(failures: u32, sequence: u64, reason: AbortReason) -> Action<Part> {
    FailJob(FailReason::TooManyFailures { failures, checkpoint: id(sequence), reason })
}

fn every(interval: u32) -> CheckpointSettings {
    CheckpointSettings { interval: Some(SECOND * interval), ..CheckpointSettings::default() }
}

/// [CHK-01]
#[test]
fn ids_are_not_reused_after_an_abort_or_a_restart() {
    let mut fixture = Fixture::new(CheckpointSettings { tolerable_failures: 1, ..every(10) }, 1);
    assert_eq!(fixture.tick(10), [inject(1)]);
    fixture.decline(0, 1, failed());
    assert_eq!(fixture.tick(20), [inject(2)]);
    assert_eq!(fixture.handle(Input::TasksFailed), [NotifyAborted(id(2)), Settled]);
    assert_eq!(fixture.restarted(1), []);
    assert_eq!(fixture.tick(30), [inject(3)]);
}

/// [CHK-01]
#[test]
fn ids_count_from_1_in_a_new_attempt_and_go_on_in_the_same_one() {
    let first = |restored| {
        let settings = CheckpointSettings::default();
        let mut coordinator = Coordinator::<Part>::new(settings, 7, restored, [SubtaskId(0)], Duration::ZERO);
        let trigger = Input::Trigger { request: RequestId(0), command: Command::Checkpoint };
        coordinator.handle(Duration::ZERO, trigger).remove(0)
    };
    assert_eq!(first(None), inject(1));
    assert_eq!(first(Some(CheckpointId::new(6, 40))), inject(1));
    assert_eq!(first(Some(id(40))), inject(41));
}

/// [CHK-03]
#[test]
fn nobody_is_notified_before_every_task_acked_and_the_entry_exists() {
    let mut fixture = Fixture::on_request(3);
    assert_eq!(fixture.ask(1, Command::Checkpoint), [inject(1)]);
    assert_eq!(fixture.ack(2, 1), []);
    assert_eq!(fixture.ack(0, 1), []);
    assert_eq!(fixture.ack(1, 1), [write(1, CheckpointKind::Requested, &[0, 1, 2], &[])]);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1)), answer(1, Ok(id(1)))]);
    assert_eq!(fixture.handled(0, 1), []);
    assert_eq!(fixture.handled(1, 1), []);
    assert_eq!(fixture.handled(2, 1), [Resolved(id(1))]);
}

/// [CHK-03] What a manifest names must not be deleted because a message came twice.
#[test]
fn repeated_ack_deletes_nothing() {
    let mut fixture = Fixture::on_request(2);
    fixture.ask(1, Command::Checkpoint);
    assert_eq!(fixture.ack(0, 1), []);
    assert_eq!(fixture.ack(0, 1), []);
    fixture.ack(1, 1);
    fixture.written(1);
    assert_eq!(fixture.ack(0, 1), []);
    assert_eq!(fixture.written(1), []);
}

/// [CHK-05] 10 minutes.
#[test]
fn checkpoint_expires_after_its_timeout_and_late_acks_are_deleted() {
    let mut fixture = Fixture::on_request(2);
    fixture.ask(1, Command::Checkpoint);
    fixture.ack(0, 1);
    assert_eq!(fixture.tick_at, Some(SECOND * 600));
    assert_eq!(fixture.tick(599), []);
    let expired = AbortReason::Expired;
    assert_eq!(
        fixture.tick(600),
        [
            NotifyAborted(id(1)),
            discard(1, &[0]),
            answer(1, Err(expired.clone())),
            too_many(1, 1, expired),
            Settled
        ]
    );
    assert_eq!(fixture.ack(1, 1), [discard(1, &[1])]);
    assert_eq!(fixture.ack(1, 1), []);
}

/// [CHK-05] Only the store knows whether the entry exists.
#[test]
fn checkpoint_whose_entry_is_being_written_does_not_expire() {
    let mut fixture = Fixture::on_request(1);
    fixture.ask(1, Command::Checkpoint);
    fixture.ack(0, 1);
    assert_eq!(fixture.tick(601), []);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1)), answer(1, Ok(id(1)))]);
}

/// [CHK-06] [CHK-14] Default 0.
#[test]
fn job_fails_at_the_first_failed_checkpoint_unless_some_are_tolerated() {
    let mut fixture = Fixture::new(every(10), 2);
    fixture.tick(10);
    fixture.ack_all(2, 1);
    let reason = AbortReason::EntryFailed("disk full".into());
    assert_eq!(
        fixture.write_failed(1),
        [NotifyAborted(id(1)), discard(1, &[0, 1]), too_many(1, 1, reason), Settled]
    );
    assert_eq!(fixture.tick(20), []);
}

/// [CHK-06] 2 are tolerated, in a row; a complete one starts the count anew.
#[test]
fn count_of_failures_starts_anew_with_a_complete_checkpoint() {
    let mut fixture =
        Fixture::new(CheckpointSettings { tolerable_failures: 2, ..CheckpointSettings::default() }, 1);
    let fail = |fixture: &mut Fixture, sequence| {
        fixture.ask(sequence, Command::Checkpoint);
        fixture.decline(0, sequence, failed())
    };
    fail(&mut fixture, 1);
    fail(&mut fixture, 2);
    fixture.complete_one(1, 3);
    fail(&mut fixture, 4);
    assert_eq!(fail(&mut fixture, 5).len(), 2);
    let reason = AbortReason::Declined { subtask: SubtaskId(0), reason: failed() };
    let third = [NotifyAborted(id(6)), answer(6, Err(reason.clone())), too_many(3, 6, reason), Settled];
    assert_eq!(fail(&mut fixture, 6), third);
}

/// [CHK-06] Also when several tasks decline it, and after it has expired.
#[test]
fn each_checkpoint_counts_once() {
    let mut fixture =
        Fixture::new(CheckpointSettings { tolerable_failures: 1, ..CheckpointSettings::default() }, 3);
    fixture.ask(1, Command::Checkpoint);
    assert_eq!(fixture.decline(0, 1, failed()), [NotifyAborted(id(1)), answer(1, Err(declined(0)))]);
    assert_eq!(fixture.decline(1, 1, failed()), []);
    assert_eq!(fixture.decline(2, 1, failed()), []);
    assert_eq!(fixture.tick(600), []);
}

/// [CHK-06]
#[test]
fn what_is_not_a_failure_is_not_counted() {
    let mut fixture = Fixture::on_request(1);
    for (sequence, reason) in [(1, DeclineReason::Superseded), (2, DeclineReason::NotRunning)] {
        fixture.ask(sequence, Command::Checkpoint);
        let aborted = AbortReason::Declined { subtask: SubtaskId(0), reason: reason.clone() };
        assert_eq!(
            fixture.decline(0, sequence, reason),
            [NotifyAborted(id(sequence)), answer(sequence, Err(aborted))]
        );
    }
    fixture.ask(3, Command::Savepoint);
    assert_eq!(fixture.decline(0, 3, failed()), [NotifyAborted(id(3)), answer(3, Err(declined(0)))]);
    fixture.complete_one(1, 4);
}

/// [CHK-06] Every 10 s, one in flight: what was missed is not made up for.
#[test]
fn periodic_checkpoints_wait_for_the_one_in_flight() {
    let mut fixture = Fixture::new(every(10), 1);
    assert_eq!(fixture.tick_at, Some(SECOND * 10));
    assert_eq!(fixture.tick(9), []);
    assert_eq!(fixture.tick(10), [inject(1)]);
    assert_eq!(fixture.tick(45), []);
    fixture.ack(0, 1);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1)), inject(2)]);
    fixture.ack(0, 2);
    assert_eq!(fixture.written(2), [NotifyComplete(id(2))]);
    assert_eq!(fixture.tick_at, Some(SECOND * 55));
    assert_eq!(fixture.tick(55), [inject(3)]);
}

/// [CHK-20] A timer may fire a little early, and is then used up.
#[test]
fn tick_that_comes_too_early_is_asked_for_again() {
    let mut fixture = Fixture::new(every(10), 1);
    fixture.tick_at = None;
    assert_eq!(fixture.tick(9), []);
    assert_eq!(fixture.tick_at, Some(SECOND * 10));
}

/// [CHK-06] [CHK-20] A savepoint in flight is not covered by a later checkpoint.
#[test]
fn savepoint_in_flight_is_not_covered_by_a_later_checkpoint() {
    let mut fixture = Fixture::new(CheckpointSettings { max_concurrent: 2, ..every(10) }, 1);
    assert_eq!(fixture.ask(1, Command::Savepoint), [inject(1)]);
    assert_eq!(fixture.tick(10), [inject(2)]);
    fixture.ack(0, 2);
    assert_eq!(fixture.written(2), [NotifyComplete(id(2))]);
    fixture.ack(0, 1);
    assert_eq!(fixture.written(1), [answer(1, Ok(id(1)))]);
}

/// [CHK-06] Every 10 s with a pause of 8 s: begun at 10, complete at 15, the next one at 23, and not two at once.
#[test]
fn pause_counts_from_the_completion_and_allows_one_in_flight() {
    let settings = CheckpointSettings { min_pause: SECOND * 8, max_concurrent: 3, ..every(10) };
    let mut fixture = Fixture::new(settings, 1);
    assert_eq!(fixture.tick(10), [inject(1)]);
    fixture.now = SECOND * 15;
    fixture.ack(0, 1);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1))]);
    assert_eq!(fixture.tick_at, Some(SECOND * 23));
    assert_eq!(fixture.tick(22), []);
    assert_eq!(fixture.tick(23), [inject(2)]);
    assert_eq!(fixture.tick(33), []);
}

/// [CHK-06] Requests do not wait for the pause, and those that wait together are answered by one checkpoint.
#[test]
fn requests_that_wait_together_are_answered_by_one_checkpoint() {
    let mut fixture = Fixture::on_request(1);
    assert_eq!(fixture.ask(1, Command::Checkpoint), [inject(1)]);
    assert_eq!(fixture.ask(2, Command::Checkpoint), []);
    assert_eq!(fixture.ask(3, Command::Checkpoint), []);
    fixture.ack(0, 1);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1)), answer(1, Ok(id(1))), inject(2)]);
    fixture.ack(0, 2);
    assert_eq!(fixture.written(2), [NotifyComplete(id(2)), answer(2, Ok(id(2))), answer(3, Ok(id(2)))]);
}

/// [SRC-13] A source that has found out where it starts waits for no interval: a checkpoint begins at once, and again if it
/// fails, until one is complete.
#[test]
fn starts_of_a_source_are_stored_at_once() {
    let settings = CheckpointSettings { tolerable_failures: 1, ..CheckpointSettings::default() };
    let mut fixture = Fixture::new(settings, 2);
    assert_eq!(fixture.starts_found(0, None), [inject(1)]);
    fixture.ack(1, 1);
    let failed = DeclineReason::Failed("disk full".into());
    assert_eq!(fixture.decline(0, 1, failed), [NotifyAborted(id(1)), discard(1, &[1]), inject(2)]);
    assert_eq!(fixture.ack_all(2, 2), [write(2, CheckpointKind::Starts, &[0, 1], &[])]);
    assert_eq!(fixture.written(2), [NotifyComplete(id(2))]);
    assert_eq!(fixture.tick(1000), []);
}

/// [SRC-13] One checkpoint is enough for all that have found their starts before they took part in it; not for those who did
/// behind it.
#[test]
fn starts_that_came_too_late_for_a_checkpoint_get_another_one() {
    let mut fixture = Fixture::on_request(3);
    assert_eq!(fixture.starts_found(0, None), [inject(1)]);
    assert_eq!(fixture.starts_found(1, None), []);
    assert_eq!(fixture.starts_found(2, Some(id(1))), []);
    fixture.ack_all(3, 1);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1)), inject(2)]);
    fixture.ack_all(3, 2);
    assert_eq!(fixture.written(2), [NotifyComplete(id(2))]);
}

/// [SRC-13] Nobody reads on account of a savepoint, so it does not count.
#[test]
fn a_savepoint_is_not_enough_for_starts() {
    let mut fixture = Fixture::new(CheckpointSettings { max_concurrent: 2, ..every(10) }, 1);
    assert_eq!(fixture.ask(1, Command::Savepoint), [inject(1)]);
    assert_eq!(fixture.starts_found(0, None), [inject(2)]);
}

/// [CHK-06] [CHK-04] Two in flight; the later one is acked first and covers the earlier one.
#[test]
fn complete_checkpoint_covers_the_older_ones_in_flight() {
    let mut fixture = Fixture::new(CheckpointSettings { max_concurrent: 2, ..every(10) }, 2);
    assert_eq!(fixture.tick(10), [inject(1)]);
    assert_eq!(fixture.tick(20), [inject(2)]);
    assert_eq!(fixture.tick(30), []);
    fixture.ack(0, 1);
    assert_eq!(fixture.ack_all(2, 2), [write(2, CheckpointKind::Periodic, &[0, 1], &[])]);
    assert_eq!(
        fixture.written(2),
        [NotifyAborted(id(1)), discard(1, &[0]), NotifyComplete(id(2)), inject(3)]
    );
    assert_eq!(fixture.ack(1, 1), [discard(1, &[1])]);
}

/// [CHK-06] [CHK-03] Entries are written one at a time, the oldest first.
#[test]
fn second_entry_waits_for_the_first() {
    let mut fixture =
        Fixture::new(CheckpointSettings { max_concurrent: 2, ..CheckpointSettings::default() }, 1);
    fixture.ask(1, Command::Checkpoint);
    fixture.ask(2, Command::Checkpoint);
    assert_eq!(fixture.ack(0, 1), [write(1, CheckpointKind::Requested, &[0], &[])]);
    assert_eq!(fixture.ack(0, 2), []);
    let second = write(2, CheckpointKind::Requested, &[0], &[]);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1)), answer(1, Ok(id(1))), second]);
    assert_eq!(fixture.written(2), [NotifyComplete(id(2)), answer(2, Ok(id(2)))]);
    assert_eq!(fixture.handled(0, 2), [Resolved(id(2))]);
    assert_eq!(fixture.handled(0, 1), []);
}

/// [CHK-04] A handler that fails takes the job down, not the checkpoint.
#[test]
fn failing_handler_fails_the_job_and_the_checkpoint_stays_complete() {
    let mut fixture = Fixture::on_request(2);
    fixture.complete_one(2, 1);
    let (subtask, checkpoint, error) = (SubtaskId(1), id(1), String::from("broker gone"));
    let input = Input::HandlerFailed { subtask, checkpoint, error: error.clone() };
    let reason = FailReason::HandlerFailed { subtask, checkpoint, error };
    assert_eq!(fixture.handle(input.clone()), [FailJob(reason), Settled]);
    fixture.restarted(2);
    assert_eq!(fixture.handle(input), [], "a word of before the restart");
}

/// [CHK-06] [CHK-04] A savepoint in the middle: at once, told to nobody, neither covering nor covered.
#[test]
fn savepoint_does_not_wait_and_commits_nothing() {
    let mut fixture = Fixture::new(every(10), 1);
    assert_eq!(fixture.tick(10), [inject(1)]);
    assert_eq!(fixture.ask(8, Command::Savepoint), [inject(2)]);
    assert_eq!(fixture.ask(9, Command::Savepoint), [inject(3)]);
    assert_eq!(fixture.ack(0, 2), [write(2, CheckpointKind::Savepoint, &[0], &[])]);
    assert_eq!(fixture.written(2), [answer(8, Ok(id(2)))]);
    fixture.ack(0, 1);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1))]);
    fixture.ack(0, 3);
    assert_eq!(fixture.written(3), [answer(9, Ok(id(3)))]);
}

/// [CHK-11] No interval, no pause: at once; and the notification comes before the tasks close.
#[test]
fn bounded_end_takes_one_more_checkpoint_at_once() {
    let mut fixture = Fixture::new(every(1000), 2);
    assert_eq!(fixture.at_end(0), []);
    assert_eq!(fixture.at_end(1), [inject(1)]);
    assert_eq!(fixture.ack_all(2, 1), [write(1, CheckpointKind::Final, &[0, 1], &[])]);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1))]);
    fixture.handled(0, 1);
    assert_eq!(fixture.finished(0), []);
    assert_eq!(fixture.handled(1, 1), [Resolved(id(1))]);
    assert_eq!(fixture.finished(1), [Done { last: Some(id(1)) }]);
    assert_eq!(fixture.ask(1, Command::Checkpoint), [answer(1, Err(AbortReason::NotRunning))]);
    assert_eq!(fixture.tick(1000), []);
}

/// [CHK-11] The one in flight does not cover what came after its barrier.
#[test]
fn last_checkpoint_begins_when_the_one_in_flight_is_done() {
    let mut fixture = Fixture::on_request(1);
    fixture.ask(1, Command::Checkpoint);
    assert_eq!(fixture.at_end(0), []);
    fixture.ack(0, 1);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1)), answer(1, Ok(id(1))), inject(2)]);
}

/// [CHK-11]
#[test]
fn finished_tasks_take_no_part() {
    let mut fixture = Fixture::on_request(3);
    fixture.at_end(0);
    fixture.complete_one(3, 1);
    fixture.handled(0, 1);
    fixture.finished(0);
    assert_eq!(fixture.ask(2, Command::Checkpoint), [inject(2)]);
    fixture.ack(1, 2);
    assert_eq!(fixture.ack(2, 2), [write(2, CheckpointKind::Requested, &[1, 2], &[0])]);
    fixture.written(2);
    // One that closes while a checkpoint waits for it is waited for no longer.
    fixture.at_end(1);
    fixture.ask(3, Command::Checkpoint);
    fixture.ack(2, 3);
    assert_eq!(fixture.finished(1), [write(3, CheckpointKind::Requested, &[2], &[0, 1])]);
}

/// [CHK-11] Tolerated failures: tried again after the interval; without an interval there is no other try.
#[test]
fn failed_last_checkpoint_is_tried_again_or_fails_the_job() {
    let tolerant = CheckpointSettings { tolerable_failures: 5, ..every(10) };
    let mut fixture = Fixture::new(tolerant, 1);
    assert_eq!(fixture.at_end(0), [inject(1)]);
    assert_eq!(fixture.decline(0, 1, failed()), [NotifyAborted(id(1))]);
    assert_eq!(fixture.tick(10), [inject(2)]);

    let mut fixture = Fixture::new(CheckpointSettings { interval: None, ..tolerant }, 1);
    assert_eq!(fixture.at_end(0), [inject(1)]);
    let failure = FailReason::FinalFailed { checkpoint: id(1), reason: declined(0) };
    assert_eq!(fixture.decline(0, 1, failed()), [NotifyAborted(id(1)), FailJob(failure), Settled]);
}

/// [CHK-12] Sources stop, savepoint, side effects, exit; nothing else begins meanwhile.
#[test]
fn stop_with_savepoint_ends_the_job_when_its_side_effects_are_done() {
    let mut fixture = Fixture::new(every(10), 2);
    assert_eq!(fixture.tick(10), [inject(1)]);
    assert_eq!(fixture.ask(1, Command::Checkpoint), []);
    let kind = CheckpointKind::StopWithSavepoint { drain: true };
    let refused = answer(1, Err(AbortReason::Stopping));
    assert_eq!(
        fixture.ask(2, Command::StopWithSavepoint { drain: true }),
        [inject_kind(2, BarrierKind::Stop, true), refused]
    );
    assert_eq!(fixture.ask(3, Command::Savepoint), [answer(3, Err(AbortReason::Stopping))]);
    assert_eq!(fixture.tick(20), []);
    assert_eq!(fixture.ack_all(2, 2), [write(2, kind, &[0, 1], &[])]);
    assert_eq!(fixture.written(2), [NotifyAborted(id(1)), NotifyComplete(id(2)), answer(2, Ok(id(2)))]);
    assert_eq!(fixture.handled(0, 2), []);
    assert_eq!(fixture.handled(1, 2), [Resolved(id(2)), Done { last: Some(id(2)) }]);
}

/// [CHK-13]
#[test]
fn stop_takes_a_last_checkpoint_at_once_also_beside_one_in_flight() {
    let mut fixture = Fixture::on_request(1);
    fixture.ask(1, Command::Checkpoint);
    assert_eq!(fixture.ask(2, Command::Stop), [inject_kind(2, BarrierKind::Stop, false)]);
    fixture.ack(0, 1);
    fixture.written(1);
    fixture.ack(0, 2);
    assert_eq!(fixture.written(2), [NotifyComplete(id(2)), answer(2, Ok(id(2)))]);
    assert_eq!(fixture.handled(0, 2), [Resolved(id(2)), Done { last: Some(id(2)) }]);
}

/// [CHK-12] [CHK-06] Whatever is tolerated: the sources have stopped.
#[test]
fn failing_stop_fails_the_job() {
    let tolerant = CheckpointSettings { tolerable_failures: 100, ..every(10) };
    for command in [Command::Stop, Command::StopWithSavepoint { drain: false }] {
        let mut fixture = Fixture::new(tolerant, 2);
        assert_eq!(fixture.ask(1, command), [inject_kind(1, BarrierKind::Stop, false)]);
        let failure = FailReason::StopFailed { checkpoint: id(1), reason: declined(1) };
        assert_eq!(
            fixture.decline(1, 1, failed()),
            [NotifyAborted(id(1)), answer(1, Err(declined(1))), FailJob(failure), Settled]
        );
        // After the restart it goes on as before.
        fixture.restarted(2);
        assert_eq!(fixture.tick(10), [inject(2)]);
    }
}

/// [CHK-12] The savepoint stays valid; whoever asked has its id.
#[test]
fn stop_whose_side_effects_fail_fails_the_job_after_the_answer() {
    let mut fixture = Fixture::on_request(1);
    fixture.ask(1, Command::StopWithSavepoint { drain: false });
    fixture.ack(0, 1);
    assert_eq!(fixture.written(1), [NotifyComplete(id(1)), answer(1, Ok(id(1)))]);
    let (subtask, checkpoint, error) = (SubtaskId(0), id(1), String::from("broker gone"));
    let failure = FailReason::HandlerFailed { subtask, checkpoint, error: error.clone() };
    assert_eq!(
        fixture.handle(Input::HandlerFailed { subtask, checkpoint, error }),
        [FailJob(failure), Settled]
    );
}

/// [CHK-03] [CHK-15]
#[test]
fn process_that_was_taken_over_ends_itself_and_tells_nobody() {
    let mut fixture = Fixture::new(CheckpointSettings { max_concurrent: 2, ..every(10) }, 2);
    fixture.ask(1, Command::Checkpoint);
    fixture.ask(2, Command::Checkpoint);
    fixture.ask(3, Command::Checkpoint);
    fixture.ack_all(2, 1);
    fixture.ack(0, 2);
    let taken_over = || Err(AbortReason::TakenOver);
    assert_eq!(
        fixture.handle(Input::TakenOver),
        [answer(1, taken_over()), answer(2, taken_over()), answer(3, taken_over()), EndSelf]
    );
    assert_eq!(fixture.written(1), []);
    assert_eq!(fixture.ack(1, 2), []);
    assert_eq!(fixture.tick(10), []);
    assert_eq!(fixture.handle(Input::TasksFailed), []);
    assert_eq!(fixture.handle(Input::TakenOver), []);
    assert_eq!(fixture.ask(4, Command::Savepoint), [answer(4, taken_over())]);
}

/// [CHK-08] The store does not tell which checkpoint is the latest while one is being written.
#[test]
fn failed_job_is_restored_only_when_no_entry_is_being_written() {
    let mut fixture =
        Fixture::new(CheckpointSettings { max_concurrent: 2, ..CheckpointSettings::default() }, 2);
    fixture.ask(1, Command::Checkpoint);
    fixture.ask(2, Command::Checkpoint);
    fixture.ask(3, Command::Checkpoint);
    fixture.ack_all(2, 1);
    fixture.ack(0, 2);
    let job_failed = || Err(AbortReason::JobFailed);
    assert_eq!(
        fixture.handle(Input::TasksFailed),
        [NotifyAborted(id(2)), discard(2, &[0]), answer(2, job_failed()), answer(3, job_failed())]
    );
    assert_eq!(fixture.restarted(2), [FailJob(FailReason::RestoredTooEarly(id(1)))]);
    assert_eq!(fixture.written(1), [answer(1, Ok(id(1))), Settled], "complete, and nobody there to be told");
    assert_eq!(fixture.restarted(2), []);
    assert_eq!(fixture.ack(1, 2), [discard(2, &[1])], "on its way since before the restart");
    assert_eq!(fixture.ask(4, Command::Checkpoint), [inject(3)]);
}

/// [CHK-08] [CHK-05]
#[test]
fn entry_that_fails_after_the_job_is_settled_and_deleted() {
    let mut fixture = Fixture::on_request(1);
    fixture.ask(1, Command::Checkpoint);
    fixture.ack(0, 1);
    assert_eq!(fixture.handle(Input::TasksFailed), []);
    let reason = AbortReason::EntryFailed("disk full".into());
    assert_eq!(
        fixture.write_failed(1),
        [NotifyAborted(id(1)), discard(1, &[0]), answer(1, Err(reason)), Settled]
    );
}

/// [CHK-16] Two restarts that have nothing to do with each other do not add up.
#[test]
fn count_of_failures_starts_anew_with_a_restart() {
    let mut fixture =
        Fixture::new(CheckpointSettings { tolerable_failures: 1, ..CheckpointSettings::default() }, 1);
    fixture.ask(1, Command::Checkpoint);
    fixture.decline(0, 1, failed());
    fixture.handle(Input::TasksFailed);
    fixture.restarted(1);
    fixture.ask(2, Command::Checkpoint);
    assert_eq!(fixture.decline(0, 2, failed()).len(), 2);
}

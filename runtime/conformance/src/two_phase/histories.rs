//! Histories without a crash, and random ones.

use super::kind::TwoPhase;
use super::{SCENARIOS, TwoPhaseTarget};
use crate::failure::Failure;
use crate::history::Event::{self, Barrier, Close, Notify, Write};
use crate::history::Fate;
use crate::stage::Stage;

async fn play<T: TwoPhaseTarget>(
    target: &T,
    scenario: &'static str,
    histories: &[(u32, &[Event])],
) -> Result<(), Failure> {
    let mut stage = Stage::new(scenario, SCENARIOS);
    for (parallelism, events) in histories {
        stage.play(&TwoPhase(target), *parallelism, events).await?;
    }
    Ok(())
}

/// Records written, pre-committed, and in a complete checkpoint of which nobody was told yet, are invisible.
///
/// # Errors
/// The sink does something else.
pub async fn nothing_is_visible_before_its_checkpoint_is_complete<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    let events = [Write(5), Barrier(Fate::Unstored), Write(3), Barrier(Fate::Untold), Write(2)];
    play(target, "nothing_is_visible_before_its_checkpoint_is_complete", &[(2, &events)]).await
}

/// Three checkpoints, each with its records, and a tail that none covers.
///
/// # Errors
/// The sink does something else.
pub async fn each_record_is_visible_once_when_its_checkpoint_is_complete<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    let interval = [Write(7), Barrier(Fate::Complete)];
    let events = [&interval[..], &interval, &interval, &[Write(4)]].concat();
    let histories = [(1, &events[..]), (3, &events)];
    play(target, "each_record_is_visible_once_when_its_checkpoint_is_complete", &histories).await
}

/// A notification that never comes is covered by the next one: transactions of several checkpoints are committed in order.
///
/// # Errors
/// The sink does something else.
pub async fn lost_notification_is_made_good_by_the_next<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    let lost = [Write(3), Barrier(Fate::Untold)];
    let events =
        [&lost[..], &lost, &[Write(3), Barrier(Fate::HalfTold)], &lost, &[Write(3), Barrier(Fate::Complete)]];
    play(target, "lost_notification_is_made_good_by_the_next", &[(2, &events.concat())]).await
}

/// Notifications of earlier checkpoints come behind later ones, and twice.
///
/// # Errors
/// The sink does something else.
pub async fn late_and_repeated_notifications_change_nothing<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    let untold = [Write(3), Barrier(Fate::Untold)];
    let late = [Notify(1), Notify(2), Notify(1), Notify(0), Notify(2), Notify(0), Write(2), Notify(0)];
    let events = [&untold[..], &untold, &untold, &late, &untold, &[Notify(1), Notify(0)]].concat();
    play(target, "late_and_repeated_notifications_change_nothing", &[(2, &events)]).await
}

/// What an aborted checkpoint covers comes with the next complete one.
///
/// # Errors
/// The sink does something else.
pub async fn aborted_checkpoint_drops_nothing<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    let aborted = [Write(4), Barrier(Fate::Aborted)];
    let events = [&aborted[..], &aborted, &[Write(2), Barrier(Fate::Complete)], &aborted].concat();
    play(target, "aborted_checkpoint_drops_nothing", &[(2, &events)]).await
}

/// Checkpoints without a record begin nothing, and commit nothing.
///
/// # Errors
/// The sink does something else.
pub async fn empty_intervals_leave_nothing<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    let empty = [Barrier(Fate::Complete), Barrier(Fate::Untold), Barrier(Fate::Complete)];
    // One record of one subtask: the other's intervals are empty all the time.
    let events = [&empty[..], &[Write(1)], &empty, &empty].concat();
    play(target, "empty_intervals_leave_nothing", &[(2, &empty), (2, &events)]).await
}

/// The last checkpoint of a stream that ends is complete before the close, with and without earlier ones.
///
/// # Errors
/// The sink does something else.
pub async fn bounded_end_makes_everything_visible<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    let events = [Write(3), Barrier(Fate::Untold), Write(3), Barrier(Fate::Aborted), Write(3)];
    play(target, "bounded_end_makes_everything_visible", &[(2, &[Write(7)]), (2, &events)]).await
}

/// A close drops the open transaction, whose records come again, and keeps those that wait for their commit.
///
/// # Errors
/// The sink does something else.
pub async fn close_keeps_what_is_pre_committed<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    let events = [Write(3), Barrier(Fate::Untold), Write(2), Close(2), Write(2), Close(1), Write(2)];
    play(target, "close_keeps_what_is_pre_committed", &[(2, &events)]).await
}

/// Random histories with everything in them that can happen, checked behind each event against a naive model.
///
/// # Errors
/// The sink does something else. The failure has a seed, from which the history can be played again.
pub async fn random_histories_agree_with_the_model<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("random_histories_agree_with_the_model", SCENARIOS);
    stage.play_random(|| TwoPhase(target), target.histories()).await
}

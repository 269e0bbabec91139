//! Histories by hand, and random ones.

use super::kind::WriteAhead;
use super::{SCENARIOS, WriteAheadTarget};
use crate::failure::Failure;
use crate::history::Event::{self, Barrier, Close, Crash, CrashTwice, Notify, Write};
use crate::history::{EVENTFUL, Fate};
use crate::stage::Stage;

async fn play<T: WriteAheadTarget>(
    target: &T,
    scenario: &'static str,
    histories: &[(u32, &[Event])],
) -> Result<(), Failure> {
    let mut stage = Stage::new(scenario, SCENARIOS);
    for (parallelism, events) in histories {
        stage.play(&WriteAhead::new(target), *parallelism, events).await?;
    }
    Ok(())
}

/// Records of an open interval, and of a complete checkpoint of which nobody was told yet, are invisible.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn nothing_is_sent_before_its_checkpoint_is_complete<T: WriteAheadTarget>(
    target: &T,
) -> Result<(), Failure> {
    let events = [Write(5), Barrier(Fate::Unstored), Write(3), Barrier(Fate::Untold), Write(2)];
    play(target, "nothing_is_sent_before_its_checkpoint_is_complete", &[(2, &events)]).await
}

/// Three segments, each visible as a whole once `send` has said so, each once, in order; intervals without a record send
/// nothing.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn each_segment_is_sent_once_when_its_checkpoint_is_complete<T: WriteAheadTarget>(
    target: &T,
) -> Result<(), Failure> {
    let interval = [Write(7), Barrier(Fate::Complete)];
    let events = [&interval[..], &interval, &[Barrier(Fate::Complete)], &interval, &[Write(4)]].concat();
    let histories = [(1, &events[..]), (3, &events)];
    play(target, "each_segment_is_sent_once_when_its_checkpoint_is_complete", &histories).await
}

/// Segments whose notification never came are sent with the next one, in order.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn lost_notification_is_made_good_by_the_next<T: WriteAheadTarget>(
    target: &T,
) -> Result<(), Failure> {
    let lost = [Write(3), Barrier(Fate::Untold)];
    let told = [Write(3), Barrier(Fate::Complete)];
    let events = [&told[..], &lost, &[Write(3), Barrier(Fate::HalfTold)], &lost, &told].concat();
    play(target, "lost_notification_is_made_good_by_the_next", &[(1, &events), (2, &events)]).await
}

/// Notifications of earlier checkpoints come behind later ones, and twice.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn late_and_repeated_notifications_change_nothing<T: WriteAheadTarget>(
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
/// The sink or its committer does something else.
pub async fn aborted_checkpoint_drops_nothing<T: WriteAheadTarget>(target: &T) -> Result<(), Failure> {
    let aborted = [Write(4), Barrier(Fate::Aborted)];
    let events = [&aborted[..], &aborted, &[Write(2), Barrier(Fate::Complete)], &aborted].concat();
    play(target, "aborted_checkpoint_drops_nothing", &[(2, &events)]).await
}

/// With the last checkpoint of a stream that ends everything is sent before the close.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn bounded_end_sends_everything<T: WriteAheadTarget>(target: &T) -> Result<(), Failure> {
    let events = [Write(3), Barrier(Fate::Untold), Write(3), Barrier(Fate::Aborted), Write(3)];
    play(target, "bounded_end_sends_everything", &[(2, &[Write(7)]), (2, &events)]).await
}

/// A restart sends the segments of its checkpoint with the next notification, and none of what came behind it.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn records_behind_the_last_checkpoint_are_dropped<T: WriteAheadTarget>(
    target: &T,
) -> Result<(), Failure> {
    let open = [Write(3), Barrier(Fate::Untold), Write(4), Barrier(Fate::Unstored), Write(2)];
    let events = [&open[..], &[Crash(2), Notify(0)], &open, &[Close(2), Write(1)]].concat();
    play(target, "records_behind_the_last_checkpoint_are_dropped", &[(2, &events)]).await
}

/// The process dies before and behind every call of its sinks and committers, and between every two events. A segment is
/// repeated only if its marker was not committed with it, or behind it, before the process died.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn crash_at_every_call_loses_nothing<T: WriteAheadTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("crash_at_every_call_loses_nothing", SCENARIOS);
    stage.play_with_every_crash(|| WriteAhead::new(target), 2, &EVENTFUL).await
}

/// A process dies, and the next one dies at every call of its recovery; the third one goes on.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn crash_at_every_call_of_a_recovery_loses_nothing<T: WriteAheadTarget>(
    target: &T,
) -> Result<(), Failure> {
    let untold = [Write(3), Barrier(Fate::Untold)];
    let mut stage = Stage::new("crash_at_every_call_of_a_recovery_loses_nothing", SCENARIOS);
    let dying = |calls, side| {
        let events = [&untold[..], &untold, &[Write(3), CrashTwice(calls, side), Notify(0), Write(2)]];
        events.concat()
    };
    stage.play_with_every_death(|| WriteAhead::new(target), 2, dying).await
}

/// Segments that wait are dealt to fewer subtasks and to more, 2 → 1, 1 → 2, 2 → 4 → 3, and keep their markers: those of
/// one subtask may be sent by several, and not in the order of their checkpoints.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn segments_survive_a_change_of_parallelism<T: WriteAheadTarget>(
    target: &T,
) -> Result<(), Failure> {
    let mut stage = Stage::new("segments_survive_a_change_of_parallelism", SCENARIOS);
    let waiting = [Write(5), Barrier(Fate::Untold), Write(5), Barrier(Fate::Untold), Write(3)];
    let half = [Barrier(Fate::HalfTold)];
    // What is told before a change, so that a segment is sent and still in the restored state, and what behind it.
    let told: [(&[Event], &[Event]); 5] = [
        (&[], &[]),
        (&[Notify(0)], &[]),
        (&half, &half),
        (&[], &half),
        (&[], &[Barrier(Fate::Unstored), Barrier(Fate::HalfTold)]),
    ];
    for way in [&[2, 1][..], &[1, 2], &[2, 4, 3]] {
        for (before, behind) in told {
            let mut events = waiting.to_vec();
            for parallelism in &way[1..] {
                events.extend([before, &[Crash(*parallelism)], behind, &waiting].concat());
            }
            stage.play(&WriteAhead::new(target), way[0], &events).await?;
        }
    }
    Ok(())
}

/// Random histories with everything in them that can happen, checked behind each event against a naive model.
///
/// # Errors
/// The sink or its committer does something else. The failure has a seed, from which the history can be played again.
pub async fn random_histories_agree_with_the_model<T: WriteAheadTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("random_histories_agree_with_the_model", SCENARIOS);
    stage.play_random(|| WriteAhead::new(target), target.histories()).await
}

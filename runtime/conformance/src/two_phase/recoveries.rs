//! Histories with crashes and changes of parallelism.

use super::kind::TwoPhase;
use super::{SCENARIOS, TwoPhaseTarget};
use crate::failure::Failure;
use crate::history::Event::{Barrier, Crash, CrashTwice, Write};
use crate::history::{EVENTFUL, Fate};
use crate::stage::Stage;

/// The process dies before and behind every call of its sinks, and between every two events; the next one goes on from the
/// newest complete checkpoint.
///
/// # Errors
/// The sink does something else.
pub async fn crash_at_every_call_loses_and_doubles_nothing<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    let mut stage = Stage::new("crash_at_every_call_loses_and_doubles_nothing", SCENARIOS);
    stage.play_with_every_crash(|| TwoPhase(target), 2, &EVENTFUL).await
}

/// A process dies, and the next one dies at every call of its recovery; the third one goes on.
///
/// # Errors
/// The sink does something else.
pub async fn crash_at_every_call_of_a_recovery_loses_and_doubles_nothing<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    let untold = [Write(3), Barrier(Fate::Untold)];
    let mut stage = Stage::new("crash_at_every_call_of_a_recovery_loses_and_doubles_nothing", SCENARIOS);
    let dying = |calls, side| [&untold[..], &untold, &[Write(3), CrashTwice(calls, side), Write(2)]].concat();
    stage.play_with_every_death(|| TwoPhase(target), 2, dying).await
}

/// Transactions that wait are dealt to fewer subtasks and to more: 2 → 1, 1 → 2, 2 → 4 → 3.
///
/// # Errors
/// The sink does something else.
pub async fn transactions_survive_a_change_of_parallelism<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    let mut stage = Stage::new("transactions_survive_a_change_of_parallelism", SCENARIOS);
    let waiting = [Write(5), Barrier(Fate::Untold), Write(5), Barrier(Fate::Untold), Write(3)];
    for way in [&[2, 1][..], &[1, 2], &[2, 4, 3]] {
        let mut events = waiting.to_vec();
        for parallelism in &way[1..] {
            events.push(Crash(*parallelism));
            events.extend(waiting);
        }
        stage.play(&TwoPhase(target), way[0], &events).await?;
    }
    Ok(())
}

//! What is different from life to life. Nothing but a life's number decides, so a seed replays it.

use std::process::Command;

use super::{Scene, Told};

/// How many subtasks a life has.
pub fn parallelism(number: u32) -> u32 {
    [2, 4, 2, 3][number as usize % 4]
}

/// What is to go wrong inside of a life, in the words of the crate `fail`: the answer to an entry of the log is lost, and
/// tasks come to grief in all of the `ways`, each a fail point and what happens there. In every fifth life nothing is.
pub fn disturbances(number: u32, ways: &[(&str, &str)]) -> Option<String> {
    if number.is_multiple_of(5) {
        return None;
    }
    let after = 2 + number % 5;
    let mut words = format!("store::lost_answer={after}*off->1*return");
    for ((point, grief), place) in ways.iter().zip(0..) {
        let after = after + 3 * (place + number) % 4;
        words.push_str(&format!(";{point}={after}*off->1*{grief}"));
    }
    Some(words)
}

/// Returns the command of a life in a loop: with its own parallelism and disturbances.
pub fn life(scene: &Scene, number: u32, ways: &[(&str, &str)]) -> Command {
    let disturbances = disturbances(number, ways);
    let told = Told { restarts: disturbances.is_some(), ..scene.told(parallelism(number)) };
    let mut command = scene.command(&told);
    command.env("FAILPOINTS", disturbances.unwrap_or_default());
    command
}

/// The same, and it goes on after whatever befalls it, disturbed or not: a busy broker refuses the first batch of a transaction now and
/// then, the client gives the transaction up (`skipped sequence numbers`), and the job writes it again.
pub fn restarting_life(scene: &Scene, number: u32, ways: &[(&str, &str)]) -> Command {
    let mut command = scene.command(&Told { restarts: true, ..scene.told(parallelism(number)) });
    command.env("FAILPOINTS", disturbances(number, ways).unwrap_or_default());
    command
}

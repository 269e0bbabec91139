//! The sources.

use std::collections::BTreeSet;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::program::{Program, run};

fn numbers(lines: &[String]) -> Vec<u64> {
    lines.iter().filter_map(|line| line.parse().ok()).collect()
}

/// [TPL-01]
#[test]
fn bounded_source_counts_to_its_end_in_two_subtasks() {
    let out = run(env!("CARGO_BIN_EXE_counting_source"), &["7"]);
    let lines: Vec<String> = out.lines().map(str::to_owned).collect();
    assert_eq!(numbers(&lines).into_iter().collect::<BTreeSet<_>>(), (0..7).collect());
    assert_eq!(numbers(&lines).len(), 7);
    for line in ["subtask 0 of 2 opened", "subtask 1 of 2 opened"] {
        assert!(lines[..2].contains(&line.to_owned()), "{line} first: {out}");
    }
    for line in ["subtask 0 of 2 closed in front of 8", "subtask 1 of 2 closed in front of 7"] {
        assert!(lines[9..11].contains(&line.to_owned()), "{line} last: {out}");
    }
    assert_eq!(lines[11..], ["ended"]);
}

/// [TPL-01]
#[test]
fn endless_source_ends_at_ctrl_c_and_at_sigterm_and_closes_its_subtasks() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut program = Program::start(env!("CARGO_BIN_EXE_counting_source"), &["endless"]);
        let mut lines: Vec<String> = Vec::new();
        while numbers(&lines).len() < 4 {
            lines.push(program.line());
        }
        kill(Pid::from_raw(program.pid()), signal).expect("a signal");
        lines.extend(program.end().well().lines().map(str::to_owned));
        // Each subtask tells in front of which number it was closed: all before it were printed.
        for subtask in 0..2 {
            let told = format!("subtask {subtask} of 2 closed in front of ");
            let closed: Vec<u64> =
                lines.iter().filter_map(|line| line.strip_prefix(&told)?.parse().ok()).collect();
            let mine: Vec<u64> = numbers(&lines).into_iter().filter(|number| number % 2 == subtask).collect();
            assert_eq!(closed.len(), 1, "{lines:?}");
            assert_eq!(mine, (subtask..closed[0]).step_by(2).collect::<Vec<_>>(), "{lines:?}");
        }
        assert_eq!(lines.last().map(String::as_str), Some("ended"));
    }
}

/// [TPL-02]
#[test]
fn resettable_source_is_rescaled_without_loss_or_repeat() {
    let out = run(env!("CARGO_BIN_EXE_resettable_counting_source"), &[]);
    let rescaled = "
  2 subtasks counted to 400: 400 numbers so far
  4 subtasks counted to 800: 800 numbers so far
  3 subtasks counted to 1200: 1200 numbers so far
  balance: 1200 numbers = 1200 counted - 0 repeated + 0 lost
";
    assert_eq!(out, format!("Split list:{rescaled}Union list:{rescaled}"));
}

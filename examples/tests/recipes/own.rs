//! The sinks that commit in two phases.

use crate::program::run;

/// [TPL-10] [TPL-20] with crash and recovery.
#[test]
fn own_two_phase_sink_commits_after_the_crash_what_it_had_pre_committed() {
    let out = run(env!("CARGO_BIN_EXE_own_sink"), &[]);
    assert_eq!(out, "crash: a reader sees 0 of 5 lines\nrecover: a reader sees 5 of 5 lines\n");
}

/// [TPL-20]
#[test]
fn own_two_phase_sink_has_less_than_80_lines() {
    let lines = include_str!("../../own_sink.rs").lines().count();
    assert!(lines < 80, "{lines} lines");
}

/// [TPL-16] a reader sees committed files only, also when the process died between the phases.
#[test]
fn file_waits_for_the_next_life_when_its_commit_was_killed() {
    let out = run(env!("CARGO_BIN_EXE_transactional_files"), &[]);
    let expected = "\
before
  visible: nothing
  waiting: nothing
killed in its first commit
  visible: nothing
  waiting: line 0, line 1, line 2
started again, with nothing new to read
  visible: line 0, line 1, line 2
  waiting: nothing
and again, with two lines more
  visible: line 0, line 1, line 2 | line 3, line 4
  waiting: nothing
";
    assert_eq!(out, expected);
}

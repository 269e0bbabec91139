//! The three sinks side by side.

use crate::program::run;

/// [TPL-09]
#[test]
fn failure_demonstration_shows_both_windows_and_files_without_them() {
    let out = run(env!("CARGO_BIN_EXE_write_ahead_stdout"), &[]);
    let table: Vec<Vec<&str>> = out
        .lines()
        .take(6)
        .map(|line| (24..).step_by(32).take(3).map(|at| line.get(at..line.len().min(at + 32))))
        .map(|cells| cells.map(|cell| cell.unwrap_or_default().trim()).collect())
        .collect();
    let expected = [
        ["print", "write-ahead", "files"],
        ["0 1 2 3", "0 1 2 3", "0 1 2 3"],
        ["4 5 6 7", "4 5 6 7", ""],
        ["4 5 6 7 8 9", "4 5 6 7 8 9", ""],
        ["4 5 6 7 8 9 10 11 12 13 14 15", "8 9 10 11 12 13 14 15", "4 5 6 7 8 9 10 11 12 13 14 15"],
        ["4 5 6 7 4 5 6 7 8 9", "4 5 6 7 8 9", ""],
    ];
    assert_eq!(table, expected, "{out}");
    assert!(out.contains("Two windows are left"), "{out}");
}

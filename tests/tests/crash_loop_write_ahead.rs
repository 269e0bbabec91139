//! A job with checkpoints, from Kafka into a write-ahead sink, under kill -9: at every fail point and at random moments,
//! with another parallelism in each life.
#![cfg(feature = "failpoints")]

use levada_engine::{RECOVERY_FAIL_POINTS, driver, store};
use levada_postgres::write_ahead;
use levada_tests::checkpointed::{
    APPENDING_FAIL_POINTS, Feed, Ledger, Rows, Scene, Target, found_out, killing, life, points_of,
};
use levada_tests::loop_length::loop_length;

const PROGRAM: &str = env!("CARGO_BIN_EXE_checkpointed-under-test");

/// Fail points that these jobs do not pass.
const ELSEWHERE: &[&str] = &[
    // Other templates: see the loop of the file sink.
    "idempotent::",
    "tpc::",
    // State of more than 8 MiB: the engine's own tests.
    "store::part::between_chunks",
    // Only sinks with transactions are asked at a start: see the same loop.
    "recovery::",
    // Nobody asks for a savepoint here.
    "store::savepoint::",
];

/// Fail points that are passed only where markers are apart from the data.
const MARKED_APART: &[&str] = &["wal::before_marker", "wal::after_marker", "marker_file::"];

/// How tasks come to grief in most lives whose rows and markers are in one transaction: also behind it.
const GRIEF_OF_ROWS: &[(&str, &str)] = &[("wal::before_send", "panic"), ("wal::after_send", "panic")];

/// How a task comes to grief in most lives.
const GRIEF: &[(&str, &str)] = &[("wal::before_send", "panic")];

/// [CHK-19] [CHK-10] [TPL-06] [TPL-07] [TPL-09] with markers in files, nothing is lost, and a segment comes again only if it
/// was sent and its marker was not there yet: the judge explains each repeat.
#[test]
#[ignore = "takes 30 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_sends_every_segment_and_repeats_only_unmarked_ones() {
    let length = loop_length(30, 300);
    let scene = Scene::new(PROGRAM, Target::Appended);
    let mut ledger = Ledger::of(scene.home());

    let points = points_of(
        &[store::FAIL_POINTS, RECOVERY_FAIL_POINTS, driver::FAIL_POINTS, APPENDING_FAIL_POINTS],
        ELSEWHERE,
    );

    let (report, fed) = Feed::into(scene.topic()).beside(5000, || {
        killing("write-ahead", &points)
            .lasting(length)
            .after_each(|_| ledger.look())
            .run(|number| life(&scene, number, GRIEF))
    });
    let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
    println!("{report}");
    scene.drain();
    ledger.look().and_then(|()| ledger.judge_all(&fed)).unwrap_or_else(|wrong| panic!("{wrong}"));
    let (segments, repeated, torn) = ledger.segments();
    println!("  {} values in {segments} segments; {repeated} came again, {torn} were cut off", fed.values());
    report.covered().expect("a kill at every point");
    assert!(u64::from(report.kills()) >= length.as_secs() / 3, "only {} kills", report.kills());
    assert!(repeated > 0 && torn > 0, "the two windows of at-least-once were open");
}

/// [CHK-19] [CHK-10] [TPL-06] [TPL-07] with markers in the transactions of the rows, every value is there exactly once.
#[test]
#[ignore = "takes 30 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_writes_every_row_exactly_once() {
    let length = loop_length(30, 300);
    let rows = Rows::empty();
    let scene = Scene::new(PROGRAM, Target::Rows(rows.url().to_owned()));
    let lists = [store::FAIL_POINTS, RECOVERY_FAIL_POINTS, driver::FAIL_POINTS, write_ahead::FAIL_POINTS];
    let points = points_of(&lists, &[ELSEWHERE, MARKED_APART].concat());

    let (report, fed) = Feed::into(scene.topic()).beside(5000, || {
        killing("write-ahead rows", &points)
            .lasting(length)
            .after_each(|_| rows.look())
            .run(|number| life(&scene, number, GRIEF_OF_ROWS))
    });
    let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
    println!("{report}");
    scene.drain();
    rows.judge_all(&fed).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("  {} values, each once", fed.values());
    report.covered().expect("a kill at every point");
    assert!(u64::from(report.kills()) >= length.as_secs() / 3, "only {} kills", report.kills());
}

/// The counter-test: the loop finds out markers that are written in a transaction of their own, after that of the rows.
#[test]
fn rows_whose_markers_are_written_apart_are_doubled() {
    let rows = Rows::empty();
    let scene = Scene::new(PROGRAM, Target::RowsMarkedApart(rows.url().to_owned()));
    let complaint = found_out(&scene, "pgwal::send::after_commit", || rows.look());
    assert!(complaint.contains("is doubled"), "{complaint}");
}

/// Kills a program that goes wrong; returns the complaint.
fn complaint(target: Target, point: &str) -> String {
    let scene = Scene::new(PROGRAM, target);
    let mut ledger = Ledger::of(scene.home());
    found_out(&scene, point, || ledger.look())
}

/// The counter-test: the loop finds out a committer that marks a segment before it is sent.
#[test]
fn committer_that_marks_before_the_send_loses_segments() {
    let complaint = complaint(Target::AppendedMarkedFirst, "wal::before_send");
    assert!(complaint.contains("is lost"), "{complaint}");
}

/// The counter-test: the loop finds out a committer that does not know what was sent.
#[test]
fn committer_that_forgets_what_was_sent_doubles_segments() {
    let complaint = complaint(Target::AppendedNeverKnown, "wal::after_marker");
    assert!(complaint.contains("is doubled"), "{complaint}");
}

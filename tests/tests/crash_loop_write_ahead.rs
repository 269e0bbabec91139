//! A job with checkpoints, from Kafka into a write-ahead sink, under kill -9: at every fail point and at random moments,
//! with another parallelism in each life.
#![cfg(feature = "failpoints")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use levada_engine::{driver, store};
use levada_testcontainers::Error;
use levada_testcontainers::crash::{CrashLoop, seed};
use levada_tests::checkpointed::{
    APPENDING_FAIL_POINTS, Feed, Ledger, Scene, Target, Told, disturbances, parallelism, points_of,
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
    // Nobody asks for a savepoint here.
    "store::savepoint::",
];

/// Fail points that come early in a life, and then once or twice.
const RARE: &[&str] = &[
    "store::lease::before",
    "store::lease::after",
    "store::heartbeat::before",
    "store::entry::before_read_back",
];

fn killing(name: &str) -> CrashLoop<'_> {
    let points = points_of(&[store::FAIL_POINTS, driver::FAIL_POINTS, APPENDING_FAIL_POINTS], ELSEWHERE);
    let often = CrashLoop::new(name).points(points);
    let moments = Duration::from_millis(50)..=Duration::from_millis(2000);
    RARE.iter()
        .fold(often, |crash_loop, point| crash_loop.point(point, 1..=1))
        .moments(moments)
        .patience(Duration::from_secs(4))
}

/// The command of a life in the loop.
fn life(scene: &Scene, number: u32) -> Command {
    let disturbances = disturbances(number, &[("wal::before_send", "panic")]);
    let told = Told { restarts: disturbances.is_some(), ..scene.told(parallelism(number)) };
    let mut command = scene.command(&told);
    command.env("FAILPOINTS", disturbances.unwrap_or_default());
    command
}

/// [CHK-19] [CHK-10] [TPL-06] [TPL-07] [TPL-09] with markers in files, nothing is lost, and a segment comes again only if it
/// was sent and its marker was not there yet: the judge explains each repeat.
#[test]
#[ignore = "takes 30 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_sends_every_segment_and_repeats_only_unmarked_ones() {
    let length = loop_length(30, 300);
    let scene = Scene::new(PROGRAM, Target::Appended);
    let mut ledger = Ledger::of(scene.home());

    let is_over = AtomicBool::new(false);
    let (report, fed) = thread::scope(|scope| {
        let feed = scope.spawn(|| Feed::into(scene.topic()).flow(5000, &is_over));
        let report = killing("write-ahead")
            .seed(seed().expect("a seed"))
            .lasting(length)
            .after_each(|_| ledger.look())
            .run(|number| life(&scene, number));
        is_over.store(true, Ordering::Relaxed);
        (report, feed.join().expect("the feed"))
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

/// Kills a program that goes wrong; returns the complaint.
fn found_out(target: Target, point: &str) -> String {
    let scene = Scene::new(PROGRAM, target);
    let mut feed = Feed::into(scene.topic());
    let mut ledger = Ledger::of(scene.home());
    feed.send(2000);
    let result = CrashLoop::new("wrong")
        .point(point, 1..=2)
        .share_of_points(1.0)
        .lives(10)
        .after_each(|_| {
            feed.send(500);
            ledger.look()
        })
        .run(|number| scene.command(&scene.told(parallelism(number))));
    match result {
        Err(Error::Complaint { source, .. }) => source.to_string(),
        other => panic!("a complaint of the judge was expected: {other:?}"),
    }
}

/// The counter-test: the loop finds out a committer that marks a segment before it is sent.
#[test]
fn committer_that_marks_before_the_send_loses_segments() {
    let complaint = found_out(Target::AppendedMarkedFirst, "wal::before_send");
    assert!(complaint.contains("is lost"), "{complaint}");
}

/// The counter-test: the loop finds out a committer that does not know what was sent.
#[test]
fn committer_that_forgets_what_was_sent_doubles_segments() {
    let complaint = found_out(Target::AppendedNeverKnown, "wal::after_marker");
    assert!(complaint.contains("is doubled"), "{complaint}");
}

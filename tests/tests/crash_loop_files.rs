//! A job with checkpoints, from Kafka into files, under kill -9: at every fail point and at random moments, with another
//! parallelism in each life; and taken over while it is stopped.
#![cfg(feature = "failpoints")]

use std::time::{Duration, Instant};

use levada_engine::{RECOVERY_FAIL_POINTS, driver, store};
use levada_testcontainers::crash::seed;
use levada_tests::checkpointed::{Fed, Feed, Published, Scene, Target, found_out, killing, life, points_of};
use levada_tests::loop_length::loop_length;
use levada_tests::process::PATIENCE;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const PROGRAM: &str = env!("CARGO_BIN_EXE_checkpointed-under-test");

/// Fail points that this job does not pass.
const ELSEWHERE: &[&str] = &[
    // Other templates: see the loop of the write-ahead sink.
    "idempotent::",
    "wal::",
    "marker_file::",
    // Only state of more than 4 KiB lies outside of its manifest, and only long segments come in pieces: see the same loop.
    "store::part::",
    "store::piece::",
    "store::retention::between_",
    // Nobody asks for a savepoint here.
    "store::savepoint::",
    // No file goes away that waits for its commit, so nothing is rolled back.
    "recovery::before_note",
    "recovery::after_note",
    "recovery::before_roll_back",
    "recovery::after_roll_back",
];

/// Where a holder is stopped, so that it wakes after a takeover: with a checkpoint that every task has acknowledged and
/// that is not in the log yet; in the commit of a complete one; in the middle of a pre-commit; with the lease only; at the end
/// of its start, where it has seen that the lease is its own and is about to end what earlier attempts have left.
const STOPS: &[&str] = &[
    "store::entry::before",
    "files::before_rename",
    "tpc::before_commit",
    "files::before_sync",
    "store::lease::after",
    "recovery::before_fence",
    "files::fence",
];

/// Those of [`STOPS`] that are passed once a start.
const ONCE: &[&str] = &["store::lease::after", "recovery::before_fence", "files::fence"];

/// How tasks come to grief in most lives: by an error of the sink before a checkpoint is complete, by a panic then, and by one
/// when it is complete and not all of it is published.
const GRIEF: &[(&str, &str)] =
    &[("files::before_sync", "return"), ("tpc::after_pre_commit", "panic"), ("tpc::before_commit", "panic")];

/// [CHK-19] [CHK-10] [CHK-15] [TPL-10] [TPL-11] [TPL-16] values of many keys, fed while the job is killed again and again and
/// goes on with more or fewer subtasks; then taken over from processes that are stopped, and that wake afterwards.
#[test]
#[ignore = "takes 30 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_publishes_every_value_exactly_once() {
    let length = loop_length(30, 300);
    let seed = seed().expect("a seed");
    let scene = Scene::new(PROGRAM, Target::Files);
    let mut published = Published::of(scene.home());

    let files = levada_files::sink::FAIL_POINTS;
    let points =
        points_of(&[store::FAIL_POINTS, RECOVERY_FAIL_POINTS, driver::FAIL_POINTS, files], ELSEWHERE);

    let (report, fed) = Feed::into(scene.topic()).beside(2000, || {
        let report = killing("files", &points)
            .seed(seed)
            .lasting(length.mul_f64(0.8))
            .after_each(|_| published.look())
            .run(|number| life(&scene, number, GRIEF));
        if report.is_ok() {
            take_over_until(&scene, &mut published, seed, length.mul_f64(0.2));
        }
        report
    });
    let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
    println!("{report}");
    assert_everything_is_published(&scene, &fed);
    report.covered().expect("a kill at every point");
    assert!(u64::from(report.kills()) >= length.as_secs() / 3, "only {} kills", report.kills());
}

/// Lets a last life read to the end, and judges all files anew.
fn assert_everything_is_published(scene: &Scene, fed: &Fed) {
    scene.drain();
    let published = Published::judge_all(scene.home(), fed).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("  {} values in {} files, each once", published.records(), published.files());
    assert_eq!(published.records(), fed.values());
    let left = Published::waiting(scene.home()).expect("the folder");
    assert!(left.is_empty(), "what killed lives had begun is removed: {left:?}");
}

/// Takes over from one stopped holder after the other until the time is up, at each of [`STOPS`] at least once.
fn take_over_until(scene: &Scene, published: &mut Published, seed: u64, lasting: Duration) {
    let mut random = StdRng::seed_from_u64(seed);
    let begun = Instant::now();
    let mut takeovers = 0;
    while takeovers < STOPS.len() || begun.elapsed() < lasting {
        let point = STOPS[takeovers % STOPS.len()];
        let passing = if ONCE.contains(&point) { 1 } else { random.random_range(2..=9) };
        let place = format!("{point}:{passing}");
        take_over(scene, published, &place, random.random_range(2..=4), random.random_range(2..=4));
        takeovers += 1;
    }
    println!("{takeovers} takeovers from stopped holders, each of which has woken and ended itself");
}

fn take_over(scene: &Scene, published: &mut Published, place: &str, holders: u32, takers: u32) {
    let mut holder = scene.stopped(holders, place);
    let newest = || published.newest_attempt();
    let taker = scene.taken_over(takers, newest);
    holder.signal(Signal::SIGCONT);
    assert!(holder.ends_within(PATIENCE), "stopped at {place}, it goes on:\n{}", holder.log());
    let ended = holder.finish();
    assert_eq!(ended.code, Some(5), "stopped at {place}, it was taken over:\n{}", ended.log);
    taker.signal(Signal::SIGTERM);
    taker.finish().expect_code(0);
    published.look().unwrap_or_else(|wrong| panic!("stopped at {place}: {wrong}"));
}

/// Kills a program that goes wrong; returns the complaint.
fn complaint(target: Target, point: &str) -> String {
    let scene = Scene::new(PROGRAM, target);
    let mut published = Published::of(scene.home());
    found_out(&scene, point, || published.look())
}

/// The counter-test: the loop finds out a sink that publishes what is only to be prepared.
#[test]
fn sink_that_publishes_at_its_pre_commit_doubles_values() {
    let complaint = complaint(Target::FilesPublishedEarly, "tpc::after_pre_commit");
    assert!(complaint.contains("is doubled"), "{complaint}");
}

/// The counter-test: the loop finds out a sink that does not commit what an earlier process has left prepared.
#[test]
fn sink_that_forgets_what_is_pending_loses_values() {
    let complaint = complaint(Target::FilesLeftPending, "files::before_rename");
    assert!(complaint.contains("is lost or late"), "{complaint}");
}

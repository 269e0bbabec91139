//! A job with checkpoints, from Kafka into files, under kill -9: at every fail point and at random moments, with another
//! parallelism in each life; and taken over while it is stopped.
#![cfg(feature = "failpoints")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levada_engine::{driver, store};
use levada_testcontainers::crash::{CrashLoop, Report, seed};
use levada_testcontainers::{Error, wait_until};
use levada_tests::checkpointed::{
    Fed, Feed, Published, Scene, Target, Told, disturbances, parallelism, points_of,
};
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
    // Only state of more than 4 KiB lies outside of its manifest: see the same loop.
    "store::part::",
    "store::retention::between_deletions",
    // Nobody asks for a savepoint here.
    "store::savepoint::",
    // Jobs do not fence at their start yet.
    "files::fence",
];

/// Fail points that come early in a life or late, and then once or twice.
const RARE: &[&str] = &[
    "store::lease::before",
    "store::lease::after",
    "store::heartbeat::before",
    "store::entry::before_read_back",
    "tpc::before_abort",
    "tpc::after_abort",
    "files::abort",
];

/// Where a holder is stopped, so that it wakes after a takeover: with a checkpoint that every task has acknowledged and
/// that is not in the log yet; in the commit of a complete one; in the middle of a pre-commit; before it has begun.
const STOPS: &[&str] = &[
    "store::entry::before",
    "files::before_rename",
    "tpc::before_commit",
    "files::before_sync",
    "store::lease::after",
];

fn killing(name: &str) -> CrashLoop<'_> {
    let points =
        points_of(&[store::FAIL_POINTS, driver::FAIL_POINTS, levada_files::sink::FAIL_POINTS], ELSEWHERE);
    let often = CrashLoop::new(name).points(points);
    let moments = Duration::from_millis(50)..=Duration::from_millis(2000);
    RARE.iter()
        .fold(often, |crash_loop, point| crash_loop.point(point, 1..=1))
        .moments(moments)
        .patience(Duration::from_secs(4))
}

/// The command of a life in the loop.
fn life(scene: &Scene, number: u32) -> Command {
    let disturbances =
        disturbances(number, &[("files::before_sync", "return"), ("tpc::after_pre_commit", "panic")]);
    let told = Told { restarts: disturbances.is_some(), ..scene.told(parallelism(number)) };
    let mut command = scene.command(&told);
    command.env("FAILPOINTS", disturbances.unwrap_or_default());
    command
}

/// [CHK-19] [CHK-10] [CHK-15] [TPL-10] [TPL-11] [TPL-16] values of many keys, fed while the job is killed again and again and
/// goes on with more or fewer subtasks; then taken over from processes that are stopped, and that wake afterwards.
#[test]
#[ignore = "takes 30 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_publishes_every_value_exactly_once() {
    let length = loop_length(30, 300);
    let seed = seed().expect("a seed");
    let scene = Scene::new(PROGRAM, Target::Files);
    let mut published = Published::of(scene.home());

    let is_over = AtomicBool::new(false);
    let (report, fed) = thread::scope(|scope| {
        let feed = scope.spawn(|| Feed::into(scene.topic()).flow(2000, &is_over));
        let report = killing("files")
            .seed(seed)
            .lasting(length.mul_f64(0.8))
            .after_each(|_| published.look())
            .run(|number| life(&scene, number));
        if report.is_ok() {
            take_over_until(&scene, &mut published, seed, length.mul_f64(0.2));
        }
        is_over.store(true, Ordering::Relaxed);
        (report, feed.join().expect("the feed"))
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
}

/// Takes over from one stopped holder after the other until the time is up, at each of [`STOPS`] at least once.
fn take_over_until(scene: &Scene, published: &mut Published, seed: u64, lasting: Duration) {
    let mut random = StdRng::seed_from_u64(seed);
    let begun = Instant::now();
    let mut takeovers = 0;
    while takeovers < STOPS.len() || begun.elapsed() < lasting {
        let point = STOPS[takeovers % STOPS.len()];
        let passing = if point == "store::lease::after" { 1 } else { random.random_range(2..=9) };
        let place = format!("{point}:{passing}");
        take_over(scene, published, &place, random.random_range(2..=4), random.random_range(2..=4));
        takeovers += 1;
    }
    println!("{takeovers} takeovers from stopped holders, each of which has woken and ended itself");
}

fn take_over(scene: &Scene, published: &mut Published, place: &str, holders: u32, takers: u32) {
    let mut command = scene.command(&scene.told(holders));
    command.env("LEVADA_STOP_AT", place);
    let mut holder = scene.start(command);
    holder.wait_until_stopped();
    let before = published.newest_attempt().expect("the folder");

    let taker = scene.start(scene.command(&Told { takes_over: true, ..scene.told(takers) }));
    let goes_on = || published.newest_attempt().is_ok_and(|newest| newest > before);
    let gone_on = wait_until(PATIENCE, "the files of the taker", goes_on);
    assert!(gone_on.is_ok(), "after {place} the taker does not go on:\n{}", taker.log());

    holder.signal(Signal::SIGCONT);
    let ended = holder.finish();
    assert_eq!(ended.code, Some(3), "stopped at {place}, it was taken over:\n{}", ended.log);
    taker.signal(Signal::SIGTERM);
    taker.finish().expect_code(0);
    published.look().unwrap_or_else(|wrong| panic!("stopped at {place}: {wrong}"));
}

/// Kills a program that goes wrong; returns the complaint.
fn found_out(target: Target, point: &str) -> String {
    let scene = Scene::new(PROGRAM, target);
    let mut feed = Feed::into(scene.topic());
    let mut published = Published::of(scene.home());
    feed.send(2000);
    let result = CrashLoop::new("wrong")
        .point(point, 1..=2)
        .share_of_points(1.0)
        .lives(10)
        .after_each(|_| {
            feed.send(500);
            published.look()
        })
        .run(|number| scene.command(&scene.told(parallelism(number))));
    complaint(result)
}

fn complaint(result: Result<Report, Error>) -> String {
    match result {
        Err(Error::Complaint { source, .. }) => source.to_string(),
        other => panic!("a complaint of the judge was expected: {other:?}"),
    }
}

/// The counter-test: the loop finds out a sink that publishes what is only to be prepared.
#[test]
fn sink_that_publishes_at_its_pre_commit_doubles_values() {
    let complaint = found_out(Target::FilesPublishedEarly, "tpc::after_pre_commit");
    assert!(complaint.contains("is doubled"), "{complaint}");
}

/// The counter-test: the loop finds out a sink that does not commit what an earlier process has left prepared.
#[test]
fn sink_that_forgets_what_is_pending_loses_values() {
    let complaint = found_out(Target::FilesLeftPending, "tpc::before_commit");
    assert!(complaint.contains("is lost or late"), "{complaint}");
}

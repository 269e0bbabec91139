//! A job with checkpoints, from Kafka into files, under kill -9: at every fail point and at random moments, with another
//! parallelism in each life; and taken over while it is stopped.
#![cfg(feature = "failpoints")]

use std::time::{Duration, Instant};

use levada_engine::{driver, store};
use levada_testcontainers::crash::seed;
use levada_testcontainers::wait_until;
use levada_tests::checkpointed::{
    Fed, Feed, Published, Scene, Target, Told, found_out, killing, life, points_of,
};
use levada_tests::loop_length::loop_length;
use levada_tests::process::{PATIENCE, Process};
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

/// Where a holder is stopped, so that it wakes after a takeover: with a checkpoint that every task has acknowledged and
/// that is not in the log yet; in the commit of a complete one; in the middle of a pre-commit; before it has begun.
const STOPS: &[&str] = &[
    "store::entry::before",
    "files::before_rename",
    "tpc::before_commit",
    "files::before_sync",
    "store::lease::after",
];

/// How a task comes to grief in most lives: an error of its sink, or a panic.
const GRIEF: &[(&str, &str)] = &[("files::before_sync", "return"), ("tpc::after_pre_commit", "panic")];

/// [CHK-19] [CHK-10] [CHK-15] [TPL-10] [TPL-11] [TPL-16] values of many keys, fed while the job is killed again and again and
/// goes on with more or fewer subtasks; then taken over from processes that are stopped, and that wake afterwards.
#[test]
#[ignore = "takes 30 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_publishes_every_value_exactly_once() {
    let length = loop_length(30, 300);
    let seed = seed().expect("a seed");
    let scene = Scene::new(PROGRAM, Target::Files);
    let mut published = Published::of(scene.home());

    let points =
        points_of(&[store::FAIL_POINTS, driver::FAIL_POINTS, levada_files::sink::FAIL_POINTS], ELSEWHERE);

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
    let mut holder = stopped(scene, holders, place, "");
    let taker = taken_over(scene, published, takers);
    holder.signal(Signal::SIGCONT);
    assert!(holder.ends_within(PATIENCE), "stopped at {place}, it goes on:\n{}", holder.log());
    let ended = holder.finish();
    assert_eq!(ended.code, Some(3), "stopped at {place}, it was taken over:\n{}", ended.log);
    taker.signal(Signal::SIGTERM);
    taker.finish().expect_code(0);
    published.look().unwrap_or_else(|wrong| panic!("stopped at {place}: {wrong}"));
}

/// Starts a holder and waits until it has stopped at `place`.
fn stopped(scene: &Scene, parallelism: u32, place: &str, fail_points: &str) -> Process {
    let mut command = scene.command(&scene.told(parallelism));
    command.env("LEVADA_STOP_AT", place).env("FAILPOINTS", fail_points);
    let mut holder = scene.start(command);
    holder.wait_until_stopped();
    holder
}

/// Takes over from a holder that lives, and waits until that has published something.
fn taken_over(scene: &Scene, published: &Published, parallelism: u32) -> Process {
    let before = published.newest_attempt().expect("the folder");
    let mut taker = scene.start(scene.command(&Told { takes_over: true, ..scene.told(parallelism) }));
    let goes_on = || published.newest_attempt().is_ok_and(|newest| newest > before);
    let gone_on = wait_until(PATIENCE, "the files of the taker", || goes_on() || taker.has_ended());
    assert!(gone_on.is_ok() && goes_on(), "the taker does not go on:\n{}", taker.log());
    taker
}

/// [CHK-15] The counter-test: entries that replace others let a holder finish its checkpoint after the takeover.
#[test]
fn without_the_condition_of_the_store_a_woken_holder_doubles_values() {
    let scene = Scene::new(PROGRAM, Target::Files);
    let mut published = Published::of(scene.home());
    Feed::into(scene.topic()).beside(2000, || {
        // The lease, a checkpoint and its resolution; then the next checkpoint.
        // The condition is there when the store is opened, and twice tried, and for the lease.
        let mut holder =
            stopped(&scene, 2, "store::entry::before:4", "store::without_condition=3*off->return");
        let taker = taken_over(&scene, &published, 3);
        taker.signal(Signal::SIGTERM);
        taker.finish().expect_code(0);
        published.look().expect("all is well before it wakes");

        holder.signal(Signal::SIGCONT);
        let mut verdict = Ok(());
        let judged = wait_until(PATIENCE, "doubled values", || {
            verdict = published.look();
            verdict.is_err() || holder.has_ended()
        });
        let complaint = verdict.expect_err("what the holder publishes").to_string();
        assert!(judged.is_ok() && complaint.contains("is doubled"), "{complaint}:\n{}", holder.log());
    });
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

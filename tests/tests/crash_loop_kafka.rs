//! A job with checkpoints, from Kafka into Kafka, under kill -9: at every fail point and at random moments, with another
//! parallelism in each life; on three brokers whose coordinators are killed, too; and with transactions that time out before
//! the next life can commit them.
#![cfg(feature = "failpoints")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levada_engine::{RECOVERY_FAIL_POINTS, driver, store};
use levada_kafka::sink;
use levada_testcontainers::crash::Report;
use levada_testcontainers::{Error, Kafka, wait_until};
use levada_tests::checkpointed::{
    Coordinators, Fed, Feed, Scene, Target, Told, Visible, killing, killing_up_to, life, parallelism,
    points_of,
};
use levada_tests::loop_length::loop_length;
use levada_tests::process::PATIENCE;
use levada_tests::topic::Topic;

const PROGRAM: &str = env!("CARGO_BIN_EXE_checkpointed-under-test");

/// What brokers allow unless they are told otherwise.
const LONG: Duration = Duration::from_secs(900);

/// Fail points that this job does not pass.
const ELSEWHERE: &[&str] = &[
    // Other templates.
    "idempotent::",
    "wal::",
    "marker_file::",
    // The store's own: the loop of the file sink passes them.
    "store::part::",
    "store::piece::",
    "store::retention::",
    "store::savepoint::",
    "store::heartbeat::",
];

/// Fail points that are passed only when transactions of a complete checkpoint are gone: in the loop of timeouts.
const ROLLING_BACK: &[&str] = &[
    "recovery::before_note",
    "recovery::after_note",
    "recovery::before_roll_back",
    "recovery::after_roll_back",
    "kafka::roll_back::",
];

/// Those of a start that are passed in the other loops, whatever is left behind.
const NOT_ROLLING_BACK: &[&str] = &[
    "recovery::before_inspect",
    "recovery::after_inspect",
    "recovery::before_fence",
    "recovery::after_fence",
    "recovery::before_resolved",
    "kafka::slot::",
    "kafka::begin::",
    "kafka::write::",
    "kafka::freeze::",
    "kafka::pre_commit::",
    "kafka::commit::",
    "kafka::end::",
    "kafka::abort::",
    "kafka::inspect::",
    "kafka::fence::",
];

/// Fail points around the decision about a transaction, for a loop that has not the time for all.
const DECISIVE: &[&str] = &[
    "kafka::pre_commit::described",
    "kafka::commit::before_end",
    "kafka::end::sent",
    "kafka::commit::after_end",
    "kafka::inspect::after",
    "kafka::fence::sent",
];

/// Up to here a loop is one that has not the time.
const SHORT: Duration = Duration::from_secs(60);

/// How long all brokers are there between two deaths of one.
const BETWEEN: Duration = Duration::from_secs(3);

/// How tasks come to grief in most lives: before a transaction is pre-committed, behind that, and when its checkpoint is
/// complete and not all of it is committed.
const GRIEF: &[(&str, &str)] = &[
    ("kafka::freeze::before_flush", "panic"),
    ("tpc::after_pre_commit", "panic"),
    ("tpc::before_commit", "panic"),
];

/// What one loop works on: a topic to read, one to write, and the judge.
struct Stage {
    scene: Scene,
    visible: Visible,
    coordinators: Coordinators,
}

impl Stage {
    fn at(brokers: &str, timeout: Duration) -> Self {
        let output = Topic::create(brokers, 4).name;
        Self {
            scene: Scene::at(brokers, PROGRAM, Target::Topic(output.clone(), timeout)),
            visible: Visible::of(brokers, &output),
            coordinators: Coordinators::of(brokers, &output),
        }
    }

    /// Prints what a loop did, lets a last life read to the end, and has Kafka's own consumer read everything.
    fn judge(&self, report: Result<Report, Error>, fed: &Fed, subtasks: u32, length: Duration) -> Report {
        let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
        println!("{report}");
        self.scene.drain_with(subtasks);
        let contents = self.visible.judge_all(fed).unwrap_or_else(|wrong| panic!("{wrong}"));
        let (visible, aborted) = (contents.committed.len(), contents.aborted().len());
        println!(
            "  {visible} records, each once, as the console consumer reads them; {aborted} were aborted"
        );
        assert_eq!(visible as u64, fed.values());
        assert!(u64::from(report.kills()) >= length.as_secs() / 3, "only {} kills", report.kills());
        report
    }
}

/// Returns a life that goes on after whatever befalls it but its own death.
fn restarting(scene: &Scene, parallelism: u32) -> Command {
    scene.command(&Told { restarts: true, ..scene.told(parallelism) })
}

/// Kills one coordinator of an open transaction after the other, and lets each come back. Returns how many.
fn kill_coordinators(kafka: &Kafka, coordinators: &Coordinators, is_over: &AtomicBool) -> u32 {
    let mut killed = 0;
    while !is_over.load(Ordering::Relaxed) {
        let Some(coordinator) = coordinators.of_an_open_transaction() else { continue };
        kafka.broker(coordinator).kill();
        kafka.broker(coordinator).restart().expect("it comes back");
        killed += 1;
        // Some lives with all three.
        let back = Instant::now();
        let has_passed = || back.elapsed() > BETWEEN || is_over.load(Ordering::Relaxed);
        wait_until(PATIENCE, "some lives", has_passed).expect("time passes");
    }
    killed
}

fn points(elsewhere: &[&str]) -> Vec<&'static str> {
    let lists = [store::FAIL_POINTS, RECOVERY_FAIL_POINTS, driver::FAIL_POINTS, sink::FAIL_POINTS];
    points_of(&lists, &[ELSEWHERE, elsewhere].concat())
}

/// [KSK-25] [KSK-11] [KSK-12] [KSK-17] [CHK-19] every step of checkpoint, pre-commit, commit and recovery, on one broker.
#[test]
#[ignore = "takes 45 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_commits_every_record_exactly_once() {
    let length = loop_length(45, 600);
    let kafka = Kafka::shared().expect("Kafka");
    let mut stage = Stage::at(kafka.bootstrap(), LONG);
    let (scene, visible) = (&stage.scene, &mut stage.visible);
    let (report, fed) = Feed::into(scene.topic()).beside(1000, || {
        killing_up_to(6, "kafka", &points(ROLLING_BACK))
            .lasting(length)
            .after_each(|_| visible.look())
            .run(|number| life(scene, number, GRIEF))
    });
    let report = stage.judge(report, &fed, 3, length);
    report.covered().expect("a kill at every point");
}

/// [KSK-25] [KSK-09] [KSK-11] [KSK-26] the same on three brokers, while coordinators of open transactions are killed and come
/// back.
#[test]
#[ignore = "takes 25 s or LEVADA_CRASH_SECONDS, and a start of three brokers; ./check runs it"]
fn killed_job_commits_every_record_while_coordinators_are_killed() {
    let length = loop_length(25, 400);
    let kafka = Kafka::builder().brokers(3).start().expect("Kafka");
    let mut stage = Stage::at(kafka.bootstrap(), LONG);
    let (scene, visible, coordinators) = (&stage.scene, &mut stage.visible, &stage.coordinators);
    let points = if length > SHORT { points(ROLLING_BACK) } else { DECISIVE.to_vec() };
    let is_over = AtomicBool::new(false);
    let ((report, killed), fed) = Feed::into(scene.topic()).beside(500, || {
        thread::scope(|scope| {
            let killer = scope.spawn(|| kill_coordinators(&kafka, coordinators, &is_over));
            let report = killing_up_to(6, "kafka-three", &points)
                .lasting(length)
                .after_each(|_| visible.look())
                .run(|number| restarting(scene, parallelism(number)));
            is_over.store(true, Ordering::Relaxed);
            (report, killer.join().expect("brokers come back"))
        })
    });
    println!("{killed} coordinators of open transactions were killed");
    assert!(killed > 0);
    let report = stage.judge(report, &fed, 3, length);
    report.covered().expect("a kill at every point");
}

/// [KSK-25] [KSK-13] transactions that have a second and a half: each life finds those of a complete checkpoint gone, and what they held
/// comes again.
#[test]
#[ignore = "takes 20 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn transactions_that_timed_out_are_rolled_back_and_replayed() {
    let length = loop_length(20, 200);
    let often = ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "100");
    let kafka = Kafka::builder().property(often.0, often.1).start().expect("Kafka");
    let mut stage = Stage::at(kafka.bootstrap(), Duration::from_millis(1500));
    let (scene, visible, coordinators) = (&stage.scene, &mut stage.visible, &stage.coordinators);
    let mut feed = Feed::into(scene.topic());
    // The first checkpoint could not be rolled back: there is nothing before it.
    feed.send(1000);
    scene.topic().flush();
    scene.drain_with(1);
    let (report, fed) = feed.beside(500, || {
        killing("kafka-timeout", &points_of(&[RECOVERY_FAIL_POINTS, sink::FAIL_POINTS], NOT_ROLLING_BACK))
            .share_of_points(0.9)
            .lasting(length)
            .after_each(|_| visible.look())
            .run(|number| {
                leave_uncommitted(scene, 1 + number % 3);
                coordinators.wait_until_none_is_open();
                // One transaction a checkpoint: of two, one may be committed and the other gone.
                restarting(scene, 1)
            })
    });
    let report = stage.judge(report, &fed, 1, length);
    report.covered().expect("a kill at every point");
}

/// Has a life die when a checkpoint is complete and nothing of it is committed.
fn leave_uncommitted(scene: &Scene, passing: u32) {
    let mut command = restarting(scene, 1);
    command.env("LEVADA_KILL_AT", format!("kafka::commit::before_end:{passing}"));
    let mut life = scene.start(command);
    assert!(life.ends_within(PATIENCE), "it does not commit:\n{}", life.log());
    assert!(life.log().contains("kafka::commit::before_end"), "it ended by itself:\n{}", life.log());
}

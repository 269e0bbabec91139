//! A job with checkpoints, from Kafka into Kafka, under kill -9: at every fail point and at random moments, with another
//! parallelism in each life; on three brokers whose coordinators are killed, too; and with transactions that time out before
//! the next life can commit them.
#![cfg(feature = "failpoints")]

use std::process::Command;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use levada_engine::{RECOVERY_FAIL_POINTS, driver, store};
use levada_kafka::sink;
use levada_testcontainers::crash::{CrashLoop, Report};
use levada_testcontainers::{Error, Kafka, wait_until};
use levada_tests::checkpointed::{
    Coordinators, Fed, Feed, Scene, Target, Told, Visible, killing, killing_up_to, parallelism, points_of,
    restarting_life,
};
use levada_tests::loop_length::loop_length;
use levada_tests::process::{PATIENCE, Process};
use levada_tests::topic::Topic;
use nix::sys::signal::Signal;

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

/// Fail points that are passed only where tasks come to grief, which they do in the loop of one broker.
const IN_GRIEF: &[&str] =
    &["store::entry::before_read_back", "tpc::before_abort", "tpc::after_abort", "kafka::abort::"];

/// Fail points around the decision about a transaction, for a loop that has not the time for all.
const DECISIVE: &[&str] = &["kafka::end::sent", "kafka::inspect::after", "kafka::fence::sent"];

/// Up to here a loop is one of the short form.
const SHORT: Duration = Duration::from_secs(60);

/// How often a life passes its fail point at most: the more often, the longer it lives.
fn most_passings(length: Duration) -> u32 {
    if length > SHORT { 6 } else { 4 }
}

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
        let scene = Scene::at(brokers, PROGRAM, Target::Topic(output.clone(), timeout));
        let visible = Visible::of(brokers, &scene.topic().name, &output);
        Self { scene, visible, coordinators: Coordinators::of(brokers, &output) }
    }

    /// Prints what a loop did, lets a last life read to the end, and has Kafka's own consumer read everything.
    fn judge(&self, report: Result<Report, Error>, fed: &Fed, subtasks: u32) -> Report {
        let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
        println!("{report}");
        self.scene.drain_with(subtasks);
        let contents = self.visible.judge_all(fed).unwrap_or_else(|wrong| panic!("{wrong}"));
        let (visible, aborted) = (contents.committed.len(), contents.aborted().len());
        println!(
            "  {visible} records, each once, as the console consumer reads them; {aborted} were aborted"
        );
        assert_eq!(visible as u64, fed.values());
        report.covered().expect("a kill at every point");
        report
    }
}

/// Returns a life that goes on after whatever befalls it but its own death.
fn restarting(scene: &Scene, parallelism: u32) -> Command {
    scene.command(&Told { restarts: true, ..scene.told(parallelism) })
}

/// Returns the broker that the loops of one broker share. It looks often for transactions whose time is over, which only those of one
/// loop have; and it keeps Kafka's own long session, as it is never killed and may be starved.
fn one_broker() -> &'static Kafka {
    static KAFKA: LazyLock<Kafka> = LazyLock::new(|| {
        let often = ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "100");
        let builder = Kafka::builder().property(often.0, often.1);
        let patient = builder.property("broker.session.timeout.ms", "9000");
        patient.property("broker.heartbeat.interval.ms", "2000").start().expect("Kafka")
    });
    &KAFKA
}

/// Kills coordinators, one after the other; each comes back beside the next life.
struct Deaths<'scope, 'env> {
    scope: &'scope thread::Scope<'scope, 'env>,
    kafka: &'env Kafka,
    coming_back: Option<thread::ScopedJoinHandle<'scope, ()>>,
    killed: u32,
}

impl Deaths<'_, '_> {
    /// Kills the coordinator of a transaction that is open, if the last one is back.
    fn kill(&mut self, coordinators: &Coordinators) {
        self.wait();
        let mut found = None;
        let is_found = || {
            found = coordinators.of_an_open_transaction();
            found.is_some()
        };
        wait_until(PATIENCE, "the coordinator of what is open", is_found).expect("there is one");
        let Some(coordinator) = found else { return };
        let kafka = self.kafka;
        kafka.broker(coordinator).kill();
        self.killed += 1;
        let restart = move || kafka.broker(coordinator).restart().expect("it comes back");
        self.coming_back = Some(self.scope.spawn(restart));
    }

    fn wait(&mut self) {
        if let Some(coming_back) = self.coming_back.take() {
            coming_back.join().expect("it has come back");
        }
    }
}

/// Lets a loop go on for so many lives in the short form, also on a machine that is busy; in the long form for its time.
fn going_on(crash_loop: CrashLoop<'_>, length: Duration, lives: u32) -> CrashLoop<'_> {
    match length > SHORT {
        true => crash_loop.lasting(length),
        false => crash_loop.lives(lives),
    }
}

fn points(elsewhere: &[&str]) -> Vec<&'static str> {
    let lists = [store::FAIL_POINTS, RECOVERY_FAIL_POINTS, driver::FAIL_POINTS, sink::FAIL_POINTS];
    points_of(&lists, &[ELSEWHERE, elsewhere].concat())
}

/// [KSK-25] [KSK-11] [KSK-12] [KSK-17] [CHK-19] every step of checkpoint, pre-commit, commit and recovery, on one broker.
#[test]
#[ignore = "takes 35 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_commits_every_record_exactly_once() {
    let length = loop_length(35, 2700);
    let mut stage = Stage::at(one_broker().bootstrap(), LONG);
    let (scene, visible) = (&stage.scene, &mut stage.visible);
    let (report, fed) = Feed::into(scene.topic()).beside(500, || {
        going_on(killing_up_to(most_passings(length), "kafka", &points(ROLLING_BACK)), length, 48)
            .patience(Duration::from_secs(8))
            .after_each(|_| visible.look())
            .run(|number| restarting_life(scene, number, GRIEF))
    });
    let kills = stage.judge(report, &fed, 3).kills();
    assert!(length <= SHORT || u64::from(kills) >= length.as_secs() / 3, "only {kills} kills");
}

/// [KSK-25] [KSK-09] [KSK-11] [KSK-26] on three brokers: before every second life the coordinator of a transaction that
/// waits for its commit is killed, and comes back beside it.
#[test]
#[ignore = "takes 15 s or LEVADA_CRASH_SECONDS, and a start of three brokers; ./check runs it"]
fn killed_job_commits_every_record_though_coordinators_die() {
    let length = loop_length(15, 400);
    let kafka = Kafka::builder().brokers(3).start().expect("Kafka");
    let mut stage = Stage::at(kafka.bootstrap(), LONG);
    let (scene, visible, coordinators) = (&stage.scene, &mut stage.visible, &stage.coordinators);
    let points = match length > SHORT {
        true => points(&[ROLLING_BACK, IN_GRIEF].concat()),
        false => DECISIVE.to_vec(),
    };
    let ((report, killed), fed) = Feed::into(scene.topic()).beside(500, || {
        thread::scope(|scope| {
            let mut deaths = Deaths { scope, kafka: &kafka, coming_back: None, killed: 0 };
            let report = going_on(killing_up_to(6, "kafka-three", &points), length, 5)
                .patience(Duration::from_secs(15))
                .after_each(|_| visible.look())
                .run(|number| {
                    if number % 2 == 1 {
                        leave_open(scene, parallelism(number), coordinators);
                        deaths.kill(coordinators);
                    }
                    restarting(scene, parallelism(number))
                });
            deaths.wait();
            (report, deaths.killed)
        })
    });
    println!("{killed} coordinators of open transactions were killed");
    stage.judge(report, &fed, 3);
}

/// [KSK-25] [KSK-13] transactions that have a second and a half: each life finds those of a complete checkpoint gone, and what they held
/// comes again.
#[test]
#[ignore = "takes 20 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn transactions_that_timed_out_are_rolled_back_and_replayed() {
    let length = loop_length(20, 200);
    let mut stage = Stage::at(one_broker().bootstrap(), Duration::from_millis(1500));
    let (scene, visible, coordinators) = (&stage.scene, &mut stage.visible, &stage.coordinators);
    let mut feed = Feed::into(scene.topic());
    // The first checkpoint could not be rolled back: there is nothing before it.
    feed.send(1000);
    scene.topic().flush();
    scene.drain_with(1);
    let (report, fed) = feed.beside(500, || {
        let points = points_of(&[RECOVERY_FAIL_POINTS, sink::FAIL_POINTS], NOT_ROLLING_BACK);
        going_on(killing("kafka-timeout", &points), length, 7)
            .share_of_points(1.0)
            .after_each(|_| visible.look())
            .run(|number| {
                leave_uncommitted(scene, 1, 1 + number % 3);
                coordinators.wait_until_none_is_open();
                // One transaction a checkpoint: of two, one may be committed and the other gone.
                restarting(scene, 1)
            })
    });
    stage.judge(report, &fed, 1);
}

/// Has a life die when a checkpoint is complete and nothing of it is committed.
fn leave_uncommitted(scene: &Scene, parallelism: u32, passing: u32) {
    let mut command = restarting(scene, parallelism);
    command.env("LEVADA_KILL_AT", format!("kafka::commit::before_end:{passing}"));
    let mut life = scene.start(command);
    assert!(life.ends_within(PATIENCE), "it does not commit:\n{}", life.log());
    assert!(life.log().contains("kafka::commit::before_end"), "it ended by itself:\n{}", life.log());
}

/// Has lives die so until a transaction is open. What a life commits first may be committed already: it was left by one that died
/// between EndTxn and its answer, one of each of its writers. So the next life passes by one more.
fn leave_open(scene: &Scene, parallelism: u32, coordinators: &Coordinators) {
    for passing in 2..=10 {
        leave_uncommitted(scene, parallelism, passing);
        let mut open = None;
        let is_told = || {
            open = coordinators.open();
            open.is_some()
        };
        wait_until(PATIENCE, "the brokers' answer", is_told).expect("brokers that answer");
        if open.is_some_and(|open| !open.is_empty()) {
            return;
        }
    }
    panic!("no life leaves a transaction open");
}

/// Where a holder is stopped: with a checkpoint that is acknowledged and not in the log, in the middle of a pre-commit, between
/// EndTxn and its answer, and while it writes.
const STOPS: &[&str] =
    &["store::entry::before", "kafka::freeze::after_marker", "kafka::end::sent", "kafka::write::after_batch"];

/// When a holder wakes that was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wakes {
    /// Another process has the lease, and has not fenced yet.
    BeforeTheFence,
    /// Another process has fenced, and publishes.
    BehindTheFence,
}

/// The takeovers, by number of the stop: half of them in the short form.
const TAKEOVERS: &[(usize, Wakes)] = &[
    (0, Wakes::BehindTheFence),
    (2, Wakes::BeforeTheFence),
    (1, Wakes::BehindTheFence),
    (3, Wakes::BeforeTheFence),
    (2, Wakes::BehindTheFence),
    (0, Wakes::BeforeTheFence),
    (3, Wakes::BehindTheFence),
    (1, Wakes::BeforeTheFence),
];

/// [KSK-16] [KSK-25] one holder after the other is stopped (SIGSTOP) and taken over, and wakes before its successor has fenced
/// or behind that: each ends itself, and every record is there once.
#[test]
#[ignore = "takes 15 s; ./check runs it"]
fn holder_that_wakes_after_a_takeover_publishes_nothing_and_ends_itself() {
    let mut stage = Stage::at(one_broker().bootstrap(), LONG);
    let count = if loop_length(0, 1).is_zero() { 4 } else { TAKEOVERS.len() };
    let (scene, visible) = (&stage.scene, &mut stage.visible);
    let ((), fed) = Feed::into(scene.topic()).beside(500, || {
        for ((stop, wakes), passing) in TAKEOVERS.iter().take(count).zip((3..=4).cycle()) {
            take_over(scene, visible, &format!("{}:{passing}", STOPS[*stop]), *wakes);
        }
    });
    scene.drain();
    let contents = stage.visible.judge_all(&fed).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(contents.committed.len() as u64, fed.values());
}

fn take_over(scene: &Scene, visible: &mut Visible, place: &str, wakes: Wakes) {
    let holder = scene.stopped(2, place);
    let mut command = scene.command(&Told { takes_over: true, ..scene.told(3) });
    let mut taker = match wakes {
        Wakes::BeforeTheFence => {
            command.env("LEVADA_STOP_AT", "kafka::fence::before_list:1");
            let mut taker = scene.start(command);
            taker.wait_until_stopped();
            wake(holder, place);
            taker.signal(Signal::SIGCONT);
            wait_for_more(visible, &mut taker);
            taker
        }
        Wakes::BehindTheFence => {
            let mut taker = scene.start(command);
            wait_for_more(visible, &mut taker);
            wake(holder, place);
            taker
        }
    };
    taker.signal(Signal::SIGTERM);
    assert!(taker.ends_within(PATIENCE), "it does not stop:\n{}", taker.log());
    taker.finish().expect_code(0);
}

/// Checks that a process that was taken over ends itself.
fn wake(mut holder: Process, place: &str) {
    holder.signal(Signal::SIGCONT);
    assert!(holder.ends_within(PATIENCE), "stopped at {place}, it goes on:\n{}", holder.log());
    let ended = holder.finish();
    assert_eq!(ended.code, Some(5), "stopped at {place}, it was taken over:\n{}", ended.log);
}

/// Waits until more is visible than was at the last look.
fn wait_for_more(visible: &mut Visible, writer: &mut Process) {
    let before = visible.records();
    let is_more = || {
        visible.look().unwrap_or_else(|wrong| panic!("{wrong}"));
        visible.records() > before || writer.has_ended()
    };
    wait_until(PATIENCE, "more visible records", is_more).expect("the job goes on");
    assert!(!writer.has_ended(), "it ended:\n{}", writer.log());
}

/// Kills a program that goes wrong, and returns what the judge finds after one of its lives.
fn complaint(target: fn(String) -> Target, point: &str) -> String {
    let kafka = Kafka::shared().expect("Kafka");
    let output = Topic::create(kafka.bootstrap(), 4).name;
    let scene = Scene::new(PROGRAM, target(output.clone()));
    let mut visible = Visible::of(kafka.bootstrap(), &scene.topic().name, &output);
    let (result, _) = Feed::into(scene.topic()).beside(2000, || {
        CrashLoop::new("wrong")
            // Not at the first: each life is to come a bit further than the one before.
            .point(point, 2..=3)
            .share_of_points(1.0)
            .lives(10)
            .after_each(|_| visible.look())
            .run(|_| scene.command(&scene.told(1)))
    });
    match result {
        Err(Error::Complaint { source, .. }) => source.to_string(),
        other => panic!("a complaint of the judge was expected: {other:?}"),
    }
}

/// The counter-test: the loop finds out a sink that initialises its ids at a start before it asks what waits under them.
#[test]
fn sink_that_initialises_its_ids_first_loses_records() {
    let complaint = complaint(Target::TopicInitialisedFirst, "kafka::commit::before_end");
    assert!(complaint.contains("is lost or late"), "{complaint}");
}

/// The counter-test: the loop finds out a sink whose transactions share an epoch: the handle of one that is committed
/// publishes half of the next one.
#[test]
fn sink_whose_transactions_share_an_epoch_doubles_records() {
    let complaint = complaint(Target::TopicOfOneEpoch, "tpc::after_commit");
    assert!(complaint.contains("is doubled"), "{complaint}");
}

//! A job with checkpoints that calls another system and writes the answers into files, under kill -9 with calls in flight: at
//! every fail point and at random moments, with other subtasks and another capacity in each life.
#![cfg(feature = "failpoints")]

use std::time::Duration;

use levada_core::async_io::Order;
use levada_engine::{RECOVERY_FAIL_POINTS, driver, store};
use levada_testcontainers::Error;
use levada_testcontainers::crash::{CrashLoop, Outcome, Report, seed};
use levada_tests::calls::{Answers, Scene, called_again};
use levada_tests::checkpointed::{killing_up_to, points_of};
use levada_tests::loop_length::loop_length;

const PROGRAM: &str = env!("CARGO_BIN_EXE_calls-under-test");

/// Fail points that this job does not pass.
const ELSEWHERE: &[&str] = &[
    // Other templates: see the loop of the write-ahead sink.
    "idempotent::",
    "wal::",
    "marker_file::",
    // Pieces are those of its segments.
    "store::piece::",
    "store::retention::between_pieces",
    // State of more than 8 MiB: the engine's own tests.
    "store::part::between_chunks",
    // Nobody asks for a savepoint here.
    "store::savepoint::",
    // No file goes away that waits for its commit, so nothing is rolled back.
    "recovery::before_note",
    "recovery::after_note",
    "recovery::before_roll_back",
    "recovery::after_roll_back",
];

/// How tasks come to grief in most lives: before a checkpoint is complete, and when it is and not all of it is published. The job
/// is restarted then, with what its calls in flight have left.
const GRIEF: &[(&str, &str)] =
    &[("files::before_sync", "return"), ("tpc::after_pre_commit", "panic"), ("tpc::before_commit", "panic")];

/// How often calls were in flight when a life ended, as the next one tells.
#[derive(Debug, Default)]
struct InFlight {
    inputs: u64,
    lives: u32,
}

impl InFlight {
    fn note(&mut self, inputs: u64) {
        self.inputs += inputs;
        self.lives += u32::from(inputs > 0);
    }
}

/// [ASY-08] [ASY-02] [CHK-10] [CHK-19] in half of the time, with answers that leave in the order of the inputs.
#[test]
#[ignore = "takes 15 s or half of LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_answers_every_input_exactly_once_in_order() {
    kill_and_judge("calls-ordered", Order::Ordered);
}

/// [ASY-08] [ASY-03] [CHK-10] [CHK-19] in the other half, with answers that leave as they come.
#[test]
#[ignore = "takes 15 s or half of LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_job_answers_every_input_exactly_once_in_any_order() {
    kill_and_judge("calls-unordered", Order::Unordered);
}

fn kill_and_judge(name: &str, order: Order) {
    let length = loop_length(30, 300) / 2;
    let seed = seed().expect("a seed");
    let scene = Scene::new(PROGRAM, order, seed);
    let (mut answers, mut in_flight) = (Answers::of(scene.home()), InFlight::default());
    let files = levada_files::sink::FAIL_POINTS;
    let points =
        points_of(&[store::FAIL_POINTS, RECOVERY_FAIL_POINTS, driver::FAIL_POINTS, files], ELSEWHERE);

    let mut after_each = |life: &Outcome| {
        in_flight.note(called_again(&life.log));
        answers.look()
    };
    // Lives are short: nothing but the program has to start.
    let at_points = killing_up_to(6, name, &points)
        .patience(Duration::from_secs(3))
        .seed(seed)
        .lasting(length.mul_f64(0.8))
        .after_each(&mut after_each)
        .run(|number| scene.disturbed_life(number, GRIEF));
    let at_points = finished(at_points);
    let at_random = CrashLoop::new(format!("{name}-at-random"))
        .moments(Duration::from_millis(20)..=Duration::from_millis(600))
        .seed(seed)
        .lasting(length.mul_f64(0.2))
        .after_each(&mut after_each)
        .run(|number| scene.disturbed_life(number, GRIEF));
    let kills = at_points.kills() + finished(at_random).kills();
    in_flight.note(scene.end());
    let InFlight { inputs, lives } = in_flight;
    println!(
        "  {inputs} inputs of calls in flight, or in line behind them, were called again in {lives} lives"
    );
    let answers = Answers::judge_all(scene.home()).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("  {} answers in {} files, each once", answers.count(), answers.files());
    if order == Order::Ordered {
        Answers::judge_order(scene.home()).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    let left = Answers::waiting(scene.home()).expect("the folder");
    assert!(left.is_empty(), "what killed lives had begun is removed: {left:?}");
    at_points.covered().expect("a kill at every point");
    assert!(u64::from(kills) >= length.as_secs(), "only {kills} kills");
    assert!(lives > kills / 2, "calls were in flight only at {lives} of {kills} kills");
}

fn finished(report: Result<Report, Error>) -> Report {
    let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
    println!("{report}");
    report
}

/// The counter-test: the judge finds out checkpoints that do not hold the inputs of calls in flight.
#[test]
fn checkpoints_without_the_inputs_of_calls_in_flight_lose_them() {
    let scene = Scene::new(PROGRAM, Order::Ordered, 1);
    let killed =
        CrashLoop::new("wrong").point("store::entry::after", 2..=3).share_of_points(1.0).lives(2).run(
            |number| {
                let mut command = scene.life(number);
                command.env("FAILPOINTS", "calls::without_inputs=return");
                command
            },
        );
    killed.unwrap_or_else(|error| panic!("{}", error.chain())).covered().expect("kills behind a checkpoint");
    assert_eq!(scene.end(), 0, "nothing is called again");
    let complaint = Answers::judge_all(scene.home()).expect_err("answers are missing").to_string();
    assert!(complaint.contains("is lost"), "{complaint}");
}

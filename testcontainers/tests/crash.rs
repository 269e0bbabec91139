//! The crash-loop helper, held against a child that counts in files: protected, it survives; unprotected, the loop finds
//! it out.
#![cfg(feature = "failpoints")]

mod observe;

use std::cell::RefCell;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use levada_testcontainers::crash::{CrashLoop, End, Outcome, Plan, Verdict, obey};
use levada_testcontainers::{Error, wait_until};
use observe::{child_test, descendants_of, is_alive};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// Where the child keeps its files, and whether it is protected.
const FOLDER: &str = "COUNTER_FOLDER";
const PROTECTED: &str = "COUNTER_PROTECTED";

const POINTS: &[&str] = &["count::before", "count::between", "count::after"];
const OPEN: &str = "count::open";

/// How long a line of the counter is.
const LINE: usize = 9;

/// Not a test: the child of the loops below. It writes 0, 1, 2, … into `rows`, and after each into `next` which one
/// comes next: a commit of two steps. What it does when it finds more rows than `next` says is its protection.
#[test]
#[ignore = "run as a child process by the other tests"]
fn counts() {
    let _obedience = obey().unwrap();
    let folder = env::var(FOLDER).unwrap();
    let (rows, next) = (Path::new(&folder).join("rows"), Path::new(&folder).join("next"));
    let mut number: u64 = fs::read_to_string(&next).map_or(0, |text| text.parse().unwrap());
    let mut file = OpenOptions::new().create(true).append(true).open(&rows).unwrap();
    if env::var(PROTECTED).is_ok() {
        file.set_len(number * LINE as u64).unwrap();
    }
    fail::fail_point!("count::open");
    loop {
        fail::fail_point!("count::before");
        file.write_all(format!("{number:08}\n").as_bytes()).unwrap();
        fail::fail_point!("count::between");
        number += 1;
        let fresh = next.with_extension("fresh");
        fs::write(&fresh, number.to_string()).unwrap();
        fs::rename(&fresh, &next).unwrap();
        fail::fail_point!("count::after");
    }
}

struct Counter {
    folder: TempDir,
    is_protected: bool,
}

impl Counter {
    fn new(is_protected: bool) -> Counter {
        Counter { folder: tempfile::tempdir().unwrap(), is_protected }
    }

    fn command(&self) -> Command {
        let mut command = child_test("counts");
        command.arg("--nocapture").env(FOLDER, self.folder.path());
        if self.is_protected {
            command.env(PROTECTED, "1");
        }
        command
    }

    /// The oracle: the rows are 0, 1, 2, …, as many as were committed, and at most one more.
    fn look(&self) -> Verdict {
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        for (expected, row) in read("rows").lines().enumerate() {
            if row.parse::<usize>()? != expected {
                return Err(format!("row {expected} is {row}").into());
            }
        }
        let (rows, next) = (read("rows").len() / LINE, read("next").parse().unwrap_or(0));
        match rows == next || rows == next + 1 {
            true => Ok(()),
            false => Err(format!("{rows} rows, of which {next} are committed").into()),
        }
    }
}

/// A loop of short lives.
fn short(name: &str) -> CrashLoop<'_> {
    CrashLoop::new(name)
        .points(POINTS)
        .moments(Duration::from_millis(1)..=Duration::from_millis(100))
        .patience(PATIENCE)
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// [TST-10]
#[test]
fn a_protected_child_survives_and_every_point_has_its_kill() {
    let counter = Counter::new(true);
    let report = short("protected")
        .point(OPEN, 1..=1)
        .lives(30)
        .after_each(|_| counter.look())
        .run(|_| counter.command())
        .unwrap();
    println!("{report}");
    report.covered().unwrap();
    assert_eq!((report.kills(), report.missed(), report.finished()), (30, 0, 0));
    assert!(report.at_random() > 0);
    let rows = fs::metadata(counter.folder.path().join("rows")).unwrap().len();
    assert!(rows > 30 * LINE as u64, "the child got on between the kills");
}

/// [TST-10] The counter-test: what the loop is for. The complaint names the life, its plan and the seed.
#[test]
fn an_unprotected_child_is_found_out() {
    let counter = Counter::new(false);
    let error = short("unprotected")
        .seed(5)
        .lives(30)
        .after_each(|_| counter.look())
        .run(|_| counter.command())
        .unwrap_err();
    let Error::Complaint { source, .. } = &error else { panic!("{error}") };
    assert!(source.to_string().starts_with("row "), "{}", error.chain());
    let said = error.to_string();
    assert!(said.contains("of unprotected, a") && said.ends_with("LEVADA_SEED=5"), "{said}");
}

/// [TST-10] A kill between the two steps alone is enough, and one anywhere else is not.
#[test]
fn the_kill_is_exactly_at_the_point() {
    for (point, is_found_out) in [(POINTS[0], false), (POINTS[1], true), (POINTS[2], false)] {
        let counter = Counter::new(false);
        let result = CrashLoop::new(point)
            .point(point, 1..=20)
            .share_of_points(1.0)
            .lives(5)
            .after_each(|_| counter.look())
            .run(|_| counter.command());
        assert_eq!(result.is_err(), is_found_out, "{point}: {result:?}");
    }
}

/// [TST-10]
#[test]
fn the_same_seed_gives_the_same_lives() {
    let lives = |seed| {
        let counter = Counter::new(true);
        let lives = RefCell::new(Vec::<(Plan, End)>::new());
        short("replayed")
            .seed(seed)
            .lives(12)
            .after_each(|outcome| {
                lives.borrow_mut().push((outcome.plan.clone(), outcome.end));
                Ok(())
            })
            .run(|_| counter.command())
            .unwrap();
        lives.into_inner()
    };
    assert_eq!(lives(1), lives(1));
    assert_ne!(lives(1), lives(2));
}

/// [TST-10]
#[test]
fn a_child_that_ends_by_itself_fails_the_loop_with_its_log() {
    let error = CrashLoop::new("talkers").run(|_| shell("echo out; echo oh no >&2; exit 3")).unwrap_err();
    assert!(matches!(&error, Error::EndedByItself { status, .. } if status.code() == Some(3)), "{error}");
    let said = error.to_string();
    assert!(said.contains("life 1 of talkers") && said.contains("out\noh no"), "{said}");
}

/// [TST-10] Among them a SIGKILL that nobody of us sent, such as the system sends when memory is short.
#[test]
fn a_child_that_dies_of_another_signal_fails_the_loop() {
    for signal in ["SEGV", "KILL"] {
        let error = CrashLoop::new("dying")
            .points(["nowhere"])
            .run(|_| shell(&format!("kill -{signal} $$")))
            .unwrap_err();
        assert!(matches!(error, Error::EndedByItself { .. }), "{error}");
    }
}

/// [TST-10]
#[test]
fn a_child_that_may_finish_must_finish_well() {
    let finishing = || CrashLoop::new("finishing").may_finish().lives(3);
    let report = finishing().run(|_| shell("exit 0")).unwrap();
    assert_eq!((report.finished(), report.kills()), (3, 0));
    let error = finishing().run(|_| shell("exit 1")).unwrap_err();
    assert!(matches!(error, Error::EndedByItself { .. }), "{error}");
}

/// [TST-10] Be it that the child does not come there, be it that the name is wrong.
#[test]
fn a_point_that_nobody_passes_is_named() {
    let counter = Counter::new(true);
    let report = short("misspelt")
        .points(["count::betwen"])
        .patience(Duration::from_millis(300))
        .lives(6)
        .run(|_| counter.command())
        .unwrap();
    println!("{report}");
    assert!(report.missed() >= 2, "it is tried again before it is given up");
    let error = report.covered().unwrap_err().to_string();
    assert!(error.contains("count::betwen"), "{error}");
}

/// [TST-10] A point that needs something to happen is reached by the action beside it.
#[test]
fn an_action_in_the_middle_brings_the_child_to_its_point() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let lives = RefCell::new(Vec::<Outcome>::new());
    let report = CrashLoop::new("asked")
        .point("asked::begin", 1..=1)
        .in_the_middle("asked::answer", |life| {
            life.wait_for_log("waiting", PATIENCE)?;
            assert!(!life.has_ended());
            fs::write(&asked, "")?;
            life.wait_for_end(PATIENCE)?;
            Ok(())
        })
        .moments(Duration::from_millis(1)..=Duration::from_millis(50))
        .lives(8)
        .after_each(|outcome| {
            lives.borrow_mut().push(outcome.clone());
            fs::remove_file(&asked).ok();
            Ok(())
        })
        .run(|_| {
            let mut command = child_test("answers");
            command.arg("--nocapture").env("ASKED", &asked);
            command
        })
        .unwrap();
    report.covered().unwrap();
    let lives = lives.into_inner();
    let at_answer: Vec<u32> = lives
        .iter()
        .filter(|life| life.plan.point() == Some("asked::answer"))
        .map(|life| life.number)
        .collect();
    assert_eq!(at_answer, [5], "once, when half of the lives are over");
}

/// Not a test: waits for a file and passes a fail point then.
#[test]
#[ignore = "run as a child process by the other tests"]
fn answers() {
    let _obedience = obey().unwrap();
    let asked = env::var("ASKED").unwrap();
    fail::fail_point!("asked::begin");
    println!("waiting");
    wait_until(Duration::from_secs(600), "a question", || Path::new(&asked).exists()).unwrap();
    fail::fail_point!("asked::answer");
}

/// [TST-10]
#[test]
fn a_place_that_cannot_be_read_is_refused() {
    let mut command = child_test("counts");
    let output = command.env("LEVADA_KILL_AT", "count::before").output().unwrap();
    assert!(!output.status.success());
    let said = observe::printed(&output);
    assert!(said.contains("LEVADA_KILL_AT") && said.contains("NAME:COUNT"), "{said}");
}

/// Not a test: a loop whose oracle panics after the second life.
#[test]
#[ignore = "run as a child process by the other tests"]
fn loops_until_the_oracle_panics() {
    CrashLoop::new("doomed")
        .moments(Duration::from_millis(100)..=Duration::from_millis(100))
        .after_each(|outcome| {
            assert!(outcome.number < 2, "the oracle has seen enough");
            Ok(())
        })
        .run(|_| shell("echo words of the child; exec sleep 600"))
        .unwrap();
}

/// [TST-10] An oracle may use assertions: the log of the life in question is shown, with what replays it.
#[test]
fn an_oracle_that_panics_shows_the_life() {
    let mut command = child_test("loops_until_the_oracle_panics");
    let output = command.env("LEVADA_SEED", "11").output().unwrap();
    assert!(!output.status.success());
    let said = observe::printed(&output);
    for text in [
        "crash loop doomed: LEVADA_SEED=11",
        "the log of life 2 of doomed, after 100ms, LEVADA_SEED=11 ----\nwords of the child",
        "the oracle has seen enough",
    ] {
        assert!(said.contains(text), "no {text:?} in:\n{said}");
    }
}

/// [TST-10]
#[test]
fn a_seed_that_is_no_number_is_refused() {
    let mut command = child_test("loops_until_the_oracle_panics");
    let said = observe::printed(&command.env("LEVADA_SEED", "eleven").output().unwrap());
    assert!(said.contains("LEVADA_SEED") && !said.contains("words of the child"), "{said}");
}

/// Not a test: a loop whose child sleeps beside one of its own; a test below kills it.
#[test]
#[ignore = "run as a child process by the other tests"]
fn loops_without_end() {
    let hour = Duration::from_secs(3600);
    CrashLoop::new("endless")
        .lasting(hour)
        .moments(hour..=hour)
        .run(|_| shell("setsid sleep 3600 & exec sleep 3600"))
        .unwrap();
}

/// [TST-10] [TST-05] Neither does what a child has started: nobody but the mark in its environment tells whose it is.
#[test]
fn no_child_outlives_a_loop_that_is_killed() {
    let mut parent =
        child_test("loops_without_end").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let sleepers = || {
        let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut sleepers = descendants_of(parent.id().cast_signed());
        sleepers.retain(|pid| name(pid).trim() == "sleep");
        sleepers
    };
    wait_until(PATIENCE, "the child of the loop and its own", || sleepers().len() == 2).unwrap();
    let sleepers = sleepers();
    // The folder is the loop's, and the child's log is in it.
    let log = fs::read_link(format!("/proc/{}/fd/1", sleepers[0])).unwrap();
    assert!(log.exists());
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until(PATIENCE, "the end of both", || !sleepers.iter().any(|pid| is_alive(*pid))).unwrap();
    wait_until(PATIENCE, "the end of its log", || !log.exists()).unwrap();
}

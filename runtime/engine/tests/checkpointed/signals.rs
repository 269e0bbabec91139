//! [CHK-13] A process that is told to end.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use levada_core::batch::Coordinates;
use levada_core::{CheckpointId, ErrorClass, SinkError, SplitId};
use levada_engine::store::Store;
use levada_engine::{JobError, JobExit, JobState, STOP_DEADLINE, run_until_signal};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scene::Scene;

const FOLDER: &str = "LEVADA_SIGNALLED_STORE";
/// The deadline in milliseconds. With one, the sink hangs in its commits.
const DEADLINE: &str = "LEVADA_SIGNALLED_DEADLINE";

/// Runs a job until it is told to end, and tells what it has committed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in the child process of the next tests"]
async fn child() {
    let Ok(folder) = env::var(FOLDER) else { return };
    let deadline = env::var(DEADLINE).ok().map(|ms| Duration::from_millis(ms.parse().unwrap()));
    let scene = Scene::over(Store::open(&folder).await.unwrap());
    scene.target.lock().hangs = deadline.is_some();
    let job = scene.start(scene.job(2));
    let mut state = job.state();
    state.wait_for(|state| matches!(state, JobState::Running { .. })).await.unwrap();
    let ended = tokio::spawn(run_until_signal(job, deadline.unwrap_or(STOP_DEADLINE)));
    scene.gate.reach(300, 2).await;
    println!("\nready");
    let outcome = ended.await.unwrap();
    println!("\ncommitted {}", scene.target.visible().len());
    std::process::exit(i32::from(JobExit::of(&outcome) as u8));
}

struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(folder: &Path, deadline: Option<Duration>) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "signals::child", "--ignored", "--nocapture"]).env(FOLDER, folder);
        if let Some(deadline) = deadline {
            command.env(DEADLINE, deadline.as_millis().to_string());
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut process = Self { child, lines };
        process.wait_for("ready");
        process
    }

    /// Reads on to a line with this beginning.
    fn wait_for(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(beginning) {
            line.clear();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "the child ended before it said {beginning:?}"
            );
        }
        line.trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

/// [CHK-13] The first signal: a last checkpoint, and everything read is committed.
#[tokio::test]
async fn a_signal_ends_the_job_with_a_last_checkpoint() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::start(folder.path(), None);
        process.signal(signal);
        assert_eq!(process.wait_for("committed"), "committed 300");
        assert_eq!(process.exit_code(), Some(JobExit::Done as i32));
        let store = Store::open_to_read(folder.path().to_str().unwrap()).unwrap();
        let log = store.latest().await.unwrap().log;
        let newest = log.checkpoints().next_back().map(|(_, manifest)| manifest.id);
        assert!(newest.is_some() && log.newest_resolved() == newest);
    }
}

/// [CHK-13] The side effects hang: at the deadline the process ends all the same, and says so.
#[tokio::test]
async fn a_deadline_bounds_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path(), Some(Duration::from_millis(200)));
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait_for("committed"), "committed 0");
    assert_eq!(process.exit_code(), Some(JobExit::Interrupted as i32));
}

/// [CHK-13] The second signal does not wait for the deadline.
#[tokio::test]
async fn a_second_signal_ends_the_job_now() {
    let folder = tempfile::tempdir().unwrap();
    let deadline = Duration::from_secs(600);
    let begun = Instant::now();
    let mut process = Process::start(folder.path(), Some(deadline));
    process.signal(Signal::SIGTERM);
    process.wait_for("hanging");
    process.signal(Signal::SIGINT);
    assert_eq!(process.wait_for("committed"), "committed 0");
    assert_eq!(process.exit_code(), Some(JobExit::Interrupted as i32));
    assert!(begun.elapsed() < deadline);
}

/// [CHK-13] Scripts rely on the numbers.
#[test]
fn every_way_to_end_has_its_exit_code() {
    let coordinates = Coordinates { split: SplitId::new("flights", 0), offset: 7 };
    let sink = |class| {
        let cause = SinkError::new(class, "no");
        JobError::Sink { uid: "table".to_owned(), subtask: 0, cause }
    };
    let unknown = JobError::UnknownState { checkpoint: CheckpointId::new(1, 1), uid: "gone".to_owned() };
    let ends = [
        (JobError::Panicked { subtask: 0 }, 1),
        (sink(ErrorClass::Fatal), 1),
        (unknown, 3),
        (JobError::Refused { coordinates, reason: "no".into() }, 4),
        (sink(ErrorClass::Fenced), 5),
        (JobError::StopDeadline(STOP_DEADLINE), 7),
        (JobError::Cancelled, 7),
    ];
    for (error, code) in ends {
        let text = format!("{error:?}");
        assert_eq!(JobExit::of(&Err(error)) as u8, code, "{text}");
    }
}

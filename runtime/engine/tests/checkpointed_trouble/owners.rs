//! [CHK-15] Two processes and one store: the first is stopped and goes on behind the back of the second.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use levada_core::template::{TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, ErrorClass, SinkError};
use levada_engine::driver::LossPolicy;
use levada_engine::store::{Store, StoreError};
use levada_engine::{CheckpointedJob, Job, JobError, JobExit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::scene::{Scene, all, options, up_to};

const FOLDER: &str = "LEVADA_OWNED_FOLDER";

/// Writes numbers into files: `pending/NAME` until the commit, `done/NAME` after it. It fences nobody: only the store keeps an old
/// owner from publishing.
#[derive(Debug)]
struct Files {
    folder: PathBuf,
    numbers: String,
}

fn failed(cause: std::io::Error) -> SinkError {
    SinkError::new(ErrorClass::Fatal, cause.to_string())
}

impl TwoPhaseCommitSink<u64> for Files {
    type Handle = String;

    async fn open(&mut self, _: levada_core::SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<String, SinkError> {
        self.numbers.clear();
        Ok(name.to_string())
    }

    async fn write(&mut self, _: &mut String, batch: Batch<u64>, _: &WriteContext) -> Result<(), SinkError> {
        self.numbers.extend(batch.records().iter().map(|record| format!("{}\n", record.item)));
        Ok(())
    }

    async fn pre_commit(&mut self, handle: &mut String) -> Result<(), SinkError> {
        fs::write(self.folder.join("pending").join(handle), &self.numbers).map_err(failed)
    }

    async fn commit(&mut self, handle: &String) -> Result<(), SinkError> {
        let done = self.folder.join("done").join(handle);
        match done.exists() {
            true => Ok(()),
            false => fs::rename(self.folder.join("pending").join(handle), done).map_err(failed),
        }
    }

    async fn abort(&mut self, handle: &String) -> Result<(), SinkError> {
        fs::remove_file(self.folder.join("pending").join(handle)).ok();
        Ok(())
    }
}

fn visible(folder: &Path) -> Vec<u64> {
    let files = fs::read_dir(folder.join("done")).unwrap().map(|file| file.unwrap().path());
    let text: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut numbers: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

async fn scene_of(folder: &Path) -> Scene {
    Scene::over(Store::open(folder.join("store").to_str().unwrap()).await.unwrap())
}

fn job(scene: &Scene, folder: &Path) -> CheckpointedJob {
    let (source, folder) = (scene.source(), folder.to_owned());
    Job::new("count").parallelism(2).source_function("numbers", source).two_phase_sink(
        "files",
        options(LossPolicy::Fail),
        move |_| Files { folder: folder.clone(), numbers: String::new() },
    )
}

/// Publishes 300 numbers, reads up to 600, and waits; then takes a checkpoint and tells how it ended.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in the child process of the next test"]
async fn first_owner() {
    let Ok(folder) = env::var(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let scene = scene_of(&folder).await;
    let mut job = scene.start(job(&scene, &folder));
    scene.resolve(&job, 300, 2).await;
    scene.reach(&job, 600, 2).await;
    println!("\nready");
    // Goes on when the other process lets it.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    println!("\ntriggered {}", job.trigger_checkpoint().await.is_ok());
    let outcome = job.wait().await;
    std::process::exit(i32::from(JobExit::of(&outcome) as u8));
}

struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "owners::first_owner", "--ignored", "--nocapture"]).env(FOLDER, folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn wait_for(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it ended before {beginning:?}");
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    fn pause(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// [CHK-15] The second names the first and refuses, also while that one is paused; told to take over it does, and what the first
/// finds when it wakes is its end.
#[tokio::test]
async fn a_paused_owner_that_wakes_behind_a_takeover_ends_before_any_side_effect() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["pending", "done"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let mut first = Process::start(folder.path());
    first.wait_for("ready");
    let second = scene_of(folder.path()).await;
    for is_paused in [false, true] {
        if is_paused {
            first.pause();
        }
        let error = second.finish(job(&second, folder.path())).await.unwrap_err();
        let JobError::Store(cause) = &error else { panic!("{error:?}") };
        let StoreError::Held { by } = &**cause else { panic!("{cause:?}") };
        assert_eq!((by.pid, by.owner.as_str()), (first.child.id(), "count"));
    }
    assert_eq!(visible(folder.path()), up_to(300), "who was refused has done nothing");

    second.finish(job(&second, folder.path()).take_over()).await.unwrap();
    assert_eq!(visible(folder.path()), all());

    kill(first.pid(), Signal::SIGCONT).unwrap();
    drop(first.child.stdin.take());
    assert_eq!(first.wait_for("triggered").trim(), "triggered false");
    assert_eq!(first.child.wait().unwrap().code(), Some(JobExit::Fenced as i32));
    assert_eq!(visible(folder.path()), all());
    assert_eq!(second.store.verify().await.unwrap().damages, []);
}

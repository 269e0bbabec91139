//! [CHK-16] A panic of a source, a step or a sink is a failure like others: the job is restarted, and nothing hangs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::template::{
    Emit, Fate, Next, SourceFunction, TransactionName, TwoPhaseCommitSink, WriteContext,
};
use levada_core::{Batch, CheckpointId, SinkContext, SinkError, SourceContext, SourceError, State};
use levada_engine::checkpoint::CheckpointSettings;
use levada_engine::driver::LossPolicy;
use levada_engine::{CheckpointedJob, Job, JobError};

use crate::scene::{Count, Scene, all, options, restarts};
use crate::target::TargetSink;

/// The call that panics: its name, and how many come through before.
#[derive(Debug, Clone, Default)]
struct Trap(Arc<Mutex<Option<(&'static str, u32)>>>);

impl Trap {
    fn set(verb: &'static str, after: u32) -> Self {
        Self(Arc::new(Mutex::new(Some((verb, after)))))
    }

    fn is_sprung(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }

    fn pass(&self, verb: &str) {
        let mut trap = self.0.lock().unwrap();
        match &mut *trap {
            Some((at, 0)) if *at == verb => *trap = None,
            Some((at, after)) if *at == verb => {
                *after -= 1;
                return;
            }
            _ => return,
        }
        drop(trap);
        // Without a word from the panic hook.
        std::panic::resume_unwind(Box::new("trapped"));
    }
}

#[derive(Debug)]
struct TrappedSink {
    sink: TargetSink,
    trap: Trap,
}

impl TwoPhaseCommitSink<u64> for TrappedSink {
    type Handle = String;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.trap.pass("open");
        self.sink.open(ctx).await
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<String, SinkError> {
        self.trap.pass("begin");
        self.sink.begin(name).await
    }

    async fn write(
        &mut self,
        handle: &mut String,
        batch: Batch<u64>,
        ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        self.trap.pass("write");
        self.sink.write(handle, batch, ctx).await
    }

    async fn pre_commit(&mut self, handle: &mut String) -> Result<(), SinkError> {
        self.trap.pass("pre-commit");
        self.sink.pre_commit(handle).await
    }

    async fn commit(&mut self, handle: &String) -> Result<(), SinkError> {
        self.trap.pass("commit");
        let outcome = self.sink.commit(handle).await;
        self.trap.pass("behind a commit");
        outcome
    }

    async fn abort(&mut self, handle: &String) -> Result<(), SinkError> {
        self.trap.pass("abort");
        self.sink.abort(handle).await
    }

    async fn inspect(&mut self, handles: &[String]) -> Result<Option<Vec<Fate>>, SinkError> {
        self.trap.pass("inspect");
        self.sink.inspect(handles).await
    }

    async fn fence(&mut self, first: CheckpointId, kept: &[String]) -> Result<(), SinkError> {
        self.trap.pass("fence");
        self.sink.fence(first, kept).await
    }

    fn context(&self) -> Option<Vec<u8>> {
        self.trap.pass("context");
        None
    }

    fn restore_context(&mut self, _: &[Vec<u8>]) -> Result<(), SinkError> {
        self.trap.pass("restore a context");
        Ok(())
    }

    async fn close(&mut self) {
        self.trap.pass("close a sink");
    }
}

#[derive(Debug)]
struct TrappedSource {
    count: Count,
    trap: Trap,
}

impl SourceFunction for TrappedSource {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        self.trap.pass("open a source");
        self.count.open(ctx, restored).await
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        self.trap.pass("next");
        self.count.next(out).await
    }

    fn snapshot(&mut self, checkpoint: CheckpointId) -> State {
        self.trap.pass("snapshot");
        self.count.snapshot(checkpoint)
    }

    async fn complete(&mut self, _: CheckpointId) -> Result<(), SourceError> {
        self.trap.pass("hear of a checkpoint");
        Ok(())
    }

    async fn close(&mut self) {
        self.trap.pass("close a source");
    }
}

/// Steps with the source, between two exchanges, and with the sink.
fn job(scene: &Scene, trap: &Trap) -> CheckpointedJob {
    let (source, target) = (scene.source(), scene.target.clone());
    let passing = |verb: &'static str| {
        let trap = trap.clone();
        move |_: &levada_engine::Input<'_, u64>| {
            trap.pass(verb);
            true
        }
    };
    let (of_source, of_sink, makes) = (trap.clone(), trap.clone(), trap.clone());
    Job::new("count")
        .parallelism(3)
        .source_function("numbers", move |subtask| {
            makes.pass("make a source");
            TrappedSource { count: source(subtask), trap: of_source.clone() }
        })
        .filter("first", passing("a step of the source"))
        .key_by("by last digit", |number| number % 10)
        .filter("second", passing("a step between"))
        .key_by("by first digits", |number| number / 10)
        .filter("third", passing("a step of the sink"))
        .two_phase_sink("table", options(LossPolicy::Fail), move |_| {
            of_sink.pass("make a sink");
            TrappedSink { sink: target.sink("table"), trap: of_sink.clone() }
        })
}

const SINK: [&str; 14] = [
    "make a sink",
    "open",
    "begin",
    "write",
    "pre-commit",
    "commit",
    "behind a commit",
    "abort",
    "inspect",
    "fence",
    "context",
    "restore a context",
    "a step of the sink",
    "a step between",
];
const SOURCE: [&str; 6] =
    ["make a source", "open a source", "next", "snapshot", "hear of a checkpoint", "a step of the source"];

/// Lets a job read 300 numbers, fail with another error, and come to its end, with checkpoints between; somewhere on the way the
/// trap is sprung. The wait is bounded in the paused time of the test: it ends as soon as nothing moves any more.
async fn run_into(trap: &Trap) -> Scene {
    let scene = Scene::new().await;
    let settings = CheckpointSettings { tolerable_failures: 0, ..CheckpointSettings::default() };
    let mut job = scene.start(job(&scene, trap).checkpoints(settings).restarts(restarts(50)));
    *scene.gate.fail_at.lock().unwrap() = Some(600);
    scene.gate.raise(300);
    for up_to in [300, 500, 700] {
        // A checkpoint may fail by the trap, and a request may meet the job between two attempts.
        scene.gate.raise(up_to);
        for is_away in [false, true, false] {
            scene.target.set_away(is_away);
            job.trigger_checkpoint().await.ok();
            tokio::task::yield_now().await;
        }
    }
    scene.gate.raise(u64::MAX);
    let outcome = tokio::time::timeout(Duration::from_secs(3600), job.wait()).await;
    outcome.expect("it hangs").unwrap();
    scene
}

/// [CHK-16] [CHK-19]
#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_is_followed_by_a_restart_that_loses_and_doubles_nothing() {
    let mut not_reached = Vec::new();
    for verb in SINK.into_iter().chain(SOURCE) {
        for after in 0..3 {
            let trap = Trap::set(verb, after);
            let scene = run_into(&trap).await;
            assert_eq!(scene.target.visible(), all(), "{verb}, after {after}");
            assert_eq!(
                scene.target.in_phase(crate::target::Phase::PreCommitted),
                [""; 0],
                "{verb}, after {after}"
            );
            if after == 0 && !trap.is_sprung() {
                not_reached.push(verb);
            }
        }
    }
    assert_eq!(not_reached, ["abort"; 0]);
}

/// [CHK-16] Without restarts the error says what it was, and the store is free for the next start in the same process.
#[tokio::test(start_paused = true)]
async fn a_job_that_panicked_says_so_and_lets_its_store_go() {
    for verb in ["make a sink", "open", "fence", "commit", "next", "a step between"] {
        let scene = Scene::new().await;
        scene.gate.raise(u64::MAX);
        let mut first = scene.start(job(&scene, &Trap::set(verb, 0)));
        let outcome = tokio::time::timeout(Duration::from_secs(3600), first.wait()).await.expect("it hangs");
        assert!(matches!(outcome, Err(JobError::Panicked { .. })), "{verb}: {outcome:?}");
        assert!(
            matches!(*first.state().borrow(), levada_engine::JobState::Ended { cause: Some(_) }),
            "{verb}"
        );
        scene.finish(job(&scene, &Trap::default())).await.unwrap();
        assert_eq!(scene.target.visible(), all(), "{verb}");
    }
}

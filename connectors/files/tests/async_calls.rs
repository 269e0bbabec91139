//! [ASY-08] Jobs that die with calls in flight: every input has one output in the files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use levada_core::async_io::{AsyncSettings, CallError, RetryStrategy};
use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{
    CheckpointId, ErrorChain, ErrorClass, ListState, SourceContext, SourceError, Spread, State,
};
use levada_engine::driver::TwoPhaseOptions;
use levada_engine::store::Store;
use levada_engine::{CheckpointedJob, Job, JobError};
use levada_files::{FileSink, FileSinkConfig};
use tokio::sync::watch;
use tokio::time::timeout;

/// How many numbers a history counts.
const END: u64 = 600;
const HISTORIES: u64 = 6;
/// Longer than anything here may take.
const HANG: Duration = Duration::from_secs(120);

/// A small generator of random numbers (SplitMix64).
#[derive(Debug, Clone)]
struct Dice(Arc<AtomicU64>);

impl Dice {
    fn of(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    fn below(&self, bound: u64) -> u64 {
        let thrown = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (thrown ^ (thrown >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Counts up to the end on twelve ways, which are list state.
#[derive(Debug, Default)]
struct Count {
    next: Vec<u64>,
}

impl SourceFunction for Count {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        let own = |way: &u64| way % u64::from(ctx.parallelism) == u64::from(ctx.subtask);
        self.next = match restored.get("next") {
            Some(list) => list.values()?,
            None => (0..12).filter(own).collect(),
        };
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        for _ in 0..3 {
            let Some(next) = self.next.iter_mut().filter(|next| **next < END).min() else {
                return Ok(Next::End);
            };
            out.record(*next);
            *next += 12;
        }
        tokio::task::yield_now().await;
        Ok(Next::More)
    }

    fn snapshot(&mut self, _: CheckpointId) -> State {
        State::new().with("next", ListState::of(Spread::Split, self.next.iter().copied()))
    }
}

fn settings(dice: &Dice) -> AsyncSettings<u64, String> {
    let retry = RetryStrategy::Fixed { delay: Duration::from_millis(1), retries: 100 };
    let settings = AsyncSettings::new().capacity(1 + dice.below(20) as usize).timeout(HANG).retry(retry);
    match dice.below(3) {
        0 => settings.ordered(),
        1 => settings.unordered(),
        _ => settings.key_ordered_by(|number| number % 12),
    }
}

/// A job whose calls take a random number of turns, and fail at random; `made` counts them.
fn job(folder: &Path, dice: &Dice, made: &Arc<watch::Sender<u64>>) -> CheckpointedJob {
    let config = FileSinkConfig::new(folder, "out");
    let (thrown, made) = (dice.clone(), Arc::clone(made));
    let function = move |number: Arc<u64>| {
        let (turns, fails) = (thrown.below(20), thrown.below(10) == 0);
        made.send_modify(|made| *made += 1);
        async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            match fails {
                true => Err(CallError::new(ErrorClass::Retry, "busy")),
                false => Ok(vec![format!("{number}")]),
            }
        }
    };
    Job::new("count")
        .parallelism(1 + dice.below(3) as u32)
        .source_function("numbers", |_| Count::default())
        .async_map("text", function, settings(dice))
        .two_phase_sink("out", TwoPhaseOptions::default(), move |_| FileSink::new(config.clone()))
}

/// Runs a job that takes one checkpoint after the other, and ends it in the middle of a call. Tells whether it came to its end
/// before.
async fn live(job: CheckpointedJob, store: Store, made: &watch::Sender<u64>, lifetime: u64) -> bool {
    let mut calls = made.subscribe();
    let dies_at = *calls.borrow_and_update() + lifetime;
    let mut job = job.start(store).expect("the shape is right");
    let is_over = {
        let checkpoints = async {
            // Until the job ends: then it answers no more.
            while job.trigger_checkpoint().await.is_ok() {}
        };
        tokio::select! {
            died = calls.wait_for(|made| *made >= dies_at) => died.is_err(),
            () = checkpoints => true,
        }
    };
    if !is_over {
        job.cancel();
    }
    match timeout(HANG, job.wait()).await.expect("no hang") {
        Ok(_) => true,
        // The end of the input leaves a call one last attempt, and that may fail as any other.
        Err(JobError::Cancelled | JobError::Call { .. }) => false,
        Err(error) => panic!("{}", ErrorChain(&error)),
    }
}

fn lines_of(folder: &Path) -> Vec<u64> {
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("a file").path());
    let texts = files.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).expect("text"));
    let mut numbers: Vec<u64> = texts
        .flat_map(|text| text.lines().map(|line| line.parse().expect("a number")).collect::<Vec<_>>())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// [ASY-08] [ASY-07] [CHK-10] [CHK-19] ended at a random call again and again, started with another capacity, order and
/// parallelism each time: each input has one output, none is lost and none comes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_input_has_one_output_however_often_the_job_dies_in_a_call() {
    for seed in 0..HISTORIES {
        let (dice, made) = (Dice::of(seed), Arc::new(watch::Sender::new(0)));
        let (folder, checkpoints) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = checkpoints.path().to_str().expect("UTF-8").to_owned();
        let mut deaths = 0;
        loop {
            let store = Store::open(&place).await.unwrap();
            let job = job(folder.path(), &dice, &made);
            let lifetime = if deaths < 8 { 1 + dice.below(200) } else { u64::MAX >> 1 };
            if live(job, store, &made, lifetime).await {
                break;
            }
            deaths += 1;
        }
        let calls = *made.borrow();
        println!("history {seed}: {deaths} deaths, {calls} calls for {END} inputs");
        assert_eq!(lines_of(folder.path()), (0..END).collect::<Vec<_>>(), "history {seed}");
    }
}

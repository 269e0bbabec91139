//! Async steps before an atomic sink: commit points wait in line.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::async_io::{AsyncFunction, AsyncSettings, CallError, Called, OnError};
use levada_engine::{CommitPolicy, Job, JobHandle};
use tokio::sync::{oneshot, watch};

use crate::scene::{chain, until_all_rest};
use crate::scripted::{Logs, Script, numbered, once, promptly, text};
use crate::table::{Block, Table, all_of};

type Open = BTreeMap<String, oneshot::Sender<Called<String>>>;

/// Calls by the record that they are about, to be answered by the test.
#[derive(Debug, Clone, Default)]
struct Desk {
    open: Arc<Mutex<Open>>,
    made: Arc<watch::Sender<usize>>,
}

impl Desk {
    async fn until(&self, calls: usize) {
        let mut made = self.made.subscribe();
        promptly(made.wait_for(|made| *made == calls)).await.unwrap();
    }

    fn answer(&self, record: &str, answer: Called<String>) {
        let call = self.open.lock().unwrap().remove(record).expect("an open call");
        // A call that was dropped takes no answer.
        call.send(answer).ok();
    }

    fn echo(&self, record: &str) {
        self.answer(record, Ok(vec![record.to_owned()]));
    }

    fn is_waited_for(&self, record: &str) -> bool {
        self.open.lock().unwrap().get(record).is_some_and(|call| !call.is_closed())
    }
}

impl AsyncFunction<String> for Desk {
    type Output = String;

    fn call(&self, input: Arc<String>) -> impl Future<Output = Called<String>> + Send + 'static {
        let (answer, answered) = oneshot::channel();
        self.open.lock().unwrap().insert((*input).clone(), answer);
        self.made.send_modify(|made| *made += 1);
        async move { answered.await.unwrap_or_else(|_| Err("the test forgot the call".into())) }
    }
}

struct Scene {
    logs: Logs,
    table: Table,
    desk: Desk,
    script: Script,
    job: JobHandle,
}

/// Commits as soon as there is a row, and at nothing but rows and forced points.
fn eager() -> Job {
    let never = Duration::from_secs(1 << 30);
    Job::new("job").commit_policy(CommitPolicy {
        max_rows: 1,
        max_bytes: u64::MAX,
        max_age: never,
        max_age_without_rows: never,
    })
}

fn start(lengths: &[usize], settings: AsyncSettings<String, String>) -> Scene {
    let (logs, table, desk) = (numbered(lengths), Table::new(), Desk::default());
    let (script, source) = Script::of(&Arc::new(logs.clone()));
    let sink = table.clone();
    let job = eager()
        .source("log", once(vec![source]))
        .map("text", text)
        .async_map("echo", desk.clone(), settings)
        .filter("all", |_| true)
        .atomic_sink("table", move |_| sink.sink("us"))
        .start()
        .expect("the shape is right");
    Scene { logs, table, desk, script, job }
}

fn unordered() -> AsyncSettings<String, String> {
    AsyncSettings::new().unordered()
}

/// [ASY-08] [ASY-03] a commit point leaves behind every input before it and in front of all others, though results are unordered:
/// the sink refuses rows that its positions do not cover.
#[tokio::test(start_paused = true)]
async fn commit_point_waits_in_line() {
    let mut scene = start(&[4], unordered());
    scene.script.assign(&[0]);
    scene.script.read(&[(0, 2)]);
    scene.script.read(&[(0, 2)]);
    scene.desk.until(4).await;
    for late in ["t-0@3", "t-0@2", "t-0@1"] {
        scene.desk.echo(late);
    }
    scene.table.until(|store| store.written == 1).await;
    assert_eq!(scene.table.look(|store| store.commits.len()), 0, "one of the first two has no answer");
    scene.desk.echo("t-0@0");
    scene.table.until(|store| store.commits.len() == 2).await;
    let commits = scene.table.look(|store| {
        store.commits.iter().map(|commit| (commit.rows, commit.positions[&0])).collect::<Vec<_>>()
    });
    assert_eq!(commits, [(2, 2), (2, 4)]);
    scene.script.end();
    let report = promptly(scene.job.wait()).await.expect("a good end");
    assert_eq!(report.balance.to_string(), "4 read = 4 written");
    assert_eq!(scene.table.rows(), all_of(&scene.logs));
}

/// [ASY-05] [ASY-11] none, many, and dropped: the balance closes.
#[tokio::test(start_paused = true)]
async fn balance_closes_over_none_many_and_dropped() {
    let mut scene = start(&[4], unordered().on_error(OnError::Drop));
    scene.script.assign(&[0]);
    scene.script.read(&[(0, 4)]);
    scene.desk.until(4).await;
    scene.desk.answer("t-0@0", Ok(vec![]));
    scene.desk.answer("t-0@1", Ok(vec!["a".into(), "b".into(), "c".into()]));
    scene.desk.answer("t-0@2", Err(CallError::bad_record("no such row")));
    scene.desk.echo("t-0@3");
    scene.script.end();
    let report = promptly(scene.job.wait()).await.expect("a good end");
    let expected = "4 read + 2 expanded = 4 written + 1 filtered + 1 skipped";
    assert_eq!(report.balance.to_string(), expected);
    assert_eq!(scene.table.position(0), 4);
}

/// [ASY-09] a stuck call holds the commit point until its timeout, 5 s unless told otherwise; then the job fails, and nothing of
/// the interval is visible.
#[tokio::test(start_paused = true)]
async fn stuck_call_holds_commits_until_its_timeout() {
    let mut scene = start(&[2], unordered());
    let begun = tokio::time::Instant::now();
    scene.script.assign(&[0]);
    scene.script.read(&[(0, 2)]);
    scene.desk.until(2).await;
    scene.desk.echo("t-0@1");
    let error = promptly(scene.job.wait()).await.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), 5);
    let expected = "async step \"echo\", subtask 0, record t-0@0: no answer within 5s, over all attempts";
    assert_eq!(chain(&error), expected);
    assert_eq!((scene.table.rows(), scene.table.position(0)), (vec![], 0));
}

/// [TPL-22] [ASY-08] calls of an interval that is discarded are dropped, and their records called again from the claimed position.
#[tokio::test(start_paused = true)]
async fn loss_drops_the_calls_of_the_open_interval() {
    // Full, so that the claim behind them would wait for a slot.
    let mut scene = start(&[3, 3], unordered().capacity(2).timeout(Duration::from_secs(3600)));
    scene.script.assign(&[0, 1]);
    scene.script.read(&[(0, 3), (1, 3)]);
    scene.desk.until(2).await;
    scene.desk.echo("t-0@0");
    scene.desk.until(3).await;
    assert!(scene.desk.is_waited_for("t-0@1"));
    scene.script.lose(&[1]);
    scene.script.handled().await;
    assert!(!scene.desk.is_waited_for("t-0@1"), "its call is dropped");
    assert_eq!(scene.script.last_added(), BTreeMap::from([(0, 0)]));
    scene.script.read(&[(0, 3)]);
    scene.script.end();
    for calls in [5, 6] {
        scene.desk.until(calls).await;
        scene.desk.echo(&format!("t-0@{}", calls - 5));
    }
    scene.desk.echo_when_made("t-0@2").await;
    let report = promptly(scene.job.wait()).await.expect("a good end");
    assert_eq!(report.balance.to_string(), "3 read = 3 written");
    assert_eq!(scene.table.rows(), scene.logs[0]);
}

impl Desk {
    async fn echo_when_made(&self, record: &str) {
        let mut made = self.made.subscribe();
        let is_open = |_: &usize| self.open.lock().unwrap().contains_key(record);
        promptly(made.wait_for(is_open)).await.unwrap();
        self.echo(record);
    }
}

/// [ASY-09] what was read of a revoked split is committed when its calls are answered within the bound.
#[tokio::test(start_paused = true)]
async fn revoked_split_is_committed_when_its_calls_are_answered() {
    let mut scene = start(&[2, 2], unordered());
    scene.script.assign(&[0, 1]);
    scene.script.read(&[(0, 2), (1, 2)]);
    scene.desk.until(4).await;
    scene.script.revoke(&[1], Duration::from_secs(30));
    for record in ["t-1@1", "t-1@0", "t-0@1", "t-0@0"] {
        scene.desk.echo(record);
    }
    scene.script.handled().await;
    assert_eq!((scene.table.position(0), scene.table.position(1)), (2, 2));
    assert_eq!(scene.table.look(|store| (store.released.clone(), store.discards)), (vec![1], 0));
    scene.script.end();
    promptly(scene.job.wait()).await.expect("a good end");
    assert_eq!(scene.table.rows(), all_of(&scene.logs));
}

/// [ASY-01] [ASY-08] answers that come while the sink commits, one more than the channel before it holds, leave when it has.
#[tokio::test(start_paused = true)]
async fn answers_that_come_while_the_sink_commits_leave() {
    let mut scene = start(&[21], unordered());
    scene.table.block(Block::Before);
    scene.script.assign(&[0]);
    scene.script.read(&[(0, 1)]);
    scene.desk.until(1).await;
    scene.desk.echo("t-0@0");
    scene.table.until(|store| store.begun == 1).await;
    scene.script.read(&[(0, 20)]);
    scene.desk.until(21).await;
    for record in 1..21 {
        scene.desk.echo(&format!("t-0@{record}"));
        until_all_rest().await;
    }
    scene.table.unblock();
    scene.table.until(|store| store.commits.last().is_some_and(|last| last.positions[&0] == 21)).await;
    scene.script.end();
    let report = promptly(scene.job.wait()).await.expect("a good end");
    assert_eq!(report.balance.to_string(), "21 read = 21 written");
}

/// [ASY-10] a stop waits for the calls, and commits what they bring.
#[tokio::test(start_paused = true)]
async fn stop_commits_what_the_calls_in_flight_bring() {
    let mut scene = start(&[2], unordered());
    scene.script.assign(&[0]);
    scene.script.read(&[(0, 2)]);
    scene.desk.until(2).await;
    scene.job.stop();
    scene.desk.echo("t-0@1");
    scene.desk.echo("t-0@0");
    let report = promptly(scene.job.wait()).await.expect("a good end");
    assert_eq!(report.balance.to_string(), "2 read = 2 written");
    assert_eq!(scene.job.calls().snapshot()[0].metrics.calls, 2);
}

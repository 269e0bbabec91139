//! Several subtasks.

use std::sync::Arc;

use levada_engine::{Job, JobHandle};

use crate::scripted::{Logs, Script, numbered, once, promptly, text};
use crate::table::{Table, all_of};

fn start_two(logs: &Logs, table: &Table) -> ([Script; 2], JobHandle) {
    let logs = Arc::new(logs.clone());
    let (first, first_source) = Script::of(&logs);
    let (second, second_source) = Script::of(&logs);
    let job = Job::new("job")
        .parallelism(2)
        .source("log", once(vec![first_source, second_source]))
        .map("text", text)
        .atomic_sink("table", once(vec![table.sink("first"), table.sink("second")]))
        .start()
        .expect("the shape is right");
    ([first, second], job)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subtasks_write_their_own_splits_side_by_side() {
    let (logs, table) = (numbered(&[40, 40, 40]), Table::new());
    let ([mut first, mut second], mut job) = start_two(&logs, &table);
    first.assign(&[0, 2]);
    second.assign(&[1]);
    for _ in 0..40 {
        first.read(&[(0, 1), (2, 1)]);
        second.read(&[(1, 1)]);
    }
    first.end();
    second.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "120 read = 120 written");
    assert_eq!(report.positions.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn subtask_without_splits_ends_at_once_and_the_other_goes_on() {
    let (logs, table) = (numbered(&[40]), Table::new());
    let ([mut first, mut second], mut job) = start_two(&logs, &table);
    second.end();
    second.gone().await;
    table.until(|store| store.closed == 1).await;
    first.assign(&[0]);
    first.read(&[(0, 40)]);
    first.handled().await;
    first.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

/// [TPL-22] A split may go from one subtask of the job to the other; only the first one's open interval is dropped.
#[tokio::test(start_paused = true)]
async fn split_goes_from_one_subtask_to_the_other() {
    let (logs, table) = (numbered(&[9, 9]), Table::new());
    let ([mut first, mut second], mut job) = start_two(&logs, &table);
    first.assign(&[0, 1]);
    first.read(&[(0, 5), (1, 5)]);
    first.lose(&[1]);
    first.handled().await;
    second.assign(&[1]);
    second.read(&[(1, 9)]);
    second.end();
    first.read(&[(0, 9)]);
    first.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "18 read = 18 written");
}

/// An error of one subtask ends the others, and drops what they had open.
#[tokio::test(start_paused = true)]
async fn error_of_one_subtask_ends_the_other() {
    let (logs, table) = (numbered(&[9, 9]), Table::new());
    let ([mut first, mut second], mut job) = start_two(&logs, &table);
    first.assign(&[0]);
    first.handled().await;
    table.fail_commits();
    second.assign(&[1]);
    second.read(&[(1, 9)]);
    second.end();
    promptly(job.wait()).await.expect_err("a commit failed");
    first.gone().await;
    second.gone().await;
    assert_eq!(table.look(|store| store.closed), 2);
}

//! When the driver commits.

use std::time::Duration;

use levada_core::Budget;
use levada_engine::{CommitPolicy, Job, Progress};
use tokio::time::{Instant, advance};

use crate::scripted::{numbered, promptly, start};
use crate::table::{Block, Table, all_of};

const NEVER: Duration = Duration::from_secs(1 << 30);
const AGE: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);

fn policy() -> CommitPolicy {
    CommitPolicy { max_rows: u64::MAX, max_bytes: u64::MAX, max_age: NEVER, max_age_without_rows: NEVER }
}

fn by_age() -> CommitPolicy {
    CommitPolicy { max_age: AGE, max_age_without_rows: SECOND, ..policy() }
}

fn rows_of_commits(table: &Table) -> Vec<usize> {
    table.look(|store| store.commits.iter().map(|commit| commit.rows).collect())
}

/// [PGS-16] the engine's part: an interval spans as many polls as it takes.
#[tokio::test(start_paused = true)]
async fn interval_is_committed_when_it_has_enough_rows() {
    let table = Table::new();
    let policy = CommitPolicy { max_rows: 5, ..policy() };
    let (mut script, mut job) = start(Job::new("job").commit_policy(policy), numbered(&[20]), &table);
    script.assign(&[0]);
    for rows in [2, 2, 3, 4, 1, 1] {
        script.read(&[(0, rows)]);
    }
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(rows_of_commits(&table), [7, 5, 1]);
}

/// [PGS-16] the engine's part: an interval spans as many polls as it takes.
#[tokio::test(start_paused = true)]
async fn interval_is_committed_when_it_has_enough_bytes() {
    let table = Table::new();
    // Each row is "t-0@n": five bytes.
    let policy = CommitPolicy { max_bytes: 20, ..policy() };
    let (mut script, mut job) = start(Job::new("job").commit_policy(policy), numbered(&[9]), &table);
    script.assign(&[0]);
    for rows in [3, 1, 4, 1] {
        script.read(&[(0, rows)]);
    }
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(rows_of_commits(&table), [4, 4, 1]);
}

/// [PGS-16] the engine's part: an interval spans as many polls as it takes.
#[tokio::test(start_paused = true)]
async fn interval_is_committed_when_it_is_old_enough() {
    let table = Table::new();
    let (mut script, _job) = start(Job::new("job").commit_policy(by_age()), numbered(&[9]), &table);
    script.assign(&[0]);
    script.handled().await;
    advance(SECOND).await;
    let before = Instant::now();
    script.read(&[(0, 3)]);
    table.until(|store| store.commits.len() == 1).await;
    assert_eq!(table.look(|store| store.commits[0].at), before + AGE);
    assert_eq!(rows_of_commits(&table), [3]);
}

#[tokio::test(start_paused = true)]
async fn steady_flow_does_not_put_a_commit_off() {
    let table = Table::new();
    let (mut script, _job) = start(Job::new("job").commit_policy(by_age()), numbered(&[99]), &table);
    script.assign(&[0]);
    script.handled().await;
    let before = Instant::now();
    for _ in 0..16 {
        script.read(&[(0, 1)]);
        script.handled().await;
        advance(AGE / 4).await;
    }
    let after: Vec<Duration> =
        table.look(|store| store.commits.iter().map(|commit| commit.at - before).collect());
    assert!(after.len() >= 3, "{after:?}");
    for (earlier, later) in std::iter::once(&Duration::ZERO).chain(&after).zip(&after) {
        assert!(*later - *earlier <= AGE + AGE / 4, "{after:?}");
    }
}

/// The sink was busy for longer than an interval's age, and what came meanwhile is old already.
#[tokio::test(start_paused = true)]
async fn interval_that_became_old_in_the_channel_is_committed_with_all_that_is_there() {
    let (logs, table) = (numbered(&[9]), Table::new());
    let (mut script, mut job) = start(Job::new("job").commit_policy(by_age()), logs.clone(), &table);
    table.block(Block::Before);
    script.assign(&[0]);
    script.read(&[(0, 3)]);
    table.until(|store| store.begun == 1).await;
    script.read(&[(0, 3)]);
    script.read(&[(0, 3)]);
    script.handled().await;
    advance(SECOND).await;
    table.unblock();
    table.until(|store| store.commits.len() == 2).await;
    assert_eq!(rows_of_commits(&table), [3, 6]);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

/// An interval without rows commits its positions, at most once per second.
#[tokio::test(start_paused = true)]
async fn positions_without_rows_are_committed_once_a_second() {
    let table = Table::new();
    let (mut script, mut job) = start(Job::new("job").commit_policy(by_age()), numbered(&[0]), &table);
    script.assign(&[0]);
    script.handled().await;
    let before = Instant::now();
    for _ in 0..50 {
        script.hole(0, 10);
        script.handled().await;
        advance(SECOND / 10).await;
    }
    let commits = table.look(|store| store.commits.clone());
    assert!((3..=5).contains(&commits.len()), "{commits:?}");
    assert!(commits[0].at >= before + SECOND);
    for pair in commits.windows(2) {
        assert!(pair[1].at - pair[0].at >= SECOND, "{commits:?}");
    }
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.position(0), 500);
    assert_eq!(table.rows(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_committed_where_nothing_moved() {
    let (logs, table) = (numbered(&[1]), Table::new());
    let (mut script, mut job) = start(Job::new("job").commit_policy(by_age()), logs, &table);
    script.assign(&[0]);
    script.handled().await;
    advance(SECOND * 3600).await;
    script.revoke(&[0], SECOND);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.look(|store| store.begun), 0);
}

/// [BRG-09] What is watched is what is committed, nothing before.
#[tokio::test(start_paused = true)]
async fn progress_shows_what_is_committed() {
    let table = Table::new();
    let policy = CommitPolicy { max_rows: 3, ..policy() };
    let (mut script, mut job) = start(Job::new("job").commit_policy(policy), numbered(&[9]), &table);
    let mut progress = job.progress();
    script.assign(&[0]);
    script.read(&[(0, 2)]);
    script.handled().await;
    table.until(|store| store.written == 2).await;
    assert_eq!(progress.borrow().balance.tally.read, 0);
    script.read(&[(0, 2)]);
    progress.wait_for(|progress| progress.commits == 1).await.expect("it runs");
    assert_eq!(progress.borrow().balance.to_string(), "4 read = 4 written");
    let next =
        |progress: &Progress| progress.positions.iter().map(|(_, position)| position.next).sum::<u64>();
    assert_eq!(next(&progress.borrow()), 4);
    script.read(&[(0, 9)]);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(next(&progress.borrow()), 9);
}

/// Payload is counted from the poll to the commit, wherever it stands.
#[tokio::test(start_paused = true)]
async fn permits_return_after_the_commit() {
    let (logs, table) = (numbered(&[8]), Table::new());
    let budget = Budget::new(1 << 20);
    let policy = CommitPolicy { max_rows: 4, ..policy() };
    let job = Job::new("job").budget(budget.clone()).commit_policy(policy);
    let (mut script, mut job) = start(job, logs, &table);
    table.block(Block::After);
    script.assign(&[0]);
    script.read(&[(0, 2)]);
    script.read(&[(0, 2)]);
    table.until(|store| store.commits.len() == 1).await;
    script.read(&[(0, 1)]);
    script.handled().await;
    assert_eq!(budget.used(), 5 * 5, "in the sink and in the channel");
    table.unblock();
    table.until(|store| store.written == 5).await;
    assert_eq!(budget.used(), 5, "the next interval");
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(budget.used(), 0);
}

/// [TPL-22] A discard gives the share back as well.
#[tokio::test(start_paused = true)]
async fn permits_return_after_a_discard() {
    let (logs, table) = (numbered(&[8, 8]), Table::new());
    let budget = Budget::new(1 << 20);
    let job = Job::new("job").budget(budget.clone()).commit_policy(policy());
    let (mut script, job) = start(job, logs, &table);
    script.assign(&[0, 1]);
    script.read(&[(0, 8), (1, 8)]);
    script.handled().await;
    assert_eq!(budget.used(), 80);
    script.lose(&[1]);
    script.handled().await;
    assert_eq!(budget.used(), 0);
    drop(job);
}

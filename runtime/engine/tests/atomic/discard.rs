//! Splits that go: lost, revoked, fenced.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_core::{ErrorChain, Polled};
use levada_engine::{CommitPolicy, Job, JobError};

use crate::scripted::{numbered, promptly, revoked, start};
use crate::table::{Block, Table, all_of};

const RIVAL: &str = "host-b, process 7";
const SOON: Duration = Duration::from_millis(100);

/// Commits at nothing but forced points.
fn patient() -> Job {
    committing_at(u64::MAX)
}

/// Commits at `rows`, never by age.
fn committing_at(rows: u64) -> Job {
    let never = Duration::from_secs(1 << 30);
    Job::new("job").commit_policy(CommitPolicy {
        max_rows: rows,
        max_bytes: u64::MAX,
        max_age: never,
        max_age_without_rows: never,
    })
}

/// [TPL-22] Rows of splits that are still owned are dropped as well, and read again from the claimed positions.
#[tokio::test(start_paused = true)]
async fn loss_discards_the_whole_open_interval() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    script.assign(&[0, 1]);
    script.read(&[(0, 3), (1, 2)]);
    script.handled().await;
    table.until(|store| store.written == 5).await;

    script.lose(&[1]);
    script.handled().await;
    assert_eq!(table.look(|store| (store.commits.len(), store.discards)), (0, 1));
    assert_eq!(script.last_added(), BTreeMap::from([(0, 0)]));
    assert_eq!(table.look(|store| store.released.clone()), [1]);

    table.rival_claims(1, RIVAL);
    assert_eq!(table.rival_commits(1, RIVAL, &logs, 4), 4);
    script.read(&[(0, 4)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "4 read = 4 written");
}

/// [TPL-22] The claimed position may be further than where this subtask last committed.
#[tokio::test(start_paused = true)]
async fn reading_goes_on_where_the_claim_says() {
    let (logs, table) = (numbered(&[4, 6]), Table::new());
    let (mut script, mut job) = start(committing_at(1), logs.clone(), &table);
    script.assign(&[0, 1]);
    script.read(&[(1, 2)]);
    table.until(|store| store.commits.len() == 1).await;
    script.lose(&[0, 1]);
    script.handled().await;
    assert_eq!(script.last_added(), BTreeMap::new());

    table.rival_claims(1, RIVAL);
    table.rival_commits(1, RIVAL, &logs, 3);
    script.assign(&[0, 1]);
    script.handled().await;
    assert_eq!(script.last_added(), BTreeMap::from([(0, 0), (1, 5)]));
    script.read(&[(0, 4), (1, 6)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "7 read = 7 written");
}

/// [TPL-22] What was sent before the loss stands in the channel behind a commit that takes its time.
#[tokio::test(start_paused = true)]
async fn batches_in_the_channel_are_dropped_after_a_loss() {
    let (logs, table) = (numbered(&[6, 6]), Table::new());
    let (mut script, mut job) = start(committing_at(1), logs.clone(), &table);
    table.block(Block::Before);
    script.assign(&[0, 1]);
    script.read(&[(0, 2), (1, 2)]);
    table.until(|store| store.begun == 1).await;
    script.read(&[(0, 1), (1, 1)]);
    script.read(&[(0, 1), (1, 1)]);
    script.lose(&[1]);
    script.until(|seen| !seen.removed.is_empty()).await;

    table.unblock();
    script.handled().await;
    assert_eq!(table.look(|store| store.commits.len()), 1);
    assert_eq!(table.look(|store| store.written), 4, "old batches are not even written");
    assert_eq!(script.last_added(), BTreeMap::from([(0, 2)]));
    script.assign(&[1]);
    script.read(&[(0, 6), (1, 6)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "12 read = 12 written");
}

/// [TPL-22] What a poll appended before it noticed the loss is not handed on: the sink may be busy for long.
#[tokio::test(start_paused = true)]
async fn loss_is_not_held_up_by_records_of_its_own_poll() {
    let (logs, table) = (numbered(&[6, 6]), Table::new());
    let (mut script, mut job) = start(committing_at(1), logs.clone(), &table);
    table.block(Block::Before);
    script.assign(&[0, 1]);
    script.read(&[(0, 1), (1, 1)]);
    table.until(|store| store.begun == 1).await;
    // Two batches and their offers fill the channel.
    script.read(&[(0, 1), (1, 1)]);
    script.read(&[(0, 1), (1, 1)]);
    script.handled().await;
    script.read_and(&[(0, 1), (1, 1)], Polled::Lost(vec![crate::scripted::split(1)]));
    script.until(|seen| seen.removed == [[1]]).await;

    table.unblock();
    script.read(&[(0, 6)]);
    script.assign(&[1]);
    script.read(&[(1, 6)]);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

/// [TPL-22] The commit went through in time: its rows count, and reading goes on behind them.
#[tokio::test(start_paused = true)]
async fn commit_in_flight_during_a_loss_counts_if_it_went_through() {
    for block in [Block::Before, Block::After] {
        let (logs, table) = (numbered(&[4, 4]), Table::new());
        let (mut script, mut job) = start(committing_at(1), logs.clone(), &table);
        table.block(block);
        script.assign(&[0, 1]);
        script.read(&[(0, 3), (1, 3)]);
        table.until(|store| store.begun == 1).await;
        script.lose(&[1]);
        script.until(|seen| !seen.removed.is_empty()).await;
        if block == Block::After {
            table.rival_claims(1, RIVAL);
        }
        table.unblock();
        script.handled().await;
        assert_eq!(script.last_added(), BTreeMap::from([(0, 3)]), "{block:?}");
        table.rival_claims(1, RIVAL);
        assert_eq!(table.rival_commits(1, RIVAL, &logs, 4), 1);
        script.read(&[(0, 4)]);
        script.end();
        let report = promptly(job.wait()).await.expect("a good end");
        assert_eq!(table.rows(), all_of(&logs), "{block:?}");
        assert_eq!(report.balance.to_string(), "7 read = 7 written");
    }
}

/// [TPL-22] The new owner was quicker: the commit in flight fails, and that is no fight.
#[tokio::test(start_paused = true)]
async fn commit_in_flight_during_a_loss_is_discarded_if_the_new_owner_was_first() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(committing_at(1), logs.clone(), &table);
    table.block(Block::Before);
    script.assign(&[0, 1]);
    script.read(&[(0, 3), (1, 3)]);
    table.until(|store| store.begun == 1).await;
    table.rival_claims(1, RIVAL);
    script.lose(&[1]);
    script.until(|seen| !seen.removed.is_empty()).await;
    table.unblock();
    script.handled().await;
    assert_eq!(script.last_added(), BTreeMap::from([(0, 0)]));
    assert_eq!(table.rows(), [""; 0]);

    table.rival_commits(1, RIVAL, &logs, 4);
    script.read(&[(0, 4)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "4 read = 4 written");
}

/// [TPL-22] The sink may learn of the new owner before the source learns of the loss.
#[tokio::test(start_paused = true)]
async fn fenced_commit_waits_for_the_source_to_notice_the_loss() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(committing_at(1), logs.clone(), &table);
    script.assign(&[0, 1]);
    script.handled().await;
    table.rival_claims(1, RIVAL);
    script.read(&[(0, 3), (1, 3)]);
    table.until(|store| store.discards == 1).await;
    tokio::time::advance(Duration::from_secs(3)).await;
    script.read(&[(0, 1), (1, 1)]);
    script.lose(&[1]);
    script.handled().await;
    assert_eq!(script.last_added(), BTreeMap::from([(0, 0)]));

    table.rival_commits(1, RIVAL, &logs, 4);
    script.read(&[(0, 4)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "4 read = 4 written");
}

/// [TPL-22] Two losses may be told one after the other: the claim after the first meets the new owner of the second.
#[tokio::test(start_paused = true)]
async fn fenced_claim_waits_for_the_source_to_notice_the_loss() {
    let (logs, table) = (numbered(&[4, 4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    script.assign(&[0, 1, 2]);
    script.read(&[(0, 2), (1, 2), (2, 2)]);
    script.handled().await;
    table.rival_claims(1, RIVAL);
    table.rival_claims(2, RIVAL);
    script.lose(&[1]);
    script.handled().await;
    script.read(&[(0, 2), (2, 2)]);
    script.lose(&[2]);
    script.handled().await;
    assert_eq!(script.last_added(), BTreeMap::from([(0, 0)]));

    table.rival_commits(1, RIVAL, &logs, 4);
    table.rival_commits(2, RIVAL, &logs, 4);
    script.read(&[(0, 4)]);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

/// [TPL-22] A split assigned while the sink is fenced is claimed once the loss is known.
#[tokio::test(start_paused = true)]
async fn split_assigned_to_a_fenced_subtask_is_read_in_the_end() {
    let (logs, table) = (numbered(&[2, 2]), Table::new());
    let (mut script, mut job) = start(committing_at(1), logs.clone(), &table);
    script.assign(&[0]);
    script.handled().await;
    table.rival_claims(0, RIVAL);
    script.read(&[(0, 2)]);
    table.until(|store| store.discards == 1).await;
    script.assign(&[1]);
    script.handled().await;
    script.lose(&[0]);
    script.handled().await;
    assert_eq!(script.last_added(), BTreeMap::from([(1, 0)]));
    table.rival_commits(0, RIVAL, &logs, 2);
    script.read(&[(1, 2)]);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

fn assert_names_the_rival(error: &JobError) {
    assert!(error.is_fenced(), "{error:?}");
    let message = ErrorChain(error).to_string();
    assert!(message.contains(RIVAL) && message.contains("t-1"), "{message}");
}

/// [TPL-22] Two pipelines with one name must not steal from each other for ever. [TPL-17] A stale owner's commit fails,
/// and no row of its interval is visible, whatever split it is of.
#[tokio::test(start_paused = true)]
async fn claim_between_write_and_commit_ends_the_job_of_whoever_believes_to_own_the_split() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(committing_at(5), logs.clone(), &table);
    script.assign(&[0, 1]);
    script.read(&[(0, 2), (1, 2)]);
    script.handled().await;
    table.until(|store| store.written == 4).await;
    table.rival_claims(1, RIVAL);
    script.read(&[(0, 2), (1, 2)]);
    let error = promptly(job.wait()).await.expect_err("a fight over one name");
    assert_names_the_rival(&error);
    assert_eq!(table.rows(), [""; 0]);
    assert_eq!((table.position(0), table.position(1)), (0, 0));
    assert_eq!(table.look(|store| store.closed), 1);
    script.gone().await;
}

/// [TPL-22] The same, found by the claim that follows another split's loss.
#[tokio::test(start_paused = true)]
async fn claim_of_a_split_that_was_taken_ends_the_job() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs, &table);
    script.assign(&[0, 1]);
    script.read(&[(0, 2), (1, 2)]);
    script.handled().await;
    table.rival_claims(1, RIVAL);
    script.lose(&[0]);
    let error = promptly(job.wait()).await.expect_err("a fight over one name");
    assert_names_the_rival(&error);
    assert_eq!(table.rows(), [""; 0]);
}

/// [TPL-22] Neither a stop nor the end of the source turns a fenced commit into a success, or waits for a loss.
#[tokio::test(start_paused = true)]
async fn fenced_job_that_stops_or_ends_says_so_at_once() {
    for is_stopped in [true, false] {
        let (logs, table) = (numbered(&[4, 4]), Table::new());
        let (mut script, mut job) = start(patient(), logs, &table);
        script.assign(&[0, 1]);
        script.read(&[(0, 2), (1, 2)]);
        script.handled().await;
        table.rival_claims(1, RIVAL);
        let before = tokio::time::Instant::now();
        if is_stopped {
            job.stop();
        } else {
            script.end();
        }
        let error = promptly(job.wait()).await.expect_err("the last commit failed");
        assert_names_the_rival(&error);
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(table.rows(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn revoked_splits_are_committed_then_released() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    script.assign(&[0, 1]);
    script.read(&[(0, 1), (1, 1)]);
    script.read_and(&[(0, 1), (1, 1)], revoked(&[1], SOON));
    script.handled().await;
    let commits = table.look(|store| store.commits.clone());
    assert_eq!(commits.len(), 1);
    assert_eq!(commits[0].positions, BTreeMap::from([(0, 2), (1, 2)]));
    assert_eq!(table.look(|store| (store.released.clone(), store.discards)), (vec![1], 0));

    table.rival_claims(1, RIVAL);
    table.rival_commits(1, RIVAL, &logs, 4);
    script.read(&[(0, 4), (1, 4)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "6 read = 6 written");
}

#[tokio::test(start_paused = true)]
async fn revoke_is_not_done_before_its_commit_is() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    table.block(Block::Before);
    script.assign(&[0, 1]);
    script.read(&[(1, 2)]);
    let mut tried = false;
    script.revoke(&[1], Duration::from_secs(1 << 30));
    table.until(|store| store.begun == 1).await;
    tokio::select! {
        biased;
        () = script.handled() => tried = true,
        () = std::future::ready(()) => {}
    }
    assert!(!tried && table.look(|store| store.released.is_empty()));
    table.unblock();
    script.handled().await;
    assert_eq!(table.position(1), 2);
    script.read(&[(0, 4)]);
    script.assign(&[1]);
    script.read(&[(1, 4)]);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

/// [TPL-22] The bound of a revoke passes while the sink is busy: the interval is discarded, the rest claimed again.
#[tokio::test(start_paused = true)]
async fn expired_revoke_discards_the_interval_and_claims_the_rest_again() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    table.block(Block::Before);
    script.assign(&[0, 1]);
    script.read(&[(0, 3), (1, 3)]);
    let before = tokio::time::Instant::now();
    script.revoke(&[1], SOON);
    table.until(|store| store.begun == 1).await;
    tokio::time::advance(SOON).await;
    table.rival_claims(1, RIVAL);
    table.unblock();
    script.handled().await;
    assert_eq!(before.elapsed(), SOON);
    assert_eq!(table.look(|store| (store.discards, store.claims)), (1, 2));
    assert_eq!(script.last_added(), BTreeMap::from([(0, 0)]));

    table.rival_commits(1, RIVAL, &logs, 4);
    script.read(&[(0, 4)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "4 read = 4 written");
}

/// [TPL-22] The bound counts from the source's word, also while what was read before still waits for the sink.
#[tokio::test(start_paused = true)]
async fn revoke_expires_while_records_of_its_own_poll_wait_for_the_sink() {
    let (logs, table) = (numbered(&[6, 6]), Table::new());
    let (mut script, mut job) = start(committing_at(1), logs.clone(), &table);
    table.block(Block::Before);
    script.assign(&[0, 1]);
    script.read(&[(0, 1), (1, 1)]);
    table.until(|store| store.begun == 1).await;
    // Two batches and their offers fill the channel.
    script.read(&[(0, 1), (1, 1)]);
    script.read(&[(0, 1), (1, 1)]);
    script.handled().await;
    script.read_and(&[(0, 1), (1, 1)], revoked(&[1], SOON));
    script.until(|seen| seen.removed == [[1]]).await;
    tokio::time::advance(SOON).await;
    table.unblock();
    script.handled().await;
    assert_eq!(script.last_added(), BTreeMap::from([(0, 1)]));
    assert_eq!(table.position(1), 1, "nothing behind the commit in flight is committed");
    script.assign(&[1]);
    script.read(&[(0, 6), (1, 6)]);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

/// [TPL-22] A revoked split that somebody else has already: what is still owned goes on.
#[tokio::test(start_paused = true)]
async fn revoked_split_that_was_taken_already_discards_the_interval() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    script.assign(&[0, 1]);
    script.read(&[(0, 3), (1, 3)]);
    script.handled().await;
    table.rival_claims(1, RIVAL);
    script.revoke(&[1], Duration::from_secs(1 << 30));
    script.handled().await;
    assert_eq!(script.last_added(), BTreeMap::from([(0, 0)]));
    table.rival_commits(1, RIVAL, &logs, 4);
    script.read(&[(0, 4)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "4 read = 4 written");
}

/// [TPL-22] A source that assigns what is read already moves it back to its committed position: nothing doubles.
#[tokio::test(start_paused = true)]
async fn split_assigned_again_is_not_read_twice_into_one_interval() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    script.assign(&[0]);
    script.read(&[(0, 3)]);
    script.assign(&[0, 1]);
    script.read(&[(0, 4), (1, 4)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.to_string(), "8 read = 8 written");
}

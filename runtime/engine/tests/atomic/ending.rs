//! How a job ends: by stop, cancel, refusal, error, panic.

use std::sync::Arc;
use std::time::Duration;

use levada_core::batch::Coordinates;
use levada_core::{ErrorChain, ErrorClass, SourceError};
use levada_engine::{CommitPolicy, Input, Job, JobError, ShapeError};

use crate::scripted::{Script, Step, assigned, copying, numbered, once, promptly, split, start, text};
use crate::table::{Block, Table, all_of};

const DEADLINE: Duration = Duration::from_secs(25);

/// Commits at nothing but forced points.
fn patient() -> Job {
    let never = Duration::from_secs(1 << 30);
    Job::new("job").stop_deadline(DEADLINE).commit_policy(CommitPolicy {
        max_rows: u64::MAX,
        max_bytes: u64::MAX,
        max_age: never,
        max_age_without_rows: never,
    })
}

#[tokio::test(start_paused = true)]
async fn stop_commits_everything_read() {
    let (logs, table) = (numbered(&[4, 4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    script.assign(&[0, 1]);
    script.read(&[(0, 4), (1, 1)]);
    script.handled().await;
    script.read(&[(1, 2)]);
    script.handled().await;
    assert_eq!(table.look(|store| store.begun), 0);
    job.stop();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), table.rows_before_positions(&logs));
    assert_eq!((table.position(0), table.position(1)), (4, 3));
    assert_eq!(report.balance.to_string(), "7 read = 7 written");
    assert_eq!(report.positions.get(&split(1)).map(|position| position.next), Some(3));
    assert_eq!((table.look(|store| store.closed), script.closed()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn stop_that_cannot_commit_ends_at_its_deadline() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, mut job) = start(patient(), logs, &table);
    table.block(Block::Before);
    script.assign(&[0]);
    script.read(&[(0, 4)]);
    script.handled().await;
    let before = tokio::time::Instant::now();
    job.stop();
    let error = promptly(job.wait()).await.expect_err("no commit, no success");
    assert!(matches!(error, JobError::StopDeadline(DEADLINE)), "{error:?}");
    assert_eq!(before.elapsed(), DEADLINE);
    assert_eq!(table.rows(), [""; 0]);
    assert_eq!((table.look(|store| store.closed), script.closed()), (1, 1));
}

/// A server that never answered has nothing of ours: whoever waits for it in vain may stop.
#[tokio::test(start_paused = true)]
async fn stop_while_source_or_sink_opens_is_a_good_end_at_once() {
    for is_source in [true, false] {
        let (logs, table) = (Arc::new(numbered(&[4])), Table::new());
        let (mut script, mut source) = Script::of(&logs);
        source.hangs_in_open = is_source;
        if !is_source {
            table.hang_in_open();
        }
        let job = patient()
            .source("log", once(vec![source]))
            .map("text", text)
            .atomic_sink("table", once(vec![table.sink("us")]));
        let mut job = job.start().expect("the shape is right");
        script.assign(&[0]);
        let before = tokio::time::Instant::now();
        job.stop();
        let report = promptly(job.wait()).await.expect("a good end");
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(report.balance.to_string(), "0 read = 0 written");
        assert_eq!((table.look(|store| store.closed), script.closed()), (1, 1));
    }
}

/// The deadline holds also where the reader waits for room in the channel.
#[tokio::test(start_paused = true)]
async fn stop_of_a_reader_that_waits_for_the_sink_ends_at_its_deadline() {
    let (logs, table) = (numbered(&[99]), Table::new());
    let policy = CommitPolicy { max_rows: 1, ..CommitPolicy::default() };
    let (mut script, mut job) = start(patient().commit_policy(policy), logs, &table);
    table.block(Block::Before);
    script.assign(&[0]);
    for _ in 0..9 {
        script.read(&[(0, 1)]);
    }
    table.until(|store| store.begun == 1).await;
    job.stop();
    let error = promptly(job.wait()).await.expect_err("no commit, no success");
    assert!(matches!(error, JobError::StopDeadline(DEADLINE)), "{error:?}");
    script.gone().await;
}

/// A connection that is stuck is often stuck in its goodbye as well.
#[tokio::test(start_paused = true)]
async fn sink_that_hangs_in_close_does_not_hang_the_job() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, mut job) = start(patient(), logs, &table);
    table.hang_in_close();
    table.block(Block::Before);
    script.assign(&[0]);
    script.read(&[(0, 4)]);
    script.handled().await;
    job.stop();
    let error = promptly(job.wait()).await.expect_err("no commit, no success");
    assert!(matches!(error, JobError::StopDeadline(DEADLINE)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn error_of_a_sink_that_hangs_in_close_is_told() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, mut job) = start(patient(), logs, &table);
    table.hang_in_close();
    table.fail_commits();
    script.assign(&[0]);
    script.read(&[(0, 4)]);
    script.revoke(&[0], DEADLINE);
    let error = promptly(job.wait()).await.expect_err("a commit failed");
    assert!(matches!(error, JobError::Sink { subtask: 0, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn cancel_drops_the_open_interval() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    script.assign(&[0]);
    script.read(&[(0, 2)]);
    script.handled().await;
    job.cancel();
    let error = promptly(job.wait()).await.expect_err("cancelled");
    assert!(matches!(error, JobError::Cancelled), "{error:?}");
    assert_eq!(table.rows(), [""; 0]);
    assert_eq!((table.look(|store| store.closed), script.closed()), (1, 1));

    let (mut script, mut job) = start(patient(), logs.clone(), &table);
    script.assign(&[0]);
    script.read(&[(0, 4)]);
    script.end();
    promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_a_job_whose_sink_is_stuck() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, mut job) = start(patient(), logs, &table);
    table.block(Block::Before);
    script.assign(&[0]);
    script.read(&[(0, 2)]);
    script.revoke(&[0], DEADLINE);
    table.until(|store| store.begun == 1).await;
    job.cancel();
    let error = promptly(job.wait()).await.expect_err("cancelled");
    assert!(matches!(error, JobError::Cancelled), "{error:?}");
    assert_eq!(table.rows(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_ends_all_tasks() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, job) = start(patient(), logs, &table);
    script.assign(&[0]);
    script.read(&[(0, 2)]);
    script.handled().await;
    drop(job);
    script.gone().await;
    table.until(|store| store.closed == 1).await;
    assert_eq!(table.rows(), [""; 0]);
}

/// [TPL-23] the engine's part so far: the policy is to stop.
#[tokio::test(start_paused = true)]
async fn refused_record_stops_the_job_and_nothing_of_its_interval_is_visible() {
    let (mut logs, table) = (numbered(&[6]), Table::new());
    logs[0][4] = "poison".to_owned();
    let (mut script, source) = Script::of(&Arc::new(logs.clone()));
    let policy = CommitPolicy { max_rows: 2, ..CommitPolicy::default() };
    let mut job = patient()
        .commit_policy(policy)
        .source("log", once(vec![source]))
        .map("text", |input: Input<'_, ()>| match text(input)? {
            poison if poison == "poison" => Err("not a row".into()),
            row => Ok(row),
        })
        .atomic_sink("table", once(vec![table.sink("us")]))
        .start()
        .expect("the shape is right");
    script.assign(&[0]);
    script.read(&[(0, 2)]);
    table.until(|store| store.commits.len() == 1).await;
    script.read(&[(0, 4)]);
    let error = promptly(job.wait()).await.expect_err("a record was refused");
    let JobError::Refused { coordinates, .. } = &error else { panic!("{error:?}") };
    let place = Coordinates { split: split(0), offset: 4 };
    assert_eq!(coordinates, &place);
    let message = ErrorChain(&error).to_string();
    assert!(message.contains("t-0@4") && message.contains("not a row"), "{message}");
    assert!(error.is_bad_record());
    assert_eq!(table.rows(), logs[0][..2]);
    assert_eq!(table.position(0), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_commit_ends_the_job_with_nothing_visible() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, mut job) = start(patient(), logs, &table);
    table.fail_commits();
    script.assign(&[0]);
    script.read(&[(0, 4)]);
    script.end();
    let error = promptly(job.wait()).await.expect_err("a commit failed");
    let message = ErrorChain(&error).to_string();
    assert_eq!(message, "sink \"table\", subtask 0: commit as the test wants it");
    assert_eq!(table.rows(), [""; 0]);
    assert_eq!((table.look(|store| store.closed), script.closed()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn failed_source_ends_the_job_with_nothing_of_its_interval_visible() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, mut job) = start(patient(), logs, &table);
    script.assign(&[0]);
    script.read(&[(0, 2)]);
    script.send(Step {
        read: vec![(0, 1)],
        holes: Vec::new(),
        then: Err(SourceError::new(ErrorClass::Fatal, "poll as the test wants it")),
    });
    let error = promptly(job.wait()).await.expect_err("a poll failed");
    let message = ErrorChain(&error).to_string();
    assert_eq!(message, "source \"log\", subtask 0: poll as the test wants it");
    assert_eq!(table.rows(), [""; 0]);
    assert_eq!((table.look(|store| store.closed), script.closed()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_step_ends_the_job_and_all_its_tasks() {
    let (mut logs, table) = (numbered(&[2, 2]), Table::new());
    logs[1][0] = "panic".to_owned();
    let logs = Arc::new(logs);
    let (mut fine, first) = Script::of(&logs);
    let (mut broken, second) = Script::of(&logs);
    let mut job = patient()
        .parallelism(2)
        .source("log", once(vec![first, second]))
        .map("text", |input: Input<'_, ()>| {
            let row = text(input)?;
            assert_ne!(row, "panic", "as the test wants it");
            Ok(row)
        })
        .atomic_sink("table", once(vec![table.sink("first"), table.sink("second")]))
        .start()
        .expect("the shape is right");
    fine.assign(&[0]);
    fine.read(&[(0, 2)]);
    fine.handled().await;
    broken.assign(&[1]);
    broken.read(&[(1, 2)]);
    let error = promptly(job.wait()).await.expect_err("a step panicked");
    assert!(matches!(error, JobError::Panicked { subtask: 1 }), "{error:?}");
    fine.gone().await;
    broken.gone().await;
    assert_eq!(table.rows(), [""; 0]);
    assert_eq!(table.look(|store| store.closed), 2);
}

/// [TPL-21] by the builder: nothing starts.
#[tokio::test(start_paused = true)]
async fn repeated_name_is_refused_by_the_builder() {
    let table = Table::new();
    let (script, source) = Script::of(&Arc::new(numbered(&[1])));
    let refusal = Job::new("job")
        .source("log", once(vec![source]))
        .map("text", text)
        .map("text", |input: Input<'_, String>| Ok(input.item().clone()))
        .atomic_sink("table", once(vec![table.sink("us")]))
        .start()
        .expect_err("two steps of one name");
    assert!(matches!(&refusal, ShapeError::RepeatedUid { uid, .. } if uid == "text"));
    assert!(refusal.to_string().contains("\"text\""), "{refusal}");
    script.gone().await;
    assert_eq!(table.look(|store| store.closed), 0);
}

/// [TPL-21] by the builder.
#[tokio::test(start_paused = true)]
async fn parallelism_of_zero_is_refused_by_the_builder() {
    let table = Table::new();
    let (script, job) = copying(Job::new("job").parallelism(0), numbered(&[1]), &table);
    assert_eq!(job.start().expect_err("no subtask"), ShapeError::NoSubtask);
    script.gone().await;
}

/// [TPL-17] A job that starts takes over from whoever ran before, and that one's commit fails.
#[tokio::test(start_paused = true)]
async fn second_start_takes_over_from_the_first() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut old, mut first) = start(patient(), logs.clone(), &table);
    old.assign(&[0]);
    old.read(&[(0, 3)]);
    old.handled().await;

    let (mut new, mut second) = start(patient(), logs.clone(), &table);
    new.send(Step::say(assigned(&[0], 1)));
    new.read(&[(0, 4)]);
    new.handled().await;
    first.stop();
    assert!(first.wait().await.expect_err("taken over").is_fenced());
    new.end();
    promptly(second.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

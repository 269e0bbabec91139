//! Random histories: whatever happens in whatever order, each record is in the table once.
//!
//! The table itself refuses a commit whose rows are not covered by its positions, so every history also proves that
//! nothing is committed beyond the newest offer.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use levada_core::Polled;
use levada_core::async_io::{AsyncSettings, Batching};
use levada_engine::{CommitPolicy, Job, JobError, JobHandle};
use proptest::prelude::*;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep_until};

use crate::scripted::{HANG, Logs, Script, numbered, once, promptly, revoked, split, start, text};
use crate::table::{Block, Table, all_of};

const SPLITS: u32 = 3;
const LENGTH: usize = 24;
const RIVAL: &str = "rival";

/// One thing that happens. Splits are bits of a mask; those that do not apply are left out.
#[derive(Debug, Clone)]
enum Event {
    Read(Vec<(u32, u64)>),
    Assign(u32),
    Lose(u32),
    /// The loss is noticed by a poll that appended records before.
    ReadAndLose(Vec<(u32, u64)>, u32),
    /// Another process is quicker than the source's word of the loss, and commits some records.
    StealAndLose(u32, u64),
    Revoke(u32, u64),
    ReadAndRevoke(Vec<(u32, u64)>, u32, u64),
    /// The same for a revoke.
    StealAndRevoke(u32, u64, u64),
    /// Another process takes splits that are not ours, and commits some records.
    Rival(u32, u64),
    Block(bool),
    Unblock,
    Pass(u64),
    Yield(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    End,
    Stop,
    Cancel,
}

fn reads() -> impl Strategy<Value = Vec<(u32, u64)>> {
    prop::collection::vec((0..SPLITS, 1..6_u64), 1..4)
}

fn event() -> impl Strategy<Value = Event> {
    let mask = 1..1_u32 << SPLITS;
    let within = 0..60_u64;
    prop_oneof![
        8 => reads().prop_map(Event::Read),
        4 => mask.clone().prop_map(Event::Assign),
        1 => mask.clone().prop_map(Event::Lose),
        1 => (reads(), mask.clone()).prop_map(|(read, mask)| Event::ReadAndLose(read, mask)),
        1 => (mask.clone(), 0..4_u64).prop_map(|(mask, count)| Event::StealAndLose(mask, count)),
        1 => (mask.clone(), within.clone()).prop_map(|(mask, within)| Event::Revoke(mask, within)),
        1 => (reads(), mask.clone(), within.clone())
            .prop_map(|(read, mask, within)| Event::ReadAndRevoke(read, mask, within)),
        1 => (mask.clone(), 0..4_u64, within)
            .prop_map(|(mask, count, within)| Event::StealAndRevoke(mask, count, within)),
        1 => (mask, 0..4_u64).prop_map(|(mask, count)| Event::Rival(mask, count)),
        1 => any::<bool>().prop_map(Event::Block),
        2 => Just(Event::Unblock),
        2 => (1..60_u64).prop_map(Event::Pass),
        4 => (1..20_u8).prop_map(Event::Yield),
    ]
}

fn policy() -> impl Strategy<Value = CommitPolicy> {
    (1..12_u64, 1..60_u64, 1..60_u64, 1..60_u64).prop_map(|(rows, bytes, age, age_without_rows)| {
        CommitPolicy {
            max_rows: rows,
            max_bytes: bytes,
            max_age: Duration::from_millis(age),
            max_age_without_rows: Duration::from_millis(age_without_rows),
        }
    })
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![2 => Just(Ending::End), 1 => Just(Ending::Stop), 1 => Just(Ending::Cancel)]
}

/// The world around one subtask.
struct World {
    script: Script,
    table: Table,
    logs: Logs,
    /// The splits that the source says are the subtask's.
    ours: u32,
    /// Rows that the rival committed.
    rival_rows: u64,
}

fn indexes(mask: u32) -> Vec<u32> {
    (0..SPLITS).filter(|index| mask & (1 << index) != 0).collect()
}

impl World {
    async fn happen(&mut self, event: &Event) {
        match event {
            Event::Read(read) => self.script.read(read),
            Event::Assign(mask) => {
                let new = mask & !self.ours;
                self.ours |= new;
                self.script.assign(&indexes(new));
            }
            Event::Lose(mask) => self.lose(&[], *mask),
            Event::ReadAndLose(read, mask) => self.lose(read, *mask),
            Event::StealAndLose(mask, count) => {
                self.steal(mask & self.ours, *count);
                self.lose(&[], *mask);
            }
            Event::Revoke(mask, within) => self.revoke(&[], *mask, *within),
            Event::ReadAndRevoke(read, mask, within) => self.revoke(read, *mask, *within),
            Event::StealAndRevoke(mask, count, within) => {
                self.steal(mask & self.ours, *count);
                self.revoke(&[], *mask, *within);
            }
            Event::Rival(mask, count) => self.steal(mask & !self.ours, *count),
            Event::Block(true) => self.table.block(Block::Before),
            Event::Block(false) => self.table.block(Block::After),
            Event::Unblock => self.table.unblock(),
            Event::Pass(ms) => advance(Duration::from_millis(*ms)).await,
            Event::Yield(times) => {
                for _ in 0..*times {
                    yield_now().await;
                }
            }
        }
    }

    fn lose(&mut self, read: &[(u32, u64)], mask: u32) {
        let lost = indexes(mask & self.ours).into_iter().map(split).collect();
        self.ours &= !mask;
        self.script.read_and(read, Polled::Lost(lost));
    }

    fn revoke(&mut self, read: &[(u32, u64)], mask: u32, within: u64) {
        let taken = indexes(mask & self.ours);
        self.ours &= !mask;
        self.script.read_and(read, revoked(&taken, Duration::from_millis(within)));
    }

    fn steal(&mut self, mask: u32, count: u64) {
        for index in indexes(mask) {
            self.table.rival_claims(index, RIVAL);
            self.rival_rows += self.table.rival_commits(index, RIVAL, &self.logs, count);
        }
    }

    fn read_everything(&mut self) {
        self.script.assign(&indexes(!self.ours));
        self.script.read(&[(0, u64::MAX / 2), (1, u64::MAX / 2), (2, u64::MAX / 2)]);
        self.script.end();
    }
}

/// Starts a job over these logs.
type Start<'a> = &'a dyn Fn(Job, Logs, &Table) -> (Script, JobHandle);

async fn live(events: Vec<Event>, policy: CommitPolicy, ending: Ending, start: Start<'_>) {
    let (logs, table) = (numbered(&[LENGTH; SPLITS as usize]), Table::new());
    let job = Job::new("job").commit_policy(policy);
    let (script, mut job_handle) = start(job.clone(), logs.clone(), &table);
    let mut world = World { script, table: table.clone(), logs: logs.clone(), ours: 0, rival_rows: 0 };
    for event in &events {
        world.happen(event).await;
    }
    table.unblock();
    match ending {
        Ending::End => world.read_everything(),
        Ending::Stop => job_handle.stop(),
        Ending::Cancel => job_handle.cancel(),
    }
    let outcome = promptly(job_handle.wait()).await;
    assert_eq!(table.rows(), table.rows_before_positions(&logs), "{outcome:?}");
    match (ending, outcome) {
        (Ending::End, Ok(report)) => {
            let total = SPLITS as u64 * LENGTH as u64;
            assert_eq!(table.rows(), all_of(&logs));
            assert_eq!(report.balance.committed.written, total - world.rival_rows);
            assert_eq!(report.balance.check(), Ok(()));
        }
        (Ending::Stop, Ok(report)) => assert_eq!(report.balance.check(), Ok(())),
        // The source was not asked any more, so its word of the loss did not come.
        (Ending::Stop, Err(error)) if error.is_fenced() => {}
        (Ending::Cancel, Err(JobError::Cancelled)) => {}
        (_, outcome) => panic!("{outcome:?}"),
    }

    // The next start finishes what this one left.
    let (script, mut next_job) = start(job, logs.clone(), &table);
    let mut world = World { script, ours: 0, ..world };
    world.read_everything();
    promptly(next_job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
}

/// How the calls of a history are made.
#[derive(Debug, Clone, Copy)]
struct Calls {
    capacity: usize,
    order: u8,
    /// Inputs a call; 1 for the form without batches.
    batch: usize,
    /// What decides how long each call takes.
    seed: u64,
}

fn calls() -> impl Strategy<Value = Calls> {
    let calls = (1..12_usize, 0..3_u8, 1..4_usize, any::<u64>());
    calls.prop_map(|(capacity, order, batch, seed)| Calls { capacity, order, batch, seed })
}

/// Some calls are answered at once, others in up to 15 ms.
async fn after(seed: u64, record: &str) {
    let mut hasher = DefaultHasher::new();
    (seed, record).hash(&mut hasher);
    let millis = hasher.finish() % 32;
    if millis < 16 {
        sleep_until(Instant::now() + Duration::from_millis(millis)).await;
    }
}

/// Starts a job of one subtask that asks somebody about each record, and writes it as it is.
fn start_calling(calls: Calls, job: Job, logs: Logs, table: &Table) -> (Script, JobHandle) {
    let Calls { capacity, order, batch, seed } = calls;
    let (script, source) = Script::of(&std::sync::Arc::new(logs));
    let settings = AsyncSettings::new().capacity(capacity);
    let settings = match order {
        0 => settings.ordered(),
        1 => settings.unordered(),
        _ => settings.key_ordered_by(|record: &String| record.len()),
    };
    let echo = move |inputs: Vec<std::sync::Arc<String>>| async move {
        let first = inputs.first().map(|record| record.to_string()).unwrap_or_default();
        after(seed, &first).await;
        Ok(inputs.iter().map(|record| Ok(vec![record.to_string()])).collect())
    };
    let read = job.source("log", once(vec![source])).map("text", text);
    let called = read.async_map_many("echo", echo, settings, Batching::new(batch));
    let job = called.atomic_sink("table", {
        let table = table.clone();
        move |_| table.sink("us")
    });
    (script, job.start().expect("the shape is right"))
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A step of a history on two threads: reads by both subtasks, then maybe a split changes hands.
type Handover = (Vec<(u32, u64)>, Vec<(u32, u64)>, Option<(u32, bool)>);

fn handovers() -> impl Strategy<Value = Vec<Handover>> {
    let change = prop::option::of((0..SPLITS, any::<bool>()));
    prop::collection::vec((reads(), reads(), change), 1..12)
}

/// Two subtasks pass splits to each other; the new one claims at the same time as the old one hears of it.
async fn pass_splits_around(history: Vec<Handover>, policy: CommitPolicy) {
    let (logs, table) = (numbered(&[LENGTH; SPLITS as usize]), Table::new());
    let shared = std::sync::Arc::new(logs.clone());
    let (first, first_source) = Script::of(&shared);
    let (second, second_source) = Script::of(&shared);
    let mut job = Job::new("job")
        .parallelism(2)
        .commit_policy(policy)
        .source("log", once(vec![first_source, second_source]))
        .map("text", text)
        .atomic_sink("table", once(vec![table.sink("first"), table.sink("second")]))
        .start()
        .expect("the shape is right");
    let mut scripts = [first, second];
    scripts[0].assign(&[0, 2]);
    scripts[1].assign(&[1]);
    let mut owner = [0, 1, 0];
    for (read_first, read_second, change) in history {
        scripts[0].read(&read_first);
        scripts[1].read(&read_second);
        let Some((index, is_lost)) = change else { continue };
        let old = owner[index as usize];
        let new = 1 - old;
        // The old owner must have claimed it before the new one does; all the rest is a race.
        scripts[old].handled().await;
        if is_lost {
            scripts[old].lose(&[index]);
        } else {
            scripts[old].revoke(&[index], HANG);
        }
        scripts[new].assign(&[index]);
        owner[index as usize] = new;
    }
    for script in &mut scripts {
        script.read(&[(0, u64::MAX / 2), (1, u64::MAX / 2), (2, u64::MAX / 2)]);
        script.end();
    }
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(table.rows(), all_of(&logs));
    assert_eq!(report.balance.committed.written, SPLITS as u64 * LENGTH as u64);
}

proptest! {
    #![proptest_config(config(4000))]

    /// [TPL-22] [TPL-17] [BRG-09]
    #[test]
    fn every_record_is_in_the_table_once_whatever_happens(
        events in prop::collection::vec(event(), 0..40),
        policy in policy(),
        ending in ending(),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
            .block_on(live(events, policy, ending, &start));
    }
}

proptest! {
    #![proptest_config(config(2000))]

    /// [ASY-08] [ASY-09] [ASY-03] [TPL-22] The same with calls in flight, in every order: what is committed is what the positions
    /// cover, whatever is lost, revoked or stolen meanwhile.
    #[test]
    fn every_record_is_in_the_table_once_with_calls_in_flight(
        events in prop::collection::vec(event(), 0..40),
        policy in policy(),
        ending in ending(),
        calls in calls(),
    ) {
        let start = |job: Job, logs: Logs, table: &Table| start_calling(calls, job, logs, table);
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
            .block_on(live(events, policy, ending, &start));
    }
}

proptest! {
    #![proptest_config(config(300))]

    /// [TPL-22] The same where the tasks of the job really run at the same time.
    #[test]
    fn splits_that_change_hands_lose_and_double_nothing(history in handovers(), policy in policy()) {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(pass_splits_around(history, policy));
    }
}

//! Random histories: a process that dies in any call, notifications that are lost, late and doubled, checkpoints that
//! never complete, another parallelism after each restart; against an oracle that knows only what the source has emitted.

use std::collections::BTreeSet;
use std::future::Future;

use levada_core::{CheckpointId, ErrorClass, State};
use levada_engine::driver::{DriverError, JobRecovery, Restored, SinkDriver};
use proptest::prelude::*;

use crate::scripted::{Faults, barrier, context, deal, write};
use crate::{segments, transactions};

/// One thing that happens.
#[derive(Debug, Clone)]
enum Event {
    /// The source emits so many numbers, and they go to the subtasks in turn.
    Emit(u64),
    /// A barrier passes all subtasks.
    Barrier(Fate),
    /// A notification of one of the latest complete checkpoints comes late, or once more.
    Notify(usize),
    /// The process dies in the call behind so many others, with its effect or without.
    Light(u32, bool),
    /// The process dies between two calls.
    Die,
    /// The next calls that make something visible fail.
    Fail(u8),
    /// The next call that makes something visible, or notes it, does so, and its answer is lost.
    LoseAnswer(bool),
}

/// What becomes of a checkpoint.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It is complete, and everybody is told.
    Complete,
    /// It is complete, and only the first subtask is told.
    HalfTold,
    /// It is complete, and nobody is told.
    Untold,
    /// It is aborted.
    Aborted,
}

fn event() -> impl Strategy<Value = Event> {
    let fate = prop_oneof![
        4 => Just(Fate::Complete),
        1 => Just(Fate::HalfTold),
        2 => Just(Fate::Untold),
        2 => Just(Fate::Aborted),
    ];
    prop_oneof![
        6 => (1..6_u64).prop_map(Event::Emit),
        6 => fate.prop_map(Event::Barrier),
        2 => (0..3_usize).prop_map(Event::Notify),
        2 => (0..8_u32, any::<bool>()).prop_map(|(calls, effect)| Event::Light(calls, effect)),
        1 => Just(Event::Die),
        1 => (1..5_u8).prop_map(Event::Fail),
        1 => any::<bool>().prop_map(Event::LoseAnswer),
    ]
}

/// A kind of sink: how it is driven, and what is done once a job before its subtasks open.
trait Kind {
    type Driver: SinkDriver<u64>;

    fn driver(&self) -> Self::Driver;
    fn faults<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R;
    fn fail(&self, times: usize);
    async fn recover(&self, first: CheckpointId, newest: Option<&Complete>) -> Result<(), DriverError>;
}

impl Kind for transactions::Target {
    type Driver = transactions::Driver;

    fn driver(&self) -> Self::Driver {
        self.driver()
    }

    fn faults<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        change(&mut self.lock().faults)
    }

    fn fail(&self, times: usize) {
        self.lock().faults.fail("commit", ErrorClass::Reconnect, times);
    }

    async fn recover(&self, first: CheckpointId, newest: Option<&Complete>) -> Result<(), DriverError> {
        let states = newest.map_or(&[][..], |newest| &newest.states);
        let recovery = JobRecovery::<String>::read(states)?;
        recovery.fence(&mut self.sink(), first, newest.map(|newest| newest.checkpoint)).await
    }
}

impl Kind for segments::Target {
    type Driver = segments::Driver;

    fn driver(&self) -> Self::Driver {
        self.driver()
    }

    fn faults<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        change(&mut self.lock().faults)
    }

    fn fail(&self, times: usize) {
        let verb = if times.is_multiple_of(2) { "send" } else { "is_committed" };
        self.lock().faults.fail(verb, ErrorClass::Reconnect, times);
    }

    async fn recover(&self, _first: CheckpointId, _newest: Option<&Complete>) -> Result<(), DriverError> {
        Ok(())
    }
}

/// A complete checkpoint.
#[derive(Debug, Clone)]
struct Complete {
    checkpoint: CheckpointId,
    /// How many numbers the source had emitted.
    position: u64,
    states: Vec<State>,
}

/// The job around the drivers.
struct World<K: Kind> {
    kind: K,
    drivers: Vec<K::Driver>,
    /// The parallelism of each start, over and over.
    parallelisms: Vec<usize>,
    attempt: u64,
    sequence: u64,
    position: u64,
    complete: Vec<Complete>,
}

impl<K: Kind> World<K> {
    fn new(kind: K, parallelisms: Vec<usize>) -> Self {
        let (drivers, complete) = (Vec::new(), Vec::new());
        Self { kind, drivers, parallelisms, attempt: 0, sequence: 0, position: 0, complete }
    }

    /// Starts anew from the latest complete checkpoint.
    async fn start(&mut self) -> Result<(), DriverError> {
        self.drivers.clear();
        self.kind.faults(Faults::revive);
        self.attempt += 1;
        self.sequence = 0;
        let newest = self.complete.last().cloned();
        self.position = newest.as_ref().map_or(0, |newest| newest.position);
        self.kind.recover(CheckpointId::new(self.attempt, 1), newest.as_ref()).await?;

        let parallelism = self.parallelisms[self.attempt as usize % self.parallelisms.len()];
        let shares = newest.as_ref().map(|newest| deal(&newest.states, parallelism));
        for subtask in 0..parallelism {
            let mut driver = self.kind.driver();
            let share = shares.as_ref().map(|shares| shares[subtask].clone());
            let restored = newest.as_ref().zip(share);
            let restored = restored.map(|(newest, state)| Restored { checkpoint: newest.checkpoint, state });
            driver.open(context(subtask as u32, parallelism as u32, self.attempt), restored).await?;
            self.drivers.push(driver);
        }
        Ok(())
    }

    async fn happen(&mut self, event: &Event) -> Result<(), DriverError> {
        match event {
            Event::Emit(count) => self.emit(*count).await?,
            Event::Barrier(fate) => self.barrier(*fate).await?,
            Event::Notify(back) => {
                if let Some(at) = self.complete.len().checked_sub(back + 1) {
                    self.notify(self.complete[at].checkpoint, usize::MAX).await?;
                }
            }
            Event::Light(calls, has_effect) => {
                self.kind.faults(|faults| faults.light(*calls, *has_effect));
            }
            Event::Die => self.start().await?,
            Event::Fail(times) => self.kind.fail(usize::from(*times)),
            Event::LoseAnswer(notes) => {
                let verb = if *notes { "commit" } else { "send" };
                self.kind.faults(|faults| faults.lose_answer(verb));
            }
        }
        Ok(())
    }

    async fn emit(&mut self, count: u64) -> Result<(), DriverError> {
        for _ in 0..count {
            self.position += 1;
            let subtask = self.position as usize % self.drivers.len();
            write(&mut self.drivers[subtask], [self.position]).await?;
        }
        Ok(())
    }

    async fn barrier(&mut self, fate: Fate) -> Result<(), DriverError> {
        self.sequence += 1;
        let checkpoint = CheckpointId::new(self.attempt, self.sequence);
        let mut states = Vec::new();
        for driver in &mut self.drivers {
            states.push(barrier(driver, checkpoint).await?);
        }
        let told = match fate {
            Fate::Aborted => {
                self.drivers.iter_mut().for_each(|driver| driver.aborted(checkpoint));
                return Ok(());
            }
            Fate::Complete => usize::MAX,
            Fate::HalfTold => 1,
            Fate::Untold => 0,
        };
        self.complete.push(Complete { checkpoint, position: self.position, states });
        self.notify(checkpoint, told).await
    }

    async fn notify(&mut self, checkpoint: CheckpointId, told: usize) -> Result<(), DriverError> {
        for driver in self.drivers.iter_mut().take(told) {
            driver.complete(checkpoint).await?;
        }
        Ok(())
    }

    /// Lets something happen, and starts anew if the task failed or the process died of it. A start has nothing left to
    /// fail at.
    async fn survive(&mut self, event: &Event) {
        let happened = self.happen(event).await;
        if happened.is_err() || self.kind.faults(|faults| faults.is_dead()) {
            self.start().await.unwrap();
        }
    }

    /// Ends the job: the last checkpoint, and its notification.
    async fn end(&mut self) {
        self.survive(&Event::Die).await;
        for driver in &mut self.drivers {
            driver.finish().await.unwrap();
        }
        self.barrier(Fate::Complete).await.unwrap();
        for driver in &mut self.drivers {
            assert_eq!(driver.tally().pending(), 0);
            driver.close().await;
        }
    }
}

/// Plays a history and returns how many numbers were emitted.
async fn play<K: Kind>(kind: K, parallelisms: Vec<usize>, events: &[Event]) -> u64 {
    let mut world = World::new(kind, parallelisms);
    world.start().await.unwrap();
    for event in events {
        world.survive(event).await;
    }
    world.end().await;
    world.position
}

fn run<R>(history: impl Future<Output = R>) -> R {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(history)
}

fn numbers_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(), 0..40)
}

fn parallelisms() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..4_usize, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// [TPL-10] [TPL-11] [TPL-12] [CHK-04] [CHK-05]
    #[test]
    fn two_phase_commit_makes_each_record_visible_exactly_once(events in events(), parallelisms in parallelisms()) {
        let target = transactions::Target::default();
        let is_alone = parallelisms.iter().all(|parallelism| *parallelism == 1);
        let last = run(play(target.clone(), parallelisms, &events));
        let mut visible = target.visible();
        if !is_alone {
            visible.sort_unstable();
        }
        prop_assert_eq!(visible, numbers_to(last));
        prop_assert_eq!(target.left_over(), (vec![], vec![]));
    }

    /// [TPL-11] One subtask keeps the order, whatever happens.
    #[test]
    fn two_phase_commit_keeps_the_order(events in events()) {
        let target = transactions::Target::default();
        let last = run(play(target.clone(), vec![1], &events));
        prop_assert_eq!(target.visible(), numbers_to(last));
    }

    /// [TPL-06] [TPL-08] The target itself asserts that no segment comes again once its marker was committed, and that one
    /// that comes again is the same.
    #[test]
    fn write_ahead_makes_each_record_visible_at_least_once(events in events(), parallelisms in parallelisms()) {
        let target = segments::Target::default();
        let last = run(play(target.clone(), parallelisms, &events));
        let visible = target.visible().into_iter().collect::<BTreeSet<_>>();
        prop_assert_eq!(visible.into_iter().collect::<Vec<_>>(), numbers_to(last));
    }

    /// [TPL-06] A repetition is of the segment that was sent last, as a whole, so that without repetitions the order is the
    /// source's.
    #[test]
    fn write_ahead_keeps_the_order_and_repeats_only_the_last_segment(events in events()) {
        let target = segments::Target::default();
        let last = run(play(target.clone(), vec![1], &events));
        let mut sent = target.lock().sent.clone();
        sent.dedup();
        let numbers = sent.into_iter().flat_map(|(.., numbers)| numbers).collect::<Vec<_>>();
        prop_assert_eq!(numbers, numbers_to(last));
    }

    /// [TPL-07]
    #[test]
    fn write_ahead_with_a_shared_transaction_makes_each_record_visible_exactly_once(
        events in events(),
        parallelisms in parallelisms(),
    ) {
        let target = segments::Target::sharing();
        let last = run(play(target.clone(), parallelisms, &events));
        let mut visible = target.visible();
        visible.sort_unstable();
        prop_assert_eq!(visible, numbers_to(last));
    }

    /// [TPL-06] [TPL-07]
    #[test]
    fn write_ahead_with_a_shared_transaction_keeps_the_order(events in events()) {
        let target = segments::Target::sharing();
        let last = run(play(target.clone(), vec![1], &events));
        prop_assert_eq!(target.visible(), numbers_to(last));
    }
}

/// An oracle that cannot fail is none.
#[test]
fn the_oracle_sees_a_lost_state() {
    let target = transactions::Target::default();
    let last = run(async {
        let mut world = World::new(target.clone(), vec![1]);
        world.start().await.unwrap();
        world.happen(&Event::Emit(3)).await.unwrap();
        world.happen(&Event::Barrier(Fate::Untold)).await.unwrap();
        world.complete[0].states = vec![State::new()];
        world.end().await;
        world.position
    });
    assert_eq!(last, 3);
    assert!(target.visible().is_empty());
}

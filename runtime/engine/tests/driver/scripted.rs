//! Batches, a clock, faults and openings for scripted sinks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use levada_core::batch::RawRecord;
use levada_core::template::WriteContext;
use levada_core::{
    Batch, BatchBuilder, CheckpointId, Clock, ErrorClass, ListState, Record, SinkContext, SinkError, SplitId,
    Spread, State, Timestamp,
};
use levada_engine::driver::{DriverContext, DriverError, Restored, SinkDriver};

/// Makes a batch of numbers.
pub(crate) fn batch(numbers: impl IntoIterator<Item = u64>) -> Batch<u64> {
    let numbers = numbers.into_iter().collect::<Vec<_>>();
    let mut builder = BatchBuilder::new();
    let split = builder.split(&SplitId::new("numbers", 0));
    for offset in 0..numbers.len() as u64 {
        builder.push(split, RawRecord { offset, ..RawRecord::default() });
    }
    let (parts, records) = builder.finish().0.into_parts();
    let number = |(record, item): (Record<()>, u64)| Record { origin: record.origin, item };
    parts.with_records(records.into_iter().zip(numbers).map(number).collect())
}

/// Makes a checkpoint of the first attempt.
pub(crate) fn id(sequence: u64) -> CheckpointId {
    CheckpointId::new(1, sequence)
}

/// When a checkpoint was triggered, in tests.
pub(crate) fn time_of(checkpoint: CheckpointId) -> Timestamp {
    Timestamp((checkpoint.attempt * 1_000 + checkpoint.sequence) as i64)
}

/// A clock that stands until it is set.
#[derive(Debug, Default)]
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Says who a driver is: subtask and parallelism, and the attempt it runs in.
pub(crate) fn context(subtask: u32, parallelism: u32, attempt: u64) -> DriverContext {
    let first = CheckpointId::new(attempt, 0);
    let sink = SinkContext { job: String::from("job"), subtask, parallelism };
    DriverContext { sink, uid: String::from("sink"), first, clock: Arc::new(ManualClock::default()) }
}

/// The same with a clock.
pub(crate) fn context_at(clock: &Arc<ManualClock>, attempt: u64) -> DriverContext {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    DriverContext { clock, ..context(0, 1, attempt) }
}

/// Hands a stored state back, as that of `checkpoint`.
pub(crate) fn restored(checkpoint: CheckpointId, state: &State) -> Option<Restored> {
    Some(Restored { checkpoint, state: state.clone() })
}

/// Writes numbers.
pub(crate) async fn write<D: SinkDriver<u64>>(
    driver: &mut D,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<(), DriverError> {
    let ctx = WriteContext { processing_time: Timestamp(0), watermark: Timestamp(i64::MIN) };
    driver.write(batch(numbers), &ctx).await
}

/// Sends a barrier.
pub(crate) async fn barrier<D: SinkDriver<u64>>(
    driver: &mut D,
    checkpoint: CheckpointId,
) -> Result<State, DriverError> {
    driver.barrier(checkpoint, time_of(checkpoint)).await
}

/// Deals states out for a parallelism, as a restore does: own lists at the same one, else contiguous chunks of all
/// elements.
pub(crate) fn deal(states: &[State], parallelism: usize) -> Vec<State> {
    if states.len() == parallelism {
        return states.to_vec();
    }
    let mut all: HashMap<String, ListState> = HashMap::new();
    for (name, list) in states.iter().flat_map(State::iter) {
        let empty = ListState::new(Spread::Split, list.version, Vec::new());
        let joined = all.entry(name.to_owned()).or_insert(empty);
        joined.elements = joined.elements.iter().chain(&list.elements).cloned().collect();
    }
    let mut dealt = vec![State::new(); parallelism];
    for (name, list) in all {
        let (size, longer) = (list.elements.len() / parallelism, list.elements.len() % parallelism);
        let mut elements = list.elements.iter().cloned();
        for (index, state) in dealt.iter_mut().enumerate() {
            let share = elements.by_ref().take(size + usize::from(index < longer)).collect();
            state.insert(name.clone(), ListState::of(Spread::Split, list.version, share));
        }
    }
    dealt
}

/// What goes wrong with the calls of a scripted system.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// For a verb: what its next calls come to, and whether they still have their effect.
    failures: HashMap<&'static str, VecDeque<(ErrorClass, bool)>>,
    /// The process dies in a call: how many come before it, and whether that one still has its effect.
    fuse: Option<(u32, bool)>,
    is_dead: bool,
}

/// A call that was let through.
#[must_use]
pub(crate) struct Entered {
    answer: Result<(), SinkError>,
}

impl Entered {
    /// Ends the call, whose effect is there.
    pub(crate) fn leave(self) -> Result<(), SinkError> {
        self.answer
    }
}

fn death() -> SinkError {
    SinkError::new(ErrorClass::Fatal, "the process has died")
}

impl Faults {
    /// Lets the next calls of a verb fail.
    pub(crate) fn fail(&mut self, verb: &'static str, class: ErrorClass, times: usize) {
        self.failures.entry(verb).or_default().extend(std::iter::repeat_n((class, false), times));
    }

    /// Lets the next call of a verb have its effect and its answer be lost.
    pub(crate) fn lose_answer(&mut self, verb: &'static str) {
        self.failures.entry(verb).or_default().push_back((ErrorClass::Reconnect, true));
    }

    /// Lets the process die in the call behind `calls` others, with its effect or without.
    pub(crate) fn light(&mut self, calls: u32, has_effect: bool) {
        self.fuse = Some((calls, has_effect));
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// Another process has started; nothing is planned for it.
    pub(crate) fn revive(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn enter(&mut self, verb: &'static str) -> Result<Entered, SinkError> {
        if self.is_dead {
            return Err(death());
        }
        let dies = self.burn();
        if let Some(has_effect) = dies {
            return if has_effect { Ok(Entered { answer: Err(death()) }) } else { Err(death()) };
        }
        let Some((class, has_effect)) = self.failures.get_mut(verb).and_then(VecDeque::pop_front) else {
            return Ok(Entered { answer: Ok(()) });
        };
        let error = SinkError::new(class, format!("{verb} was told to fail"));
        if has_effect { Ok(Entered { answer: Err(error) }) } else { Err(error) }
    }

    /// Tells whether the process dies in this call, and if so, whether the call has its effect.
    fn burn(&mut self) -> Option<bool> {
        let (calls, has_effect) = self.fuse?;
        if calls > 0 {
            self.fuse = Some((calls - 1, has_effect));
            return None;
        }
        self.fuse = None;
        self.is_dead = true;
        Some(has_effect)
    }
}

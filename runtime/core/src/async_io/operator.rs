//! Calls in flight, as a machine without I/O: who is called when, what an answer leads to, and what may leave.
//!
//! ```text
//!  accept ─▶ gathered ─ next_call ─▶ called ─ answered ─┬─▶ done ─ pop ─▶
//!               ▲                                       │
//!               └────────── wake ◀── waits for a retry ◀┘         timeout: done, from wherever it stands
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::CallError;
use super::function::Called;
use super::metrics::CallMetrics;
use super::queue::{Held, Left, Order, Place, Queue};
use super::settings::{AsyncSettings, Batching, OnError, SettingsError};
use crate::error::ErrorClass;

/// The number of a call; none is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// A call that is to be made.
#[derive(Debug)]
pub struct Call<I> {
    /// Its number, for the answer.
    pub id: CallId,
    /// The inputs; one in the form without batches.
    pub inputs: Vec<Arc<I>>,
}

/// What came of an input in the end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<O> {
    /// Outputs, or none.
    Outputs(Vec<O>),
    /// Nothing, by policy.
    Dropped(CallError),
    /// It is refused, by policy.
    Refused(CallError),
    /// The job fails.
    Failed(CallError),
}

/// An input, with what belongs to it.
#[derive(Debug)]
pub struct Pending<I, T> {
    /// The input.
    pub input: Arc<I>,
    /// What its owner has to know of it.
    pub tag: T,
    bytes: usize,
    attempts: u32,
    stands: Stands,
    timeout_at: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Waits for its call to be made.
    Gathered,
    InCall(CallId),
    /// Waits for its next attempt.
    ToRetry {
        at: Duration,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Timeout,
    Retry,
}

#[derive(Debug)]
struct Open {
    places: Vec<Place>,
    /// How many of them still wait for this call.
    awaited: usize,
    since: Duration,
}

/// The calls of one subtask.
///
/// `I` are inputs, `O` outputs, `T` what the owner keeps with an input, and `M` marks. Times are durations since a moment of
/// the owner's choice, and never go back.
#[derive(Debug)]
pub struct Operator<I, O, T, M> {
    settings: AsyncSettings<I, O>,
    batching: Batching,
    most_calls: usize,
    queue: Queue<Pending<I, T>, Outcome<O>, M>,
    alarms: BTreeSet<(Duration, Place, Alarm)>,
    /// Inputs that wait for their call, and since when.
    gathered: VecDeque<(Place, Duration)>,
    calls: BTreeMap<CallId, Open>,
    next_call: u64,
    /// Calls that nobody waits for any more.
    given_up: Vec<CallId>,
    bytes: usize,
    is_ending: bool,
    /// Whether an outcome has failed the job.
    has_failed: bool,
    metrics: CallMetrics,
}

impl<I, O, T, M> Operator<I, O, T, M> {
    /// Makes the operator of a function that takes one input a call. `order` counts where the settings name none.
    ///
    /// # Errors
    /// The settings cannot work.
    pub fn single(settings: AsyncSettings<I, O>, order: Order) -> Result<Self, SettingsError> {
        let slots = settings.slots()?;
        Self::new(settings, Batching::single(), order, slots, usize::MAX)
    }

    /// Makes the operator of a function that takes many inputs a call.
    ///
    /// # Errors
    /// The settings cannot work.
    pub fn batched(
        settings: AsyncSettings<I, O>,
        batching: Batching,
        order: Order,
    ) -> Result<Self, SettingsError> {
        batching.check_within(settings.timeout)?;
        let calls = settings.slots()?.get();
        let inputs = batching.in_flight.unwrap_or(calls.saturating_mul(batching.inputs));
        let slots = NonZeroUsize::new(inputs).ok_or(SettingsError::NoInputs)?;
        Self::new(settings, batching, order, slots, calls)
    }

    fn new(
        settings: AsyncSettings<I, O>,
        batching: Batching,
        order: Order,
        slots: NonZeroUsize,
        most_calls: usize,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let order = settings.order.unwrap_or(order);
        Ok(Self {
            settings,
            batching,
            most_calls,
            queue: Queue::new(order, slots),
            alarms: BTreeSet::new(),
            gathered: VecDeque::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            given_up: Vec::new(),
            bytes: 0,
            is_ending: false,
            has_failed: false,
            metrics: CallMetrics::default(),
        })
    }

    /// Returns the settings.
    pub fn settings(&self) -> &AsyncSettings<I, O> {
        &self.settings
    }

    /// Tells whether an input of so many bytes may be let in now.
    pub fn has_room(&self, bytes: usize) -> bool {
        let fits = self.bytes == 0 || self.bytes.saturating_add(bytes) <= self.batching.bytes;
        fits && !self.queue.is_full()
    }

    /// Tells whether nothing is left: nothing in flight, and nothing that has not left.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Lets an input in, which has waited for its slot since `arrived`. Its time begins now.
    pub fn accept(
        &mut self,
        input: Arc<I>,
        tag: T,
        key: u64,
        bytes: usize,
        arrived: Duration,
        now: Duration,
    ) {
        let timeout_at = self.settings.timeout.map(|timeout| now.saturating_add(timeout));
        let stands = Stands::Gathered;
        let place = self.queue.put(Pending { input, tag, bytes, attempts: 0, stands, timeout_at }, key);
        self.bytes = self.bytes.saturating_add(bytes);
        self.gathered.push_back((place, now));
        self.alarms.extend(timeout_at.map(|at| (at, place, Alarm::Timeout)));
        self.metrics.queue_wait.record(now.saturating_sub(arrived));
    }

    /// Puts a mark that takes up room: a watermark.
    pub fn mark(&mut self, mark: M) {
        self.queue.mark(mark);
    }

    /// Puts a mark that takes up no room.
    pub fn mark_for_free(&mut self, mark: M) {
        self.queue.mark_for_free(mark);
    }

    /// Returns the last element, if it is a mark.
    pub fn last_mark_mut(&mut self) -> Option<&mut M> {
        self.queue.last_mark_mut()
    }

    /// No input follows: retries that wait are made at once, and their outcome is final, as is that of all others.
    pub fn end(&mut self, now: Duration) {
        self.is_ending = true;
        let waiting: Vec<Place> = self.queue.waiting_places().map(|(place, _)| place).collect();
        for place in waiting {
            if let Some(pending) = self.queue.waiting_mut(place)
                && let Stands::ToRetry { at } = pending.stands
            {
                pending.stands = Stands::Gathered;
                self.alarms.remove(&(at, place, Alarm::Retry));
                self.gathered.push_back((place, now));
            }
        }
    }

    /// Returns the next call that is to be made, if one is due. Ask until there is none.
    pub fn next_call(&mut self, now: Duration) -> Option<Call<I>> {
        if self.calls.len() >= self.most_calls || !self.is_call_due(now) {
            return None;
        }
        let id = CallId(self.next_call);
        let (mut places, mut inputs) = (Vec::new(), Vec::new());
        while places.len() < self.batching.inputs
            && let Some((place, _)) = self.gathered.pop_front()
        {
            // One whose time was up is not there any more.
            if let Some(pending) = self.queue.waiting_mut(place) {
                self.metrics.retries += u64::from(pending.attempts > 0);
                pending.attempts += 1;
                pending.stands = Stands::InCall(id);
                inputs.push(Arc::clone(&pending.input));
                places.push(place);
            }
        }
        if places.is_empty() {
            return None;
        }
        self.next_call += 1;
        self.metrics.calls += 1;
        self.calls.insert(id, Open { awaited: places.len(), places, since: now });
        Some(Call { id, inputs })
    }

    fn is_call_due(&self, now: Duration) -> bool {
        let Some((_, since)) = self.gathered.front() else { return false };
        let is_full = self.gathered.len() >= self.batching.inputs;
        is_full || self.is_ending || since.saturating_add(self.batching.delay) <= now
    }

    /// Takes the answer of a call: a result for each input in order, or an error of all.
    pub fn answered(&mut self, id: CallId, answers: Result<Vec<Called<O>>, CallError>, now: Duration) {
        let Some(call) = self.calls.remove(&id) else {
            self.metrics.late += 1;
            return;
        };
        self.metrics.latency.record(now.saturating_sub(call.since));
        let answers = match answers {
            Ok(answers) if answers.len() == call.places.len() => answers,
            Ok(answers) => same_for_all(&miscounted(answers.len(), call.places.len()), call.places.len()),
            Err(error) => same_for_all(&error, call.places.len()),
        };
        for (place, answer) in call.places.into_iter().zip(answers) {
            self.take_answer(place, answer, now);
        }
    }

    fn take_answer(&mut self, place: Place, answer: Called<O>, now: Duration) {
        // A call answers once, and an input is in one call at a time: so an answer is never one to an earlier attempt.
        let Some(pending) = self.queue.waiting_mut(place) else {
            self.metrics.late += 1;
            return;
        };
        let retry_after = self.settings.retry.delay(pending.attempts).filter(|_| !self.is_ending);
        match retry_after.filter(|_| self.settings.is_to_retry(&answer)) {
            Some(delay) => {
                let at = now.saturating_add(delay);
                pending.stands = Stands::ToRetry { at };
                self.alarms.insert((at, place, Alarm::Retry));
            }
            None => self.settle(place, answer),
        }
    }

    /// Gives an input its outcome; whatever comes later is not taken.
    fn settle(&mut self, place: Place, answer: Called<O>) {
        let Some(pending) = self.queue.waiting_mut(place) else { return };
        if let Some(at) = pending.timeout_at {
            self.alarms.remove(&(at, place, Alarm::Timeout));
        }
        match pending.stands {
            Stands::ToRetry { at } => {
                self.alarms.remove(&(at, place, Alarm::Retry));
            }
            Stands::InCall(id) => {
                if let Some(call) = self.calls.get_mut(&id) {
                    call.awaited -= 1;
                    if call.awaited == 0 {
                        self.calls.remove(&id);
                        self.given_up.push(id);
                    }
                }
            }
            Stands::Gathered => self.gathered.retain(|(gathered, _)| *gathered != place),
        }
        let input = Arc::clone(&pending.input);
        let outcome = self.outcome(&input, answer);
        self.has_failed |= matches!(outcome, Outcome::Failed(_));
        // It was waiting a moment ago.
        self.queue.complete(place, outcome).ok();
    }

    fn outcome(&mut self, input: &I, answer: Called<O>) -> Outcome<O> {
        let error = match answer {
            Ok(outputs) => return Outcome::Outputs(outputs),
            Err(error) => error,
        };
        match &self.settings.on_error {
            OnError::Drop if error.is_bad_record() => {
                self.metrics.dropped += 1;
                Outcome::Dropped(error)
            }
            OnError::DeadLetter if error.is_bad_record() => {
                self.metrics.refused += 1;
                Outcome::Refused(error)
            }
            OnError::Handle(handler) => match handler(input, error) {
                Ok(outputs) => Outcome::Outputs(outputs),
                Err(error) => Outcome::Failed(error),
            },
            _ => Outcome::Failed(error),
        }
    }

    /// Does what is due at `now`: timeouts, and retries whose wait is over.
    pub fn wake(&mut self, now: Duration) {
        while let Some((at, place, alarm)) = self.alarms.first().copied()
            && at <= now
        {
            self.alarms.pop_first();
            match alarm {
                Alarm::Timeout => self.time_out(place),
                Alarm::Retry => {
                    if let Some(pending) = self.queue.waiting_mut(place) {
                        pending.stands = Stands::Gathered;
                        self.gathered.push_back((place, now));
                    }
                }
            }
        }
    }

    fn time_out(&mut self, place: Place) {
        let Some(pending) = self.queue.waiting_mut(place) else { return };
        let input = Arc::clone(&pending.input);
        self.metrics.timeouts += 1;
        let answer = self.settings.timed_out(&input);
        self.settle(place, answer);
    }

    /// Tells when to [wake](Self::wake) it next, and ask for calls.
    pub fn wake_at(&self) -> Option<Duration> {
        let alarm = self.alarms.first().map(|(at, ..)| *at);
        let can_call = self.calls.len() < self.most_calls;
        let gathered = self.gathered.front().filter(|_| can_call);
        let due = gathered.map(|(_, since)| since.saturating_add(self.batching.delay));
        alarm.into_iter().chain(due).min()
    }

    /// Takes the calls that nobody waits for any more: they are to be dropped.
    pub fn take_given_up(&mut self) -> Vec<CallId> {
        std::mem::take(&mut self.given_up)
    }

    /// Takes out the next element that may leave.
    pub fn pop(&mut self) -> Option<Left<Pending<I, T>, Outcome<O>, M>> {
        let left = self.queue.pop()?;
        if let Left::Result(pending, _) = &left {
            self.bytes = self.bytes.saturating_sub(pending.bytes);
        }
        Some(left)
    }

    /// Returns the first input whose outcome fails the job, wherever it stands.
    pub fn failed(&self) -> Option<(&T, &CallError)> {
        if !self.has_failed {
            return None;
        }
        self.queue.results().find_map(|(pending, outcome)| match outcome {
            Outcome::Failed(error) => Some((&pending.tag, error)),
            _ => None,
        })
    }

    /// Walks through everything that has not left, in the order in which it came in: what a checkpoint has to store.
    pub fn iter(&self) -> impl Iterator<Item = Held<'_, Pending<I, T>, M>> {
        self.queue.iter()
    }

    /// Drops everything, and gives its calls up.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.alarms.clear();
        self.gathered.clear();
        self.given_up.extend(std::mem::take(&mut self.calls).into_keys());
        self.bytes = 0;
    }

    /// Returns how many timers run.
    pub fn timers(&self) -> usize {
        self.alarms.len()
    }

    /// Returns what was counted; who waits for a slot, and what blocks, its owner knows.
    pub fn metrics(&self) -> CallMetrics {
        let (in_flight, in_queue) = (self.queue.waiting() as u64, self.queue.len() as u64);
        CallMetrics { in_flight, in_queue, ..self.metrics }
    }
}

fn same_for_all<O>(error: &CallError, inputs: usize) -> Vec<Called<O>> {
    (0..inputs).map(|_| Err(error.clone())).collect()
}

/// No answer can be told to belong to an input.
fn miscounted(answers: usize, inputs: usize) -> CallError {
    let message =
        format!("the function returned {answers} results for {inputs} inputs: one each is expected");
    CallError::new(ErrorClass::Fatal, message)
}

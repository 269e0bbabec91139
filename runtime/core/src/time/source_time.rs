//! The time of one source subtask: its splits' generators and states, merged.

use std::time::Duration;

use super::drift_group::DriftReport;
use super::generator::{BoxGenerator, WatermarkGenerator};
use super::question::Question;
use super::signal::TimeSignal;
use super::split_drift::{DriftStep, SplitDrift};
use super::split_merge::SplitMerge;
use super::split_state::{Reaction, SplitEvent, SplitState};
use super::status::{Pause, SplitStatus};
use super::strategy::WatermarkStrategy;
use crate::clock::Timestamp;
use crate::element::StreamStatus;
use crate::split::SplitId;

/// What whoever drives a source does next, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeAction<K> {
    /// Put this into the stream, behind the records emitted so far.
    Emit(TimeSignal),
    /// Ask the leader of a split where the split ends, together with the other questions of this call.
    Ask(K, Question),
    /// Let a split rest: it is ahead of its group. Its state knows.
    Pause(K),
    /// Let it go on, unless somebody else lets it rest.
    Resume(K),
    /// For metrics and for people: a split has a new status.
    Status(K, SplitStatus),
}

/// Turns the records and events of the splits of one subtask into its watermark and status.
///
/// Call [`tick`](Self::tick) once at the start and then once in every
/// [interval](WatermarkStrategy::interval). Its work grows with the number of splits that are not idle, not with all.
pub struct SourceTime<T, K = SplitId> {
    strategy: WatermarkStrategy<T>,
    /// In the order of their names; a split keeps its place as long as none is added or removed.
    pub(super) splits: Vec<(K, Split<T>)>,
    pub(super) merge: SplitMerge<K>,
    drift: SplitDrift<K>,
    allowed: Timestamp,
    has_had_splits: bool,
    pub(super) late: u64,
}

#[derive(Debug)]
pub(super) struct Split<T> {
    pub(super) generator: BoxGenerator<T>,
    pub(super) state: SplitState,
}

pub(super) type Actions<K> = Vec<TimeAction<K>>;

impl<T, K: Ord + Clone> SourceTime<T, K> {
    /// Starts without splits.
    pub fn new(strategy: WatermarkStrategy<T>) -> Self {
        Self {
            strategy,
            splits: Vec::new(),
            merge: SplitMerge::new(),
            drift: SplitDrift::new(),
            allowed: Timestamp::MAX,
            has_had_splits: false,
            late: 0,
        }
    }

    /// Adds a split that is read from `position`. One that is there already goes on from there, and rests if it did.
    pub fn add(&mut self, split: K, position: u64, now: Timestamp) -> Actions<K> {
        let Err(place) = self.find(&split) else {
            return self.react(&split, SplitEvent::Seek { position }, now);
        };
        let state = SplitState::new(position, self.strategy.idle_timeout());
        self.merge.add(split.clone());
        self.splits.insert(place, (split, Split { generator: self.strategy.generator(), state }));
        self.has_had_splits = true;
        let mut actions = Vec::new();
        self.emit(&mut actions);
        actions
    }

    /// Forgets a split that has come to its end or was taken away. [TIM-12] What follows comes with the next tick.
    pub fn remove(&mut self, split: &K) {
        if let Ok(place) = self.find(split) {
            self.splits.remove(place);
        }
        self.merge.remove(split);
        self.drift.remove(split);
    }

    /// Notes that no split will be added any more: when the last one is gone, the maximum watermark comes with the next tick.
    pub fn no_more_splits(&mut self) {
        self.merge.no_more_splits();
    }

    /// All splits have come to their ends, and none will be added: the maximum comes. [TIM-04]
    pub fn end(&mut self) -> Actions<K> {
        for (split, _) in std::mem::take(&mut self.splits) {
            self.remove(&split);
        }
        self.no_more_splits();
        let mut actions = Vec::new();
        self.emit(&mut actions);
        actions
    }

    /// A record was emitted; `next` is the position behind it.
    pub fn record(
        &mut self,
        split: &K,
        item: &T,
        timestamp: Timestamp,
        next: u64,
        now: Timestamp,
    ) -> Actions<K> {
        let is_late = timestamp <= self.merge.merged();
        let Some(known) = self.split_mut(split) else { return Vec::new() };
        let watermark = known.generator.on_event(item, timestamp);
        let reaction = known.state.on(SplitEvent::Record { next }, now);
        self.late += u64::from(is_late);
        if watermark.is_none() && reaction == Reaction::default() {
            // Nearly every record: one look-up must do.
            return Vec::new();
        }
        let mut actions = self.follow(split, reaction, now);
        if let Some(watermark) = watermark {
            self.merge.watermark(split, watermark);
            self.emit(&mut actions);
        }
        actions
    }

    /// The source emitted a watermark of its own for a split.
    pub fn watermark(&mut self, split: &K, watermark: Timestamp, now: Timestamp) -> Actions<K> {
        let mut actions = self.react(split, SplitEvent::Watermark, now);
        if self.merge.is_counting(split) {
            self.merge.watermark(split, watermark);
            self.emit(&mut actions);
        }
        actions
    }

    /// Something else happened to a split. An event of a split that is not there is ignored.
    pub fn event(&mut self, split: &K, event: SplitEvent, now: Timestamp) -> Actions<K> {
        self.react(split, event, now)
    }

    /// Nothing was read for this long, because what had been read was not taken. [TIM-06] That proves nothing of a split at
    /// its end: its clock goes back by as much.
    pub fn held_up(&mut self, waited: Duration, now: Timestamp) {
        let counting: Vec<K> = self.merge.counting().keys().cloned().collect();
        for split in &counting {
            if let Some(known) = self.split_mut(split) {
                known.state.held_up(waited, now);
            }
        }
    }

    /// Asks the generators, lets splits become idle, and emits what follows.
    pub fn tick(&mut self, now: Timestamp) -> Actions<K> {
        let mut actions = self.tick_alone(now);
        self.keep_within_drift(now, &mut actions);
        actions
    }

    /// A [tick](Self::tick) of a member of a group: `allowed` is told what the group is to know, and says how far a split may
    /// go. Nobody is let rest on account of what the group said before it heard of this tick.
    pub fn tick_within(
        &mut self,
        now: Timestamp,
        allowed: impl FnOnce(DriftReport) -> Timestamp,
    ) -> Actions<K> {
        let mut actions = self.tick_alone(now);
        self.allowed = allowed(self.report());
        self.keep_within_drift(now, &mut actions);
        actions
    }

    fn tick_alone(&mut self, now: Timestamp) -> Actions<K> {
        let mut actions = Vec::new();
        let counting: Vec<K> = self.merge.counting().keys().cloned().collect();
        for split in &counting {
            self.collect(split, now);
            let reaction = self.state(split, SplitEvent::Tick, now);
            self.apply(split, reaction, &mut actions);
        }
        self.emit(&mut actions);
        actions
    }

    /// The group says how far a split may go.
    pub fn allow(&mut self, allowed: Timestamp, now: Timestamp) -> Actions<K> {
        self.allowed = allowed;
        let mut actions = Vec::new();
        self.keep_within_drift(now, &mut actions);
        actions
    }

    /// Returns what the group is to know. [TIM-18]
    pub fn report(&self) -> DriftReport {
        match self.merge.status() {
            _ if !self.has_had_splits => DriftReport::Nothing,
            StreamStatus::Idle => DriftReport::Idle,
            StreamStatus::Active => DriftReport::At(self.merge.merged()),
        }
    }

    /// Returns the watermark emitted last; [`Timestamp::MIN`] before the first.
    pub fn merged(&self) -> Timestamp {
        self.merge.merged()
    }

    /// Returns the status emitted last.
    pub fn status(&self) -> StreamStatus {
        self.merge.status()
    }

    /// Returns how many records had a timestamp that the merged watermark in front of them had already covered.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Returns what a split is doing, and its own watermark.
    pub fn split(&self, split: &K) -> Option<(SplitStatus, Timestamp)> {
        let (_, known) = &self.splits[self.find(split).ok()?];
        Some((known.state.status(), self.merge.of(split)?))
    }

    /// Walks through the splits that are not idle, in order, with their watermarks.
    pub fn counting(&self) -> impl Iterator<Item = (&K, Timestamp)> {
        self.merge.counting().iter()
    }

    /// Walks through the splits that rest because they are ahead of their group.
    pub fn resting(&self) -> impl Iterator<Item = &K> {
        self.drift.paused()
    }

    pub(super) fn find(&self, split: &K) -> Result<usize, usize> {
        self.splits.binary_search_by(|(known, _)| known.cmp(split))
    }

    fn split_mut(&mut self, split: &K) -> Option<&mut Split<T>> {
        let place = self.find(split).ok()?;
        Some(&mut self.splits[place].1)
    }

    fn react(&mut self, split: &K, event: SplitEvent, now: Timestamp) -> Actions<K> {
        let reaction = self.state(split, event, now);
        self.follow(split, reaction, now)
    }

    /// Does what a split's state says, and emits what follows if the split counts now and did not before, or the reverse.
    pub(super) fn follow(&mut self, split: &K, reaction: Reaction, now: Timestamp) -> Actions<K> {
        let mut actions = Vec::new();
        let was_counting = self.merge.is_counting(split);
        if reaction.status == Some(SplitStatus::Idle) {
            // The generator is not asked again before the next record.
            self.collect(split, now);
        }
        self.apply(split, reaction, &mut actions);
        if self.merge.is_counting(split) != was_counting {
            self.emit(&mut actions);
        }
        actions
    }

    fn state(&mut self, split: &K, event: SplitEvent, now: Timestamp) -> Reaction {
        self.split_mut(split).map_or_else(Reaction::default, |split| split.state.on(event, now))
    }

    fn apply(&mut self, split: &K, reaction: Reaction, actions: &mut Actions<K>) {
        if let Some(question) = reaction.ask {
            actions.push(TimeAction::Ask(split.clone(), question));
        }
        if let Some(status) = reaction.status {
            actions.push(TimeAction::Status(split.clone(), status));
            if status.is_idle() {
                self.merge.idle(split);
            } else {
                self.merge.active(split);
            }
        }
    }

    /// Takes over the watermark that a split's generator has by now.
    fn collect(&mut self, split: &K, now: Timestamp) {
        let generator = self.split_mut(split).map(|split| &mut split.generator);
        if let Some(watermark) = generator.and_then(|generator| generator.on_periodic(now)) {
            self.merge.watermark(split, watermark);
        }
    }

    pub(super) fn emit(&mut self, actions: &mut Actions<K>) {
        actions.extend(self.merge.emit().into_iter().map(TimeAction::Emit));
    }

    fn keep_within_drift(&mut self, now: Timestamp, actions: &mut Actions<K>) {
        for step in self.drift.compare(&self.merge, self.allowed) {
            let (split, event, action) = match step {
                DriftStep::Pause(split) => {
                    (split.clone(), SplitEvent::Paused(Pause::Drift), TimeAction::Pause(split))
                }
                DriftStep::Resume(split) => {
                    (split.clone(), SplitEvent::Resumed(Pause::Drift), TimeAction::Resume(split))
                }
            };
            actions.push(action);
            actions.extend(self.react(&split, event, now));
        }
    }
}

impl<T, K: std::fmt::Debug> std::fmt::Debug for SourceTime<T, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceTime")
            .field("merge", &self.merge)
            .field("drift", &self.drift)
            .finish_non_exhaustive()
    }
}

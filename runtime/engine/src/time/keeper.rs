//! Keeps the time of one subtask of a source: gives records their timestamps, and says what follows.

use std::sync::Arc;
use std::time::Duration;

use levada_core::batch::BatchParts;
use levada_core::time::{
    MissingTimestamp, MissingTimestamps, SourceTime, SplitEvent, SplitStatus, TimeAction, TimeSignal,
    TimestampAssigner, WatermarkStrategy,
};
use levada_core::{Batch, Clock, Record, Refused, SplitId, StreamElement, Timestamp, TimestampKind};

use super::drift_groups::{DriftGroups, Member};
use super::event::{TimeEvent, Wanted};
use super::source_report::SourceReport;
use super::status::TimeStatus;
use crate::error::JobError;
use crate::map::Produced;

/// What keeping time needs of the job.
#[derive(Debug, Clone)]
pub(crate) struct TimeContext {
    pub(crate) uid: String,
    pub(crate) subtask: u32,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) groups: DriftGroups,
    pub(crate) status: TimeStatus,
}

pub(crate) struct Keeper<T> {
    strategy: WatermarkStrategy<T>,
    time: SourceTime<T>,
    /// `None` where the source's own word is all there is: a record may have no timestamp then.
    assigner: Option<TimestampAssigner<T>>,
    clock: Arc<dyn Clock>,
    report: SourceReport,
    member: Option<Member>,
}

impl<T> Keeper<T> {
    pub(crate) fn new(strategy: WatermarkStrategy<T>, is_own: bool, ctx: &TimeContext) -> Self {
        Self {
            time: SourceTime::new(strategy.clone()),
            assigner: (!is_own).then(|| strategy.assigner()),
            clock: Arc::clone(&ctx.clock),
            report: ctx.status.source(&ctx.uid, ctx.subtask),
            member: strategy.drift().map(|limit| ctx.groups.join(limit)),
            strategy,
        }
    }

    /// Emits records, and behind each what follows from it.
    pub(crate) fn batch(&mut self, mut batch: Batch<T>, out: &mut Produced<T>) {
        let now = self.clock.now();
        let missing = match &mut self.assigner {
            Some(assigner) => assign(assigner, batch.records_mut()),
            None => Vec::new(),
        };
        if missing.is_empty() {
            return self.emit(batch, now, out);
        }
        let (parts, records) = batch.into_parts();
        let mut missing = missing.into_iter().peekable();
        let mut accepted = Vec::new();
        for (place, record) in records.into_iter().enumerate() {
            let Some((_, missing)) = missing.next_if(|(at, _)| *at == place) else {
                accepted.push(record);
                continue;
            };
            self.emit(parts.with_records(std::mem::take(&mut accepted)), now, out);
            let origin = record.origin;
            let refused = Refused::new(parts.clone(), Record { origin, item: () }, missing.into());
            if !missing.is_refused {
                out.failure = Some(JobError::NoTimestamp { coordinates: refused.coordinates() });
                return self.publish();
            }
            out.elements.push(StreamElement::Refused(refused));
        }
        self.emit(parts.with_records(accepted), now, out);
    }

    fn emit(&mut self, batch: Batch<T>, now: Timestamp, out: &mut Produced<T>) {
        let mut followed = Vec::new();
        let (table, records) = (batch.splits(), batch.records());
        self.time.batch(table, records, now, |behind, action| followed.push((behind, action)));
        let mut signals = Vec::new();
        for (behind, action) in followed {
            match action {
                TimeAction::Emit(signal) => signals.push((behind, signal)),
                TimeAction::Status(split, status) => self.note(&split, status, now),
                // A record asks nothing, and lets nobody rest.
                _ => {}
            }
        }
        part(batch, signals, out);
    }

    /// Does what an event leads to.
    pub(crate) fn event(&mut self, event: TimeEvent, wanted: &mut Wanted, out: &mut Produced<T>) {
        let now = self.clock.now();
        let actions = match event {
            TimeEvent::Added(split, position) => {
                self.report.added(&split, now);
                self.time.add(split, position, now)
            }
            TimeEvent::Removed(split) => {
                self.report.removed(&split);
                self.time.remove(&split);
                // With a strategy it is a matter of the next tick.
                if self.assigner.is_none() { self.time.tick(now) } else { Vec::new() }
            }
            TimeEvent::Moved(splits) => self.moved(splits, now),
            TimeEvent::Split(split, event) => self.time.event(&split, event, now),
            TimeEvent::Watermark(split, watermark) => {
                let actions = self.time.watermark(&split, watermark, now);
                self.report.publish_split(&self.time, &split);
                actions
            }
            TimeEvent::Restart => return self.restart(wanted),
            TimeEvent::Ended => {
                self.report.ended();
                let actions = self.time.end();
                self.publish();
                actions
            }
            TimeEvent::Tick { held_up } => self.tick(held_up, now),
        };
        self.act(actions, now, wanted, out);
    }

    fn moved(&mut self, splits: Vec<(SplitId, u64)>, now: Timestamp) -> Vec<TimeAction<SplitId>> {
        let mut actions = Vec::new();
        for (split, next) in splits {
            actions.extend(self.time.event(&split, SplitEvent::Record { next }, now));
        }
        actions
    }

    fn tick(&mut self, held_up: Duration, now: Timestamp) -> Vec<TimeAction<SplitId>> {
        if !held_up.is_zero() {
            self.report.held_up(&self.time, held_up, now);
            self.time.held_up(held_up, now);
        }
        let actions = match &self.member {
            Some(member) => self.time.tick_within(now, |report| member.report(report)),
            None => self.time.tick(now),
        };
        self.publish();
        actions
    }

    /// Nothing that was said holds any more. What rested is let go on: it is too far ahead of nobody yet.
    fn restart(&mut self, wanted: &mut Wanted) {
        self.publish();
        wanted.resume.extend(self.time.resting().cloned());
        self.time = SourceTime::new(self.strategy.clone());
        if let Some(assigner) = &mut self.assigner {
            *assigner = self.strategy.assigner();
        }
        self.report.begin_anew();
    }

    fn act(
        &mut self,
        actions: Vec<TimeAction<SplitId>>,
        now: Timestamp,
        wanted: &mut Wanted,
        out: &mut Produced<T>,
    ) {
        if actions.iter().any(|action| matches!(action, TimeAction::Emit(_))) {
            self.report.publish_merged(&self.time);
        }
        for action in actions {
            match action {
                TimeAction::Emit(signal) => out.elements.push(signal.into()),
                TimeAction::Ask(split, question) => wanted.ask.push((split, question)),
                TimeAction::Pause(split) => wanted.pause.push(split),
                TimeAction::Resume(split) => wanted.resume.push(split),
                TimeAction::Status(split, status) => self.note(&split, status, now),
                _ => {}
            }
        }
    }

    fn note(&self, split: &SplitId, status: SplitStatus, now: Timestamp) {
        self.report.status(split, status, now);
        if status.is_idle() {
            // It took its last watermark along, and ticks do not look at it any more.
            self.report.publish_split(&self.time, split);
        }
    }

    fn publish(&mut self) {
        let missing = self.assigner.as_ref().map_or(MissingTimestamps::default(), TimestampAssigner::missing);
        self.report.publish(&self.time, missing);
    }
}

/// What came since the last tick counts, too, however the task ends.
impl<T> Drop for Keeper<T> {
    fn drop(&mut self) {
        self.publish();
    }
}

/// Gives records their timestamps; returns those that have none, up to the first that may not be passed over.
fn assign<T>(
    assigner: &mut TimestampAssigner<T>,
    records: &mut [Record<T>],
) -> Vec<(usize, MissingTimestamp)> {
    let mut missing = Vec::new();
    for (place, Record { origin, item }) in records.iter_mut().enumerate() {
        match assigner.assign(origin, item) {
            Ok(timestamp)
                if origin.timestamp_kind == TimestampKind::None || origin.timestamp != timestamp =>
            {
                (origin.timestamp, origin.timestamp_kind) = (timestamp, TimestampKind::Create);
            }
            Ok(_) => {}
            Err(none) => {
                missing.push((place, none));
                if !none.is_refused {
                    break;
                }
            }
        }
    }
    missing
}

/// Parts records where a signal stands between them.
fn part<T>(batch: Batch<T>, signals: Vec<(usize, TimeSignal)>, out: &mut Produced<T>) {
    if batch.is_empty() {
        return;
    }
    if signals.is_empty() {
        // Nearly always: the records stay where they are, and their memory goes back to whom it is of.
        return out.elements.push(StreamElement::Batch(batch));
    }
    let (parts, records) = batch.into_parts();
    let mut records = records.into_iter();
    let mut done = 0;
    for (behind, signal) in signals {
        push(&parts, records.by_ref().take(behind - done).collect(), out);
        done = behind;
        out.elements.push(signal.into());
    }
    push(&parts, records.collect(), out);
}

fn push<T>(parts: &BatchParts, records: Vec<Record<T>>, out: &mut Produced<T>) {
    if !records.is_empty() {
        out.elements.push(StreamElement::Batch(parts.with_records(records)));
    }
}

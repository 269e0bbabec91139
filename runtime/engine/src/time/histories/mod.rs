//! Random histories of a subtask that is sought, paused, robbed of splits and taken back, against a world that knows the
//! truth and a model that computes from all of it.
//!
//! The world is a broker with three splits: what is in each, what of it is hidden by an open transaction, and how far the
//! subtask has read. It does what the keeper wants as a source does.

mod steps;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use levada_core::batch::RawRecord;
use levada_core::time::{Blocked, DriftLimit, Pause, Question, SplitEvent, SplitStatus, WatermarkStrategy};
use levada_core::{BatchBuilder, Clock, SplitId, StreamElement, StreamStatus, Timestamp, TimestampKind};

use crate::map::Produced;
use crate::time::drift_groups::{DriftGroups, Member};
use crate::time::event::{TimeEvent, Wanted};
use crate::time::keeper::{Keeper, TimeContext};
use crate::time::snapshot::{SourceTimes, SplitTimes};
use crate::time::status::TimeStatus;

const SPLITS: usize = 3;
/// A record may be older than the newest by so much.
const BOUND: i64 = 10;
/// How long a split is at its end before its leader is asked.
const TIMEOUT: i64 = 10;
const DRIFT: i64 = 50;

#[derive(Debug, Default)]
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// One split, as the broker and the source know it.
#[derive(Debug, Default)]
struct Truth {
    log: Vec<i64>,
    hidden: Vec<i64>,
    position: usize,
    is_owned: bool,
    is_paused: bool,
    rests: bool,
    /// The newest timestamp read since it was added.
    newest: Option<i64>,
    is_idle: bool,
    is_marked: bool,
    /// When it was read to its end, or moved, last.
    moved_at: i64,
}

impl Truth {
    fn own(&self) -> i64 {
        self.newest.map_or(i64::MIN, |newest| newest - BOUND - 1)
    }

    fn high_watermark(&self) -> u64 {
        (self.log.len() + self.hidden.len()) as u64
    }

    fn is_proven(&self, now: i64) -> bool {
        let all_is_read = self.position as u64 == self.high_watermark();
        all_is_read && !self.is_paused && !self.rests && now - self.moved_at > TIMEOUT
    }
}

struct World {
    clock: Arc<Hands>,
    status: TimeStatus,
    keeper: Keeper<i64>,
    splits: [Truth; SPLITS],
    asked: Vec<(usize, Question)>,
    /// Somebody else in the group.
    other: Member,
    watermark: i64,
    stream: StreamStatus,
    late: u64,
}

fn name(split: usize) -> SplitId {
    SplitId::new("t", split as u32)
}

impl World {
    fn new() -> Self {
        let clock: Arc<Hands> = Arc::default();
        let injected: Arc<dyn Clock> = Arc::<Hands>::clone(&clock);
        let (status, groups) = (TimeStatus::new(Arc::clone(&injected)), DriftGroups::new());
        let limit = DriftLimit { group: "group".into(), max_drift: Duration::from_millis(DRIFT as u64) };
        let bounded = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(BOUND as u64));
        let strategy = bounded.idle_after(Duration::from_millis(TIMEOUT as u64)).unwrap();
        let strategy = strategy.within_drift(Arc::clone(&limit.group), limit.max_drift);
        let other = groups.join(&limit);
        let ctx =
            TimeContext { uid: "source".into(), subtask: 0, clock: injected, groups, status: status.clone() };
        let mut world = Self {
            clock,
            status,
            keeper: Keeper::new(strategy, false, &ctx),
            splits: Default::default(),
            asked: Vec::new(),
            other,
            watermark: i64::MIN,
            stream: StreamStatus::Active,
            late: 0,
        };
        (0..SPLITS).for_each(|split| world.add(split, 0));
        world.tick(0, 0);
        world
    }

    fn now(&self) -> i64 {
        self.clock.now().0
    }

    fn seen(&self) -> SourceTimes {
        self.status.snapshot().sources.remove(0)
    }

    fn tell(&mut self, event: TimeEvent) {
        let (mut wanted, mut out) = (Wanted::default(), Produced::new());
        self.keeper.event(event, &mut wanted, &mut out);
        self.obey(wanted);
        self.follow(out);
    }

    /// Does what is wanted. Nobody is let rest, or go on, twice.
    fn obey(&mut self, wanted: Wanted) {
        let place = |split: &SplitId| split.index as usize;
        self.asked.extend(wanted.ask.iter().map(|(split, question)| (place(split), *question)));
        for split in wanted.pause.iter().map(place) {
            assert!(self.splits[split].is_owned && !self.splits[split].rests);
            self.splits[split].rests = true;
        }
        for split in wanted.resume.iter().map(place) {
            assert!(self.splits[split].is_owned && self.splits[split].rests);
            self.splits[split].rests = false;
        }
    }

    /// Watermarks grow, none comes of an idle stream, and statuses alternate.
    fn follow(&mut self, out: Produced<i64>) {
        for element in out.elements {
            match element {
                StreamElement::Watermark(watermark) => {
                    assert!(watermark.0 > self.watermark && self.stream == StreamStatus::Active);
                    assert!(self.may_reach(watermark.0), "{watermark:?}: {:?}", self.splits);
                    self.watermark = watermark.0;
                }
                StreamElement::Status(status) => {
                    assert_ne!(status, self.stream);
                    self.stream = status;
                }
                StreamElement::Batch(batch) => {
                    let timestamps = batch.records().iter().map(|record| record.origin.timestamp.0);
                    self.late += timestamps.filter(|at| *at <= self.watermark).count() as u64;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Whether nobody that is waited for is behind a watermark; where nobody is, the highest of all is the limit.
    fn may_reach(&self, watermark: i64) -> bool {
        let seen = self.seen();
        let own = |times: &SplitTimes| self.splits[times.split.index as usize].own();
        let waited_for = seen.splits.iter().filter(|times| times.status != SplitStatus::Idle);
        let limit = waited_for.map(own).min().or(seen.splits.iter().map(own).max());
        limit.is_some_and(|limit| watermark <= limit)
    }

    fn add(&mut self, split: usize, position: usize) {
        let now = self.now();
        let truth = &mut self.splits[split];
        if !truth.is_owned {
            *truth = Truth {
                log: std::mem::take(&mut truth.log),
                hidden: std::mem::take(&mut truth.hidden),
                ..Truth::default()
            };
        }
        (truth.is_owned, truth.position, truth.moved_at, truth.is_marked) = (true, position, now, false);
        self.tell(TimeEvent::Added(name(split), position as u64));
        self.check(false);
    }

    /// A reading that is over is answered no more.
    fn forget(&mut self, split: usize) {
        self.asked.retain(|(of, _)| *of != split);
    }

    fn remove(&mut self, split: usize) {
        self.forget(split);
        self.splits[split].is_owned = false;
        self.tell(TimeEvent::Removed(name(split)));
    }

    /// Everything is dropped, and read again from places behind.
    fn restart(&mut self, back: usize) {
        self.asked.clear();
        self.tell(TimeEvent::Restart);
        assert!(
            self.splits.iter().all(|truth| !truth.is_owned || !truth.rests),
            "nobody rests for what was dropped"
        );
        (self.watermark, self.stream) = (i64::MIN, StreamStatus::Active);
        let owned: Vec<usize> = (0..SPLITS).filter(|split| self.splits[*split].is_owned).collect();
        owned.iter().for_each(|split| self.splits[*split].is_owned = false);
        for split in owned {
            let truth = &self.splits[split];
            let (is_paused, position) = (truth.is_paused, truth.position.saturating_sub(back));
            self.add(split, position);
            if is_paused {
                self.pause(split, true);
            }
        }
        self.tick(0, 0);
    }

    /// Reads what splits have, up to so many records of each; whoever comes to an end says so behind them.
    fn read(&mut self, splits: &[usize], most: usize, is_kept: bool) {
        let now = self.now();
        let (mut builder, mut moved) = (BatchBuilder::new(), Vec::new());
        for &split in splits {
            let truth = &mut self.splits[split];
            if !truth.is_owned || truth.rests || truth.is_paused {
                continue;
            }
            let number = builder.split(&name(split));
            let from = truth.position;
            for offset in from..truth.log.len().min(from + most) {
                let (timestamp, timestamp_kind) = (Timestamp(truth.log[offset]), TimestampKind::Create);
                builder.push(
                    number,
                    RawRecord { offset: offset as u64, timestamp, timestamp_kind, ..RawRecord::default() },
                );
                truth.position = offset + 1;
                if is_kept {
                    truth.newest = truth.newest.max(Some(timestamp.0));
                }
            }
            if truth.position > from {
                (truth.moved_at, truth.is_marked) = (now, false);
                moved.push((name(split), truth.position as u64));
            }
        }
        if !moved.is_empty() {
            if is_kept {
                self.hand(builder);
            }
            self.tell(TimeEvent::Moved(moved));
        }
        for &split in splits {
            let truth = &self.splits[split];
            if truth.is_owned && !truth.rests && !truth.is_paused && truth.position == truth.log.len() {
                let position = truth.position as u64;
                self.tell(TimeEvent::Split(name(split), SplitEvent::EndOfPartition { position }));
            }
        }
    }

    fn hand(&mut self, mut builder: BatchBuilder) {
        let (parts, records) = builder.finish().0.into_parts();
        let item = |record: levada_core::Record<()>| levada_core::Record {
            origin: record.origin,
            item: record.origin.timestamp.0,
        };
        let mut out = Produced::new();
        self.keeper.batch(parts.with_records(records.into_iter().map(item).collect()), &mut out);
        assert!(out.failure.is_none());
        self.follow(out);
    }

    fn pause(&mut self, split: usize, is_paused: bool) {
        let truth = &mut self.splits[split];
        if truth.is_owned {
            truth.is_paused = is_paused;
            let event =
                if is_paused { SplitEvent::Paused(Pause::User) } else { SplitEvent::Resumed(Pause::User) };
            self.tell(TimeEvent::Split(name(split), event));
        }
    }

    /// Answers the oldest question by the truth, or not at all.
    fn answer(&mut self, is_answered: bool) {
        if self.asked.is_empty() {
            return;
        }
        let (split, question) = self.asked.remove(0);
        let high_watermark = self.splits[split].high_watermark();
        let event = match is_answered {
            true => SplitEvent::Answer { question, high_watermark },
            false => SplitEvent::NoAnswer { question },
        };
        self.tell(TimeEvent::Split(name(split), event));
        self.check(is_answered);
    }

    fn tick(&mut self, passed: i64, held_up: i64) {
        self.clock.0.fetch_add(passed + held_up, Ordering::Relaxed);
        self.tell(TimeEvent::Tick { held_up: Duration::from_millis(held_up as u64) });
        self.check(false);
        self.check_tick();
    }

    /// Holds what is seen against the truth: who is idle was proven so just now, or said so.
    fn check(&mut self, was_answered: bool) {
        let (seen, now) = (self.seen(), self.now());
        let there: BTreeSet<u32> = seen.splits.iter().map(|times| times.split.index).collect();
        let owned = (0..SPLITS).filter(|split| self.splits[*split].is_owned);
        assert_eq!(there, owned.map(|split| split as u32).collect());
        for times in &seen.splits {
            let truth = &mut self.splits[times.split.index as usize];
            let is_idle = times.status == SplitStatus::Idle;
            if is_idle && !truth.is_idle {
                assert!(truth.is_marked || was_answered && truth.is_proven(now), "{truth:?}");
            }
            truth.is_idle = is_idle;
            let rests = matches!(times.status, SplitStatus::Blocked(Blocked::Paused(by)) if by.contains(Pause::Drift));
            assert!(is_idle || rests == truth.rests, "{times:?}, {truth:?}");
        }
    }

    /// What a tick must lead to, computed from all splits.
    fn check_tick(&mut self) {
        let seen = self.seen();
        let of = |is_idle: bool| {
            let those = self.splits.iter().filter(move |truth| truth.is_owned && truth.is_idle == is_idle);
            those.map(Truth::own)
        };
        let reached = of(false).min().or(of(true).max());
        assert!(reached.is_none_or(|reached| self.watermark >= reached), "{:?}", self.splits);
        let status = if of(false).next().is_some() { StreamStatus::Active } else { StreamStatus::Idle };
        assert_eq!((seen.status, self.stream), (status, status));
        assert_eq!((seen.watermark.0, seen.late), (self.watermark, self.late));
        for times in &seen.splits {
            assert_eq!(times.watermark.0, self.splits[times.split.index as usize].own(), "{times:?}");
        }
    }
}

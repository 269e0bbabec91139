//! The judge: one pass over the events.

use std::collections::BTreeMap;

use super::{Event, Judged, Misjudged, Violation, ViolationKind};

/// Judges the watermarks of a stream by its records alone; [`WatermarkJudge`] can be asked for more.
///
/// # Errors
///
/// As [`WatermarkJudge::judge`].
///
/// ```
/// use levada_testcontainers::oracle::{Event, watermarks};
///
/// let record = |timestamp, late| Event::Record { split: 0, timestamp, late };
/// let judged = watermarks([record(10, false), Event::Watermark(9), record(9, true), record(11, false)]).unwrap();
/// assert_eq!((judged.records, judged.late, judged.last), (3, 1, Some(9)));
///
/// let passed_by = watermarks([record(10, false), Event::Watermark(10), record(10, false)]).unwrap_err();
/// assert_eq!(passed_by.violations()[0].place, 2);
/// ```
pub fn watermarks<S: Ord + Clone>(
    events: impl IntoIterator<Item = Event<S>>,
) -> Result<Judged, Misjudged<S>> {
    WatermarkJudge::new().judge(events)
}

/// A judge of watermarks, who always judges these:
///
/// - no record comes at or before the stream's watermark unless it is declared late, and none is declared late that is not;
/// - the stream's watermark never goes back, and neither does a split's.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatermarkJudge {
    bounded_by_splits: bool,
    splits_keep_promises: bool,
}

impl WatermarkJudge {
    /// Creates a judge who judges what every stream must keep.
    #[must_use]
    pub fn new() -> WatermarkJudge {
        WatermarkJudge::default()
    }

    /// Judges also what the stream makes of its splits, all of whose events must be told.
    ///
    /// The stream's watermark rises no higher than the lowest of the active splits, a split without a watermark holding it
    /// at the minimum; than the highest of the idle ones when all are idle, finished ones apart; to the maximum only when
    /// all are finished; and not at all without splits. The stream is idle only when no split is active, and then has told
    /// the highest watermark of the idle ones.
    #[must_use]
    pub fn bounded_by_splits(mut self) -> WatermarkJudge {
        self.bounded_by_splits = true;
        self
    }

    /// Judges also whether each split keeps to its own watermark: no record of it comes at or before that unless declared
    /// late. Only for data that is no more out of order than the split's watermarks allow for.
    #[must_use]
    pub fn splits_keep_promises(mut self) -> WatermarkJudge {
        self.splits_keep_promises = true;
        self
    }

    /// Judges the events of a stream from its beginning.
    ///
    /// # Errors
    ///
    /// [`Misjudged`], with every violation.
    pub fn judge<S: Ord + Clone>(
        self,
        events: impl IntoIterator<Item = Event<S>>,
    ) -> Result<Judged, Misjudged<S>> {
        let mut stream = Stream::new();
        let mut violations = Vec::new();
        let mut count = 0;
        for (place, event) in events.into_iter().enumerate() {
            let kinds = stream.violated_by(&event, self);
            violations.extend(kinds.into_iter().map(|kind| Violation { place, kind }));
            stream.apply(event);
            count = place + 1;
        }
        if violations.is_empty() { Ok(stream.judged) } else { Err(Misjudged { violations, events: count }) }
    }
}

/// A split as its events left it.
#[derive(Clone, Copy, Debug, Default)]
struct Split {
    /// The highest watermark.
    watermark: Option<i64>,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Active,
    Idle,
    Finished,
}

/// The stream as the events so far left it.
struct Stream<S> {
    judged: Judged,
    splits: BTreeMap<S, Split>,
}

impl<S: Ord + Clone> Stream<S> {
    fn new() -> Stream<S> {
        Stream { judged: Judged::default(), splits: BTreeMap::new() }
    }

    fn violated_by(&self, event: &Event<S>, judge: WatermarkJudge) -> Vec<ViolationKind<S>> {
        match event {
            Event::Record { split, timestamp, late } => self.by_record(split, *timestamp, *late, judge),
            Event::Watermark(watermark) => self.by_watermark(*watermark, judge),
            Event::SplitWatermark { split, watermark } => self.by_split_watermark(split, *watermark),
            Event::Idle if judge.bounded_by_splits => self.by_idle(),
            _ => Vec::new(),
        }
    }

    fn by_record(
        &self,
        split: &S,
        timestamp: i64,
        late: bool,
        judge: WatermarkJudge,
    ) -> Vec<ViolationKind<S>> {
        let split = split.clone();
        let watermark = self.judged.last;
        if late {
            let is_late = Some(timestamp) <= watermark;
            let kind = ViolationKind::DeclaredButNotLate { split, timestamp, watermark };
            return if is_late { Vec::new() } else { vec![kind] };
        }
        let mut kinds = Vec::new();
        if let Some(own) = self.splits.get(&split).and_then(|split| split.watermark)
            && judge.splits_keep_promises
            && timestamp <= own
        {
            kinds.push(ViolationKind::BehindItsSplit { split: split.clone(), timestamp, watermark: own });
        }
        if let Some(watermark) = watermark
            && timestamp <= watermark
        {
            kinds.push(ViolationKind::LateUndeclared { split, timestamp, watermark });
        }
        kinds
    }

    fn by_watermark(&self, watermark: i64, judge: WatermarkJudge) -> Vec<ViolationKind<S>> {
        match self.judged.last {
            Some(from) if watermark < from => return vec![ViolationKind::WentBack { from, to: watermark }],
            // What was told before may be told again, even though a split that came back is behind it.
            Some(from) if watermark == from => return Vec::new(),
            _ => {}
        }
        let allowed = self.allowed();
        if judge.bounded_by_splits && Some(watermark) > allowed {
            return vec![ViolationKind::PassedSplits { watermark, allowed }];
        }
        Vec::new()
    }

    fn by_split_watermark(&self, split: &S, to: i64) -> Vec<ViolationKind<S>> {
        match self.splits.get(split).and_then(|split| split.watermark) {
            Some(from) if to < from => vec![ViolationKind::SplitWentBack { split: split.clone(), from, to }],
            _ => Vec::new(),
        }
    }

    fn by_idle(&self) -> Vec<ViolationKind<S>> {
        if let Some((active, _)) = self.splits.iter().find(|(_, split)| split.state == State::Active) {
            return vec![ViolationKind::IdleTooSoon { active: active.clone() }];
        }
        match self.highest_idle() {
            Some(reached) if self.judged.last < Some(reached) => {
                vec![ViolationKind::IdleUnflushed { watermark: self.judged.last, reached }]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the highest watermark that the splits allow.
    fn allowed(&self) -> Option<i64> {
        let lowest_active = self.of_state(State::Active).min();
        let all_finished =
            !self.splits.is_empty() && self.splits.values().all(|split| split.state == State::Finished);
        match lowest_active {
            Some(lowest) => lowest,
            None if all_finished => Some(i64::MAX),
            None => self.highest_idle(),
        }
    }

    fn highest_idle(&self) -> Option<i64> {
        self.of_state(State::Idle).max().flatten()
    }

    fn of_state(&self, state: State) -> impl Iterator<Item = Option<i64>> {
        self.splits.values().filter(move |split| split.state == state).map(|split| split.watermark)
    }

    fn apply(&mut self, event: Event<S>) {
        match event {
            Event::Record { late, .. } => {
                self.judged.records += 1;
                self.judged.late += u64::from(late);
            }
            Event::Watermark(watermark) => {
                self.judged.watermarks += 1;
                self.judged.last = self.judged.last.max(Some(watermark));
            }
            Event::Idle => {}
            Event::SplitAdded(split) => {
                self.splits.insert(split, Split::default());
            }
            Event::SplitWatermark { split, watermark } => {
                let split = self.splits.entry(split).or_default();
                split.watermark = split.watermark.max(Some(watermark));
                split.state = State::Active;
            }
            Event::SplitIdle(split) => self.splits.entry(split).or_default().state = State::Idle,
            Event::SplitActive(split) => self.splits.entry(split).or_default().state = State::Active,
            Event::SplitFinished(split) => self.splits.entry(split).or_default().state = State::Finished,
            Event::SplitRemoved(split) => {
                self.splits.remove(&split);
            }
        }
    }
}

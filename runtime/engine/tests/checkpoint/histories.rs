//! Random histories of the coordinator against a plain book of every checkpoint there ever was.
//!
//! The book is told the same, works out what must become of each checkpoint, and every action is held against it: nobody is
//! told before the entry exists, nothing is complete without every task's word, no id comes twice, the parts of each aborted
//! checkpoint are deleted once and no others, no more are in flight than may be, every request is answered once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use levada_core::{BarrierKind, CheckpointId};
use levada_engine::checkpoint::{
    Action, CheckpointKind, CheckpointSettings, Command, Coordinator, DeclineReason, FailReason, Input,
    RequestId, SubtaskId,
};
use proptest::prelude::*;
use proptest::sample::Index;

/// Every acknowledgement has parts of its own.
type Part = u64;

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
enum Event {
    Pass(u64),
    /// The time of the tick that was asked for comes.
    Tick,
    Ask(Command),
    Ack(Index, Index),
    /// An acknowledgement comes a second time.
    Repeat(Index),
    Decline(Index, Index, u8),
    /// A source has found out where it starts, behind one of the checkpoints or before all.
    Starts(Index, Index),
    End(Index),
    Close(Index),
    Written,
    WriteFailed,
    TakenOver,
    Handle(Index),
    HandlerFails(Index),
    TasksFail,
    /// With this many tasks.
    Restart(u32),
    RestartTooEarly,
}

fn event() -> impl Strategy<Value = Event> {
    let index = any::<Index>;
    let command = prop_oneof![
        6 => Just(Command::Checkpoint),
        3 => Just(Command::Savepoint),
        1 => Just(Command::Stop),
        1 => any::<bool>().prop_map(|drain| Command::StopWithSavepoint { drain }),
    ];
    prop_oneof![
        6 => (1..12_u64).prop_map(Event::Pass),
        6 => Just(Event::Tick),
        6 => command.prop_map(Event::Ask),
        30 => (index(), index()).prop_map(|(task, checkpoint)| Event::Ack(task, checkpoint)),
        2 => index().prop_map(Event::Repeat),
        2 => (index(), index(), 0..3_u8).prop_map(|(task, checkpoint, why)| Event::Decline(task, checkpoint, why)),
        3 => (index(), index()).prop_map(|(task, behind)| Event::Starts(task, behind)),
        3 => index().prop_map(Event::End),
        4 => index().prop_map(Event::Close),
        12 => Just(Event::Written),
        2 => Just(Event::WriteFailed),
        1 => Just(Event::TakenOver),
        8 => index().prop_map(Event::Handle),
        1 => index().prop_map(Event::HandlerFails),
        1 => Just(Event::TasksFail),
        8 => (1..4_u32).prop_map(Event::Restart),
        1 => Just(Event::RestartTooEarly),
    ]
}

fn settings() -> impl Strategy<Value = CheckpointSettings> {
    let interval = prop::option::of((5..20_u64).prop_map(Duration::from_secs));
    let pause = prop_oneof![2 => Just(0), 1 => 1..15_u64].prop_map(Duration::from_secs);
    (interval, pause, 1..4_usize, 0..3_u32).prop_map(
        |(interval, min_pause, max_concurrent, tolerable_failures)| CheckpointSettings {
            interval,
            min_pause,
            timeout: TIMEOUT,
            max_concurrent,
            tolerable_failures,
        },
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Writing,
    Complete,
    Aborted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Down,
    Done,
    TakenOver,
}

/// What is known of one checkpoint.
#[derive(Debug)]
struct Page {
    fate: Fate,
    is_silent: bool,
    is_savepoint: bool,
    is_stop: bool,
    begun_at: Duration,
    /// Tasks that were at their end when it began, and whether all were.
    at_end: BTreeSet<SubtaskId>,
    is_last: bool,
    participants: BTreeSet<SubtaskId>,
    acked: BTreeMap<SubtaskId, Part>,
    closed: BTreeSet<SubtaskId>,
    /// Tasks that have declined, or acknowledged it when it was aborted.
    said: BTreeSet<SubtaskId>,
}

impl Page {
    fn is_ready(&self) -> bool {
        let settled = |task| self.acked.contains_key(task) || self.closed.contains(task);
        self.fate == Fate::Open && self.participants.iter().all(settled)
    }

    fn awaits(&self, task: SubtaskId) -> bool {
        let has_said = self.acked.contains_key(&task) || self.said.contains(&task);
        self.participants.contains(&task) && !has_said
    }
}

/// What must come out of one call, besides checkpoints that begin or are written.
#[derive(Debug, Default, PartialEq, Eq)]
struct Expected {
    aborted: BTreeSet<CheckpointId>,
    discarded: BTreeSet<Part>,
    notified: Option<CheckpointId>,
    answered_with: Option<CheckpointId>,
    job_fails: bool,
    is_settled: bool,
    ends_self: bool,
}

struct Book {
    settings: CheckpointSettings,
    coordinator: Coordinator<Part>,
    now: Duration,
    scheduled: Option<Duration>,
    phase: Phase,
    pages: BTreeMap<CheckpointId, Page>,
    running: BTreeSet<SubtaskId>,
    at_end: BTreeSet<SubtaskId>,
    may_close: BTreeSet<SubtaskId>,
    first_of_run: CheckpointId,
    notified: Vec<CheckpointId>,
    handled: BTreeMap<SubtaskId, CheckpointId>,
    resolved: Option<CheckpointId>,
    failures: u32,
    stop: Option<CheckpointId>,
    waiting: BTreeSet<RequestId>,
    /// Tasks that wait until a checkpoint behind this one is complete.
    unstored: BTreeMap<SubtaskId, Option<CheckpointId>>,
    /// How many requests there were; they are numbered from 1.
    asked: u64,
    answered: BTreeSet<RequestId>,
    is_final_due: bool,
    periodic_at: Option<Duration>,
    completed_at: Option<Duration>,
    next_part: Part,
    deleted: BTreeSet<Part>,
    kept: BTreeSet<Part>,
    acks: Vec<(SubtaskId, CheckpointId, Part)>,
}

impl Book {
    fn new(settings: CheckpointSettings, tasks: u32) -> Self {
        let running: BTreeSet<_> = (0..tasks).map(SubtaskId).collect();
        let coordinator = Coordinator::new(settings, 1, None, running.clone(), Duration::ZERO);
        Self {
            settings,
            coordinator,
            now: Duration::ZERO,
            scheduled: None,
            phase: Phase::Running,
            pages: BTreeMap::new(),
            running,
            at_end: BTreeSet::new(),
            may_close: BTreeSet::new(),
            first_of_run: CheckpointId::new(1, 1),
            notified: Vec::new(),
            handled: BTreeMap::new(),
            resolved: None,
            failures: 0,
            stop: None,
            waiting: BTreeSet::new(),
            unstored: BTreeMap::new(),
            asked: 0,
            answered: BTreeSet::new(),
            is_final_due: false,
            periodic_at: settings.interval,
            completed_at: None,
            next_part: 0,
            deleted: BTreeSet::new(),
            kept: BTreeSet::new(),
            acks: Vec::new(),
        }
    }

    fn slots(&self) -> usize {
        if self.settings.min_pause.is_zero() { self.settings.max_concurrent } else { 1 }
    }

    fn in_flight(&self) -> Vec<CheckpointId> {
        let in_flight = self.pages.iter().filter(|(_, page)| matches!(page.fate, Fate::Open | Fate::Writing));
        in_flight.map(|(checkpoint, _)| *checkpoint).collect()
    }

    fn open(&self) -> Vec<CheckpointId> {
        let open = self.pages.iter().filter(|(_, page)| page.fate == Fate::Open);
        open.map(|(checkpoint, _)| *checkpoint).collect()
    }

    fn writing(&self) -> Option<CheckpointId> {
        let writing = self.pages.iter().find(|(_, page)| page.fate == Fate::Writing);
        writing.map(|(checkpoint, _)| *checkpoint)
    }

    // ── What must happen ────────────────────────────────────────────────────────────────────────────────────────────

    fn abort(&mut self, checkpoint: CheckpointId, expected: &mut Expected) {
        let page = self.pages.get_mut(&checkpoint).expect("a page");
        page.fate = Fate::Aborted;
        page.said.extend(page.acked.keys());
        expected.discarded.extend(page.acked.values());
        expected.aborted.insert(checkpoint);
    }

    fn go_down(&mut self, expected: &mut Expected) {
        self.phase = Phase::Down;
        for checkpoint in self.open() {
            self.abort(checkpoint, expected);
        }
        self.failures = 0;
        self.stop = None;
        self.is_final_due = false;
        self.unstored.clear();
        self.notified.clear();
        self.handled.clear();
        expected.is_settled = self.writing().is_none();
    }

    /// A checkpoint fails, for a reason that counts or for another.
    fn fail(&mut self, checkpoint: CheckpointId, counts: bool, expected: &mut Expected) {
        let page = &self.pages[&checkpoint];
        let (is_silent, is_stop, is_last) = (page.is_silent, page.is_stop, page.is_last);
        if page.fate == Fate::Aborted {
            return;
        }
        self.abort(checkpoint, expected);
        if self.phase != Phase::Running || is_silent {
            return;
        }
        if counts && !is_stop {
            self.failures += 1;
        }
        let too_many = self.failures > self.settings.tolerable_failures;
        let no_other_try = is_last && self.settings.interval.is_none();
        if is_stop || too_many || no_other_try {
            expected.job_fails = true;
            self.go_down(expected);
        }
    }

    fn complete(&mut self, checkpoint: CheckpointId, expected: &mut Expected) {
        let page = self.pages.get_mut(&checkpoint).expect("a page");
        page.fate = Fate::Complete;
        self.kept.extend(page.acked.values());
        expected.answered_with = Some(checkpoint);
        self.completed_at = Some(self.now);
        if self.phase == Phase::Down {
            expected.is_settled = true;
        } else if !page.is_silent {
            expected.notified = Some(checkpoint);
            self.failures = 0;
            let older = self.open().into_iter().filter(|older| *older < checkpoint);
            let subsumed: Vec<_> = older.filter(|older| !self.pages[older].is_savepoint).collect();
            for older in subsumed {
                self.abort(older, expected);
            }
            self.notified.push(checkpoint);
            self.unstored.retain(|_, behind| behind.is_some_and(|behind| behind >= checkpoint));
        }
    }

    fn expect(&mut self, input: &Input<Part>) -> Expected {
        let mut expected = Expected::default();
        if self.phase == Phase::TakenOver {
            return expected;
        }
        match input {
            Input::Tick => {
                let overdue =
                    |checkpoint: &CheckpointId| self.pages[checkpoint].begun_at + TIMEOUT <= self.now;
                let overdue: Vec<_> = self.open().into_iter().filter(overdue).collect();
                for checkpoint in overdue {
                    self.fail(checkpoint, true, &mut expected);
                }
            }
            Input::Acked { subtask, checkpoint, parts } => {
                let page = self.pages.get_mut(checkpoint).expect("a page");
                let is_over = page.fate == Fate::Aborted || page.closed.contains(subtask);
                if page.awaits(*subtask) && is_over {
                    page.said.insert(*subtask);
                    expected.discarded.insert(*parts);
                } else if page.awaits(*subtask) {
                    page.acked.insert(*subtask, *parts);
                }
            }
            Input::Declined { subtask, checkpoint, reason } => {
                let page = self.pages.get_mut(checkpoint).expect("a page");
                let is_awaited = page.awaits(*subtask);
                page.said.insert(*subtask);
                if is_awaited && page.fate == Fate::Open && !page.closed.contains(subtask) {
                    let counts = matches!(reason, DeclineReason::Failed(_));
                    self.fail(*checkpoint, counts, &mut expected);
                }
            }
            Input::StartsFound { subtask, after } => {
                self.unstored.insert(*subtask, *after);
            }
            Input::EndReached { subtask } => {
                let is_news = self.at_end.insert(*subtask);
                self.is_final_due |= is_news && self.at_end == self.running;
            }
            Input::Finished { subtask } => {
                self.running.remove(subtask);
                self.at_end.remove(subtask);
                self.unstored.remove(subtask);
                for page in self.pages.values_mut() {
                    if page.fate == Fate::Open && page.awaits(*subtask) {
                        page.closed.insert(*subtask);
                    }
                }
                if self.running.is_empty() {
                    for checkpoint in self.open() {
                        self.abort(checkpoint, &mut expected);
                    }
                }
            }
            Input::EntryWritten(checkpoint) => self.complete(*checkpoint, &mut expected),
            Input::EntryFailed { checkpoint, .. } => {
                let was_down = self.phase == Phase::Down;
                self.pages.get_mut(checkpoint).expect("a page").fate = Fate::Open;
                self.fail(*checkpoint, true, &mut expected);
                expected.is_settled |= was_down;
            }
            Input::TakenOver => {
                self.phase = Phase::TakenOver;
                expected.ends_self = true;
            }
            Input::Handled { subtask, checkpoint } => {
                self.handled.insert(*subtask, *checkpoint);
                let covers = |page: &Page| page.is_stop || page.at_end.contains(subtask);
                if self
                    .notified
                    .iter()
                    .any(|notified| notified <= checkpoint && covers(&self.pages[notified]))
                {
                    self.may_close.insert(*subtask);
                }
            }
            Input::HandlerFailed { .. } => {
                expected.job_fails = true;
                self.go_down(&mut expected);
            }
            Input::TasksFailed if self.phase == Phase::Running => self.go_down(&mut expected),
            Input::Restarted { .. } if self.phase == Phase::Down && self.writing().is_some() => {
                expected.job_fails = true;
            }
            Input::Restarted { subtasks } if self.phase == Phase::Down => {
                self.phase = Phase::Running;
                self.running = subtasks.iter().copied().collect();
                self.at_end.clear();
                self.may_close.clear();
                self.first_of_run =
                    self.pages.keys().next_back().map_or(self.first_of_run, |last| last.next());
                self.periodic_at = self.settings.interval.map(|interval| self.now + interval);
            }
            _ => {}
        }
        expected
    }

    // ── What does happen ────────────────────────────────────────────────────────────────────────────────────────────

    fn tell(&mut self, input: Input<Part>) {
        if input == Input::Tick {
            self.scheduled = None;
        }
        let asked = self.note_request(&input);
        let mut expected = self.expect(&input);
        let actions = self.coordinator.handle(self.now, input.clone());
        let mut command = asked.map(|(_, command)| command);
        let mut found = Expected::default();
        for action in &actions {
            assert!(
                self.phase != Phase::TakenOver || matches!(action, Action::Answer { .. } | Action::EndSelf),
                "a side effect after the takeover: {action:?}"
            );
            self.see(action, &mut command, &mut found, &mut expected);
        }
        assert_eq!(found, expected, "{input:?} → {actions:?}");
        self.check_rest(&input, &actions);
    }

    fn note_request(&mut self, input: &Input<Part>) -> Option<(RequestId, Command)> {
        let Input::Trigger { request, command } = input else { return None };
        let is_taken = self.phase == Phase::Running && !self.running.is_empty() && self.stop.is_none();
        if is_taken && *command == Command::Checkpoint {
            self.waiting.insert(*request);
        }
        Some((*request, *command))
    }

    fn see(
        &mut self,
        action: &Action<Part>,
        command: &mut Option<Command>,
        found: &mut Expected,
        expected: &mut Expected,
    ) {
        match action {
            Action::Inject { barrier, .. } => {
                let forced = command.take_if(|command| *command != Command::Checkpoint);
                assert_eq!(
                    barrier.kind == BarrierKind::Stop,
                    forced.is_some_and(|command| command != Command::Savepoint)
                );
                self.begun(barrier.checkpoint, forced);
            }
            Action::WriteManifest { checkpoint, kind, parts, finished } => {
                self.check_manifest(*checkpoint, *kind, parts, finished);
            }
            Action::NotifyComplete(checkpoint) => {
                assert_eq!(self.pages[checkpoint].fate, Fate::Complete);
                assert_eq!(found.notified.replace(*checkpoint), None);
            }
            Action::NotifyAborted(checkpoint) => assert!(found.aborted.insert(*checkpoint), "aborted twice"),
            Action::DiscardParts { checkpoint, parts } => {
                for part in parts {
                    let is_its_own = |ack: &(_, CheckpointId, Part)| (ack.1, ack.2) == (*checkpoint, *part);
                    assert!(self.acks.iter().any(is_its_own), "a part of another checkpoint: {part}");
                    assert!(self.deleted.insert(*part), "deleted twice: {part}");
                    found.discarded.insert(*part);
                }
            }
            Action::Resolved(checkpoint) => self.check_resolved(*checkpoint),
            Action::Answer { request, outcome } => {
                assert!(self.answered.insert(*request), "answered twice: {request:?}");
                self.waiting.remove(request);
                if let Ok(checkpoint) = outcome {
                    assert_eq!(expected.answered_with, Some(*checkpoint));
                }
            }
            Action::FailJob(reason) => {
                if let FailReason::TooManyFailures { failures, .. } = reason {
                    assert_eq!(*failures, self.settings.tolerable_failures + 1);
                }
                assert!(!found.job_fails, "failed twice");
                found.job_fails = true;
            }
            Action::Settled => {
                assert!(!found.is_settled && self.writing().is_none());
                found.is_settled = true;
            }
            Action::Done { .. } => {
                assert_eq!((self.phase, self.writing()), (Phase::Running, None));
                let stopped = self.stop.is_some_and(|stop| self.resolved >= Some(stop));
                assert!(stopped || self.running.is_empty());
                self.phase = Phase::Done;
                for checkpoint in self.open() {
                    self.abort(checkpoint, expected);
                }
            }
            Action::EndSelf => found.ends_self = true,
            Action::ScheduleTick(at) => self.scheduled = Some(*at),
            other => panic!("an action that the book does not know: {other:?}"),
        }
        found.answered_with = expected.answered_with;
    }

    fn begun(&mut self, checkpoint: CheckpointId, forced: Option<Command>) {
        assert_eq!(self.phase, Phase::Running);
        assert!(self.pages.keys().next_back().is_none_or(|last| *last < checkpoint), "an id comes twice");
        assert_eq!(self.stop, None, "begun while stopping");
        let is_savepoint = matches!(forced, Some(Command::Savepoint | Command::StopWithSavepoint { .. }));
        let is_silent = forced == Some(Command::Savepoint);
        let is_stop = forced.is_some() && !is_silent;
        if forced.is_none() {
            assert!(self.in_flight().len() < self.slots(), "too many in flight");
            self.check_reason_to_begin();
        }
        if !is_silent {
            self.is_final_due = false;
        }
        if is_stop {
            self.stop = Some(checkpoint);
        }
        let page = Page {
            fate: Fate::Open,
            is_silent,
            is_savepoint,
            is_stop,
            begun_at: self.now,
            at_end: self.at_end.clone(),
            is_last: self.at_end == self.running,
            participants: self.running.clone(),
            acked: BTreeMap::new(),
            closed: BTreeSet::new(),
            said: BTreeSet::new(),
        };
        self.pages.insert(checkpoint, page);
    }

    fn check_reason_to_begin(&mut self) {
        if !self.waiting.is_empty() {
            self.waiting.clear();
        } else if !self.is_starts_due() && !self.is_final_due {
            assert!(self.is_periodic_due(), "begun for no reason");
            self.periodic_at = self.settings.interval.map(|interval| self.now + interval);
        }
    }

    /// Whether a task waits for a checkpoint, and none is in flight that would let it go on.
    fn is_starts_due(&self) -> bool {
        let loud: Vec<_> =
            self.in_flight().into_iter().filter(|in_flight| !self.pages[in_flight].is_silent).collect();
        let lets_go = |behind: Option<CheckpointId>| loud.iter().any(|checkpoint| Some(*checkpoint) > behind);
        self.unstored.values().any(|behind| !lets_go(*behind))
    }

    fn periodic_due_at(&self) -> Option<Duration> {
        let pause_ends = self.completed_at.map_or(Duration::ZERO, |at| at + self.settings.min_pause);
        self.periodic_at.map(|at| at.max(pause_ends))
    }

    fn is_periodic_due(&self) -> bool {
        self.periodic_due_at().is_some_and(|at| at <= self.now)
    }

    fn check_manifest(
        &mut self,
        checkpoint: CheckpointId,
        kind: CheckpointKind,
        parts: &BTreeMap<SubtaskId, Part>,
        finished: &BTreeSet<SubtaskId>,
    ) {
        assert_eq!(self.writing(), None, "two entries at a time");
        let first_ready =
            self.pages.iter().find(|(_, page)| page.is_ready()).map(|(checkpoint, _)| *checkpoint);
        assert_eq!(first_ready, Some(checkpoint), "not the oldest of those that are complete");
        let page = self.pages.get_mut(&checkpoint).expect("a page");
        assert_eq!((kind.is_savepoint(), kind.is_stop()), (page.is_savepoint, page.is_stop));
        assert_eq!(*parts, page.acked);
        assert!(
            page.closed.is_subset(finished) && finished.is_disjoint(&page.acked.keys().copied().collect())
        );
        page.fate = Fate::Writing;
    }

    fn check_resolved(&mut self, checkpoint: CheckpointId) {
        assert!(self.resolved < Some(checkpoint));
        assert!(self.notified.contains(&checkpoint));
        assert!(self.running.iter().all(|task| self.handled.get(task) >= Some(&checkpoint)));
        self.resolved = Some(checkpoint);
    }

    fn check_rest(&self, input: &Input<Part>, actions: &[Action<Part>]) {
        let context = || format!("{input:?} → {actions:?}");
        assert!(self.deleted.is_disjoint(&self.kept), "a complete checkpoint lost parts: {}", context());
        if self.phase == Phase::TakenOver {
            return;
        }
        assert_eq!(self.coordinator.in_flight().collect::<Vec<_>>(), self.in_flight(), "{}", context());
        let may_begin = self.phase == Phase::Running && self.stop.is_none() && !self.running.is_empty();
        let has_slot = may_begin && self.in_flight().len() < self.slots();
        if has_slot {
            let is_due = self.is_starts_due() || self.is_final_due || self.is_periodic_due();
            let is_idle = self.waiting.is_empty() && !is_due;
            assert!(is_idle, "something should have begun: {}", context());
        }
        if self.phase == Phase::Running {
            let is_ready = self.pages.values().any(Page::is_ready);
            assert!(self.writing().is_some() || !is_ready, "something should be written: {}", context());
            let by_all = self.running.iter().map(|task| self.handled.get(task)).min().flatten();
            let resolved = self.notified.iter().rfind(|notified| by_all >= Some(notified));
            assert!(resolved.is_none() || self.resolved.as_ref() >= resolved, "{}", context());
        }
        let expiries = self.open().into_iter().map(|checkpoint| self.pages[&checkpoint].begun_at + TIMEOUT);
        let next = expiries.chain(self.periodic_due_at().filter(|_| has_slot)).min();
        assert!(next.is_none() || self.scheduled == next, "tick at {next:?}: {}", context());
    }

    // ── What the world does ─────────────────────────────────────────────────────────────────────────────────────────

    fn ask(&mut self, command: Command) -> RequestId {
        self.asked += 1;
        let request = RequestId(self.asked);
        self.tell(Input::Trigger { request, command });
        request
    }

    fn ack(&mut self, subtask: SubtaskId, checkpoint: CheckpointId) {
        self.next_part += 1;
        let parts = self.next_part;
        self.acks.push((subtask, checkpoint, parts));
        self.tell(Input::Acked { subtask, checkpoint, parts });
    }

    fn handle(&mut self, subtask: SubtaskId) {
        if let Some(checkpoint) = self.notified.last().copied() {
            self.tell(Input::Handled { subtask, checkpoint });
        }
    }

    /// A task, and a checkpoint on which its word is still to come, aborted ones included.
    fn word_to_come(&self, task: Index, checkpoint: Index) -> Option<(SubtaskId, CheckpointId)> {
        let awaiting = |page: &Page| {
            let awaited: Vec<_> =
                page.participants.iter().copied().filter(|task| page.awaits(*task)).collect();
            awaited
        };
        let pages: Vec<_> = self.pages.iter().filter(|(_, page)| !awaiting(page).is_empty()).collect();
        // The newest ones mostly, or nothing would ever be complete.
        let recent = pages.len().saturating_sub(4);
        let (id, page) =
            pages.get(recent..).filter(|pages| !pages.is_empty()).map(|pages| *checkpoint.get(pages))?;
        Some((*task.get(&awaiting(page)), *id))
    }

    fn one_of(tasks: &BTreeSet<SubtaskId>, index: Index) -> Option<SubtaskId> {
        let tasks: Vec<_> = tasks.iter().copied().collect();
        (!tasks.is_empty()).then(|| *index.get(&tasks))
    }

    fn happen(&mut self, event: Event) {
        let is_running = self.phase == Phase::Running;
        match event {
            Event::Pass(seconds) => self.now += Duration::from_secs(seconds),
            Event::Tick => {
                self.now = self.scheduled.map_or(self.now, |at| at.max(self.now));
                self.tell(Input::Tick);
            }
            Event::Ask(command) => {
                self.ask(command);
            }
            Event::Ack(task, checkpoint) => {
                if let Some((subtask, checkpoint)) = self.word_to_come(task, checkpoint) {
                    self.ack(subtask, checkpoint);
                }
            }
            Event::Repeat(index) if !self.acks.is_empty() => {
                let (subtask, checkpoint, parts) = *index.get(&self.acks);
                self.tell(Input::Acked { subtask, checkpoint, parts });
            }
            Event::Decline(task, checkpoint, why) => {
                let reasons = [
                    DeclineReason::Failed("no".into()),
                    DeclineReason::Superseded,
                    DeclineReason::NotRunning,
                ];
                let reason = reasons[why as usize].clone();
                if let Some((subtask, checkpoint)) = self.word_to_come(task, checkpoint) {
                    self.tell(Input::Declined { subtask, checkpoint, reason });
                }
            }
            Event::Starts(task, behind) if is_running => {
                let known = [None].into_iter().chain(self.pages.keys().copied().map(Some));
                let after = *behind.get(&known.collect::<Vec<_>>());
                if let Some(subtask) = Self::one_of(&self.running, task) {
                    self.tell(Input::StartsFound { subtask, after });
                }
            }
            Event::End(index) if is_running => {
                if let Some(subtask) = Self::one_of(&self.running, index) {
                    self.tell(Input::EndReached { subtask });
                }
            }
            Event::Close(index) if is_running => {
                let closable = self.running.intersection(&self.may_close).copied().collect();
                if let Some(subtask) = Self::one_of(&closable, index) {
                    self.tell(Input::Finished { subtask });
                }
            }
            Event::Written => self.store_says(Input::EntryWritten),
            Event::WriteFailed => {
                self.store_says(|checkpoint| Input::EntryFailed { checkpoint, error: "disk full".into() });
            }
            Event::TakenOver => self.store_says(|_| Input::TakenOver),
            Event::Handle(index) if is_running => {
                if let Some(subtask) = Self::one_of(&self.running, index) {
                    self.handle(subtask);
                }
            }
            Event::HandlerFails(index) if is_running => {
                let failing = Self::one_of(&self.running, index).zip(self.notified.last().copied());
                if let Some((subtask, checkpoint)) = failing {
                    self.tell(Input::HandlerFailed { subtask, checkpoint, error: "no".into() });
                }
            }
            Event::TasksFail => self.tell(Input::TasksFailed),
            Event::Restart(tasks) if self.phase == Phase::Down && self.writing().is_none() => {
                self.tell(Input::Restarted { subtasks: (0..tasks).map(SubtaskId).collect() });
            }
            Event::RestartTooEarly if self.phase == Phase::Down && self.writing().is_some() => {
                self.tell(Input::Restarted { subtasks: vec![SubtaskId(0)] });
            }
            _ => {}
        }
    }

    fn store_says(&mut self, word: impl Fn(CheckpointId) -> Input<Part>) {
        if let Some(checkpoint) = self.writing().filter(|_| self.phase != Phase::TakenOver) {
            self.tell(word(checkpoint));
        }
    }

    /// Nothing goes wrong any more: whatever is in flight becomes complete, and another one after it.
    fn end_well(&mut self) {
        if self.phase == Phase::Down {
            self.happen(Event::Written);
            self.happen(Event::Restart(2));
        }
        self.ask(Command::Checkpoint);
        while self.phase == Phase::Running && !self.in_flight().is_empty() {
            let open = self.open();
            for checkpoint in open {
                let missing = self.pages[&checkpoint].participants.clone();
                for task in missing.intersection(&self.running.clone()) {
                    if self.pages[&checkpoint].awaits(*task) && self.pages[&checkpoint].fate == Fate::Open {
                        self.ack(*task, checkpoint);
                    }
                }
            }
            self.happen(Event::Written);
            for task in self.running.clone() {
                self.handle(task);
            }
        }
        for task in self.running.clone() {
            self.handle(task);
        }
        let all: BTreeSet<_> = (1..=self.asked).map(RequestId).collect();
        assert_eq!(self.answered, all, "every request is answered");
        let can_stop = self.stop.is_none() || self.phase != Phase::Running;
        assert!(can_stop, "the stop came to no end: {:?}", self.pages);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// [CHK-20] [CHK-01] [CHK-03] [CHK-04] [CHK-05] [CHK-06]
    #[test]
    fn every_checkpoint_ends_as_the_book_says(
        settings in settings(),
        tasks in 1..4_u32,
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut book = Book::new(settings, tasks);
        book.tell(Input::Tick);
        for event in events {
            book.happen(event);
        }
        book.end_well();
    }
}

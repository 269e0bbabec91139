//! The coordinator: when a checkpoint begins, when it is complete, and who is told.
//!
//! ```text
//!            Inject             all acked             entry created
//!  trigger ─────────▶ in flight ─────────▶ being written ─────────▶ complete ─▶ NotifyComplete ─▶ all handled ─▶ Resolved
//!                        │ declined, expired,     │ entry failed
//!                        │ subsumed, job failed   │
//!                        └────────────────────────┴──▶ aborted ─▶ NotifyAborted, DiscardParts; parts that come later, too
//! ```
//!
//! While its entry is being written a checkpoint cannot be aborted: only the store knows whether it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use levada_core::CheckpointId;

use super::protocol::{
    AbortReason, Action, CheckpointKind, CheckpointSettings, Command, DeclineReason, FailReason, Input,
    RequestId, SubtaskId,
};

/// Aborted checkpoints whose late acknowledgements are still recognised. Far more than can be on their way; beyond, parts
/// are left to the store's own clean-up instead of being deleted at once.
const REMEMBERED_ABORTS: usize = 1000;

/// Decides about the checkpoints of one job in one process. See the module's picture.
///
/// Does no I/O and reads no clock: takes what happened and the time, and returns what is to be done.
#[derive(Debug, Clone)]
pub struct Coordinator<P> {
    settings: CheckpointSettings,
    phase: Phase,
    /// The id of the next checkpoint.
    next: CheckpointId,
    /// The id of the first checkpoint of the tasks that run now.
    first_of_run: CheckpointId,
    running: BTreeSet<SubtaskId>,
    /// Running tasks that have come to the end of their input.
    at_end: BTreeSet<SubtaskId>,
    finished: BTreeSet<SubtaskId>,
    /// Triggered, neither complete nor aborted.
    in_flight: BTreeMap<CheckpointId, InFlight<P>>,
    /// The one of them whose entry is being written. One at a time: entries are numbered, and a process must not compete
    /// with itself for a number.
    writing: Option<CheckpointId>,
    /// Tasks that may still acknowledge an aborted checkpoint.
    late: BTreeMap<CheckpointId, BTreeSet<SubtaskId>>,
    /// Requests that wait until a checkpoint may begin.
    waiting: Vec<RequestId>,
    /// Tasks that read nothing before their starts are in a complete checkpoint, and the last one in which these are not.
    unstored: BTreeMap<SubtaskId, Option<CheckpointId>>,
    /// When the interval is over.
    periodic_at: Option<Duration>,
    /// All tasks are at their end, and no checkpoint was begun since.
    is_final_due: bool,
    /// The checkpoint to stop with, once it is triggered.
    stopping: Option<CheckpointId>,
    completed_at: Option<Duration>,
    /// The newest complete checkpoint whose tasks were told.
    last_notified: Option<CheckpointId>,
    /// How many failed since the last one that did not.
    failures: u32,
    /// Complete, but not yet handled by every task.
    unresolved: BTreeSet<CheckpointId>,
    resolved: Option<CheckpointId>,
    /// The newest completion that each task has handled.
    handled: BTreeMap<SubtaskId, CheckpointId>,
    scheduled: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// The job has failed and is not restarted yet.
    Down,
    /// The job has ended.
    Done,
    TakenOver,
}

#[derive(Debug, Clone)]
struct InFlight<P> {
    kind: CheckpointKind,
    triggered_at: Duration,
    requests: Vec<RequestId>,
    /// Whether every task was at its end when it began.
    is_last: bool,
    /// Tasks that have not acknowledged it.
    missing: BTreeSet<SubtaskId>,
    parts: BTreeMap<SubtaskId, P>,
    finished: BTreeSet<SubtaskId>,
}

type Actions<P> = Vec<Action<P>>;

impl<P: Clone> Coordinator<P> {
    /// Begins with the tasks that run, at `now`, a time on any monotonic clock. The first periodic checkpoint is due after
    /// the interval. Attempt `attempt` numbers its checkpoints from 1, or on from `restored` if that is one of its own.
    ///
    /// Ask for the first tick by sending one.
    pub fn new(
        settings: CheckpointSettings,
        attempt: u64,
        restored: Option<CheckpointId>,
        subtasks: impl IntoIterator<Item = SubtaskId>,
        now: Duration,
    ) -> Self {
        let own = restored.filter(|restored| restored.attempt == attempt);
        let next = own.map_or(CheckpointId::new(attempt, 1), CheckpointId::next);
        Self {
            settings,
            phase: Phase::Running,
            next,
            first_of_run: next,
            running: subtasks.into_iter().collect(),
            at_end: BTreeSet::new(),
            finished: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            writing: None,
            late: BTreeMap::new(),
            waiting: Vec::new(),
            unstored: BTreeMap::new(),
            periodic_at: settings.interval.map(|interval| now.saturating_add(interval)),
            is_final_due: false,
            stopping: None,
            completed_at: None,
            last_notified: None,
            failures: 0,
            unresolved: BTreeSet::new(),
            resolved: None,
            handled: BTreeMap::new(),
            scheduled: None,
        }
    }

    /// Returns the id that the next checkpoint will have.
    pub fn next(&self) -> CheckpointId {
        self.next
    }

    /// Uses up the next id without a checkpoint. Tasks name transactions by it before it is triggered; those that open after
    /// a failure must not do so by the same one again.
    pub fn skip(&mut self) {
        self.next = self.next.next();
    }

    /// Returns what a checkpoint in flight was taken for.
    pub fn kind(&self, checkpoint: CheckpointId) -> Option<CheckpointKind> {
        self.in_flight.get(&checkpoint).map(|in_flight| in_flight.kind)
    }

    /// Returns the checkpoints in flight, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = CheckpointId> {
        self.in_flight.keys().copied()
    }

    /// Takes in what happened, and returns what is to be done. `now` never goes back.
    pub fn handle(&mut self, now: Duration, input: Input<P>) -> Vec<Action<P>> {
        let mut actions = Vec::new();
        if self.phase == Phase::TakenOver {
            // Not a single side effect from here on; even deleting parts is the other process's business now.
            if let Input::Trigger { request, .. } = input {
                actions.push(refused(request, AbortReason::TakenOver));
            }
            return actions;
        }
        self.take_in(now, input, &mut actions);
        self.resolve(&mut actions);
        self.end_if_done(&mut actions);
        self.write_next(&mut actions);
        self.begin_due(now, &mut actions);
        self.schedule(&mut actions);
        actions
    }

    fn take_in(&mut self, now: Duration, input: Input<P>, actions: &mut Actions<P>) {
        match input {
            Input::Tick => {
                self.scheduled = None;
                self.expire(now, actions);
            }
            Input::Trigger { request, command } => self.requested(now, request, command, actions),
            Input::Acked { subtask, checkpoint, parts } => self.acked(subtask, checkpoint, parts, actions),
            Input::Declined { subtask, checkpoint, reason } => {
                self.declined(subtask, checkpoint, reason, actions)
            }
            Input::StartsFound { subtask, after } => self.starts_found(subtask, after),
            Input::EndReached { subtask } => self.end_reached(subtask),
            Input::Finished { subtask } => self.task_finished(subtask, actions),
            Input::EntryWritten(checkpoint) => self.entry_written(now, checkpoint, actions),
            Input::EntryFailed { checkpoint, error } => self.entry_failed(checkpoint, error, actions),
            Input::TakenOver => self.taken_over(actions),
            Input::Handled { subtask, checkpoint } => self.completion_handled(subtask, checkpoint),
            Input::HandlerFailed { subtask, checkpoint, error } => {
                // A task of before a restart has nothing to say about the ones that run now.
                if self.phase == Phase::Running && checkpoint >= self.first_of_run {
                    self.fail(FailReason::HandlerFailed { subtask, checkpoint, error }, actions);
                }
            }
            Input::TasksFailed => {
                if self.phase == Phase::Running {
                    self.go_down(actions);
                }
            }
            Input::Restarted { subtasks } => self.restarted(now, subtasks, actions),
        }
    }

    // ── How a checkpoint begins ─────────────────────────────────────────────────────────────────────────────────────

    fn requested(&mut self, now: Duration, request: RequestId, command: Command, actions: &mut Actions<P>) {
        if self.phase != Phase::Running || self.running.is_empty() {
            actions.push(refused(request, AbortReason::NotRunning));
            return;
        }
        if self.stopping.is_some() {
            actions.push(refused(request, AbortReason::Stopping));
            return;
        }
        let kind = match command {
            Command::Checkpoint => {
                self.waiting.push(request);
                return;
            }
            Command::Savepoint => CheckpointKind::Savepoint,
            Command::Stop => CheckpointKind::Stop,
            Command::StopWithSavepoint { drain } => CheckpointKind::StopWithSavepoint { drain },
        };
        self.begin(now, kind, vec![request], actions);
        if kind.is_stop() {
            let waiting = mem::take(&mut self.waiting);
            actions.extend(waiting.into_iter().map(|request| refused(request, AbortReason::Stopping)));
        }
    }

    fn starts_found(&mut self, subtask: SubtaskId, after: Option<CheckpointId>) {
        if self.phase == Phase::Running && self.running.contains(&subtask) {
            self.unstored.insert(subtask, after);
        }
    }

    /// Tells whether a task waits for its starts to be stored, and no checkpoint is under way in which they are.
    fn is_starts_due(&self) -> bool {
        let mut notified = self.in_flight.iter().filter(|(_, in_flight)| in_flight.kind.is_notified());
        let newest = notified.next_back().map(|(checkpoint, _)| *checkpoint);
        self.unstored.values().any(|after| newest <= *after)
    }

    /// Begins what is due, as long as there is a slot.
    fn begin_due(&mut self, now: Duration, actions: &mut Actions<P>) {
        if !self.may_begin() {
            return;
        }
        if self.has_slot() && !self.waiting.is_empty() {
            let requests = mem::take(&mut self.waiting);
            self.begin(now, CheckpointKind::Requested, requests, actions);
        }
        if self.has_slot() && self.is_starts_due() {
            self.begin(now, CheckpointKind::Starts, Vec::new(), actions);
        }
        if self.has_slot() && self.is_final_due {
            self.begin(now, CheckpointKind::Final, Vec::new(), actions);
        }
        if self.has_slot() && self.periodic_due_at().is_some_and(|due| due <= now) {
            self.periodic_at = self.settings.interval.map(|interval| now.saturating_add(interval));
            self.begin(now, CheckpointKind::Periodic, Vec::new(), actions);
        }
    }

    fn may_begin(&self) -> bool {
        self.phase == Phase::Running && self.stopping.is_none() && !self.running.is_empty()
    }

    fn has_slot(&self) -> bool {
        self.in_flight.len() < self.settings.slots()
    }

    fn periodic_due_at(&self) -> Option<Duration> {
        let pause_ends = self.completed_at.map(|at| at.saturating_add(self.settings.min_pause));
        self.periodic_at.map(|at| at.max(pause_ends.unwrap_or_default()))
    }

    fn begin(
        &mut self,
        now: Duration,
        kind: CheckpointKind,
        requests: Vec<RequestId>,
        actions: &mut Actions<P>,
    ) {
        let checkpoint = self.next;
        self.next = checkpoint.next();
        let is_last = self.is_at_end();
        if kind.is_notified() {
            self.is_final_due = false;
        }
        if kind.is_stop() {
            self.stopping = Some(checkpoint);
        }
        let in_flight = InFlight {
            kind,
            triggered_at: now,
            requests,
            is_last,
            missing: self.running.clone(),
            parts: BTreeMap::new(),
            finished: self.finished.clone(),
        };
        self.in_flight.insert(checkpoint, in_flight);
        actions.push(Action::Inject { barrier: kind.barrier(checkpoint), drain: kind.is_drain() });
    }

    // ── What the tasks say ──────────────────────────────────────────────────────────────────────────────────────────

    fn acked(&mut self, subtask: SubtaskId, checkpoint: CheckpointId, parts: P, actions: &mut Actions<P>) {
        if let Some(in_flight) = self.in_flight.get_mut(&checkpoint)
            && in_flight.missing.remove(&subtask)
        {
            in_flight.parts.insert(subtask, parts);
        } else if self.is_late(subtask, checkpoint) {
            actions.push(Action::DiscardParts { checkpoint, parts: vec![parts] });
        }
        // Anything else is a repetition. Its parts may be named by a manifest, so they are not touched.
    }

    fn declined(
        &mut self,
        subtask: SubtaskId,
        checkpoint: CheckpointId,
        reason: DeclineReason,
        actions: &mut Actions<P>,
    ) {
        if let Some(in_flight) = self.in_flight.get_mut(&checkpoint)
            && in_flight.missing.remove(&subtask)
        {
            self.abort(checkpoint, AbortReason::Declined { subtask, reason }, actions);
        } else {
            self.is_late(subtask, checkpoint);
        }
    }

    /// Tells whether the task's word on an aborted checkpoint was still to come, and takes it as said.
    fn is_late(&mut self, subtask: SubtaskId, checkpoint: CheckpointId) -> bool {
        let Some(missing) = self.late.get_mut(&checkpoint) else { return false };
        let is_late = missing.remove(&subtask);
        if missing.is_empty() {
            self.late.remove(&checkpoint);
        }
        is_late
    }

    fn remember_late(&mut self, checkpoint: CheckpointId, missing: impl IntoIterator<Item = SubtaskId>) {
        let mut missing = missing.into_iter().peekable();
        if missing.peek().is_some() {
            self.late.entry(checkpoint).or_default().extend(missing);
        }
        while self.late.len() > REMEMBERED_ABORTS {
            self.late.pop_first();
        }
    }

    fn end_reached(&mut self, subtask: SubtaskId) {
        let is_news = self.running.contains(&subtask) && self.at_end.insert(subtask);
        if is_news && self.is_at_end() {
            self.is_final_due = true;
        }
    }

    fn is_at_end(&self) -> bool {
        self.running.is_subset(&self.at_end)
    }

    fn task_finished(&mut self, subtask: SubtaskId, actions: &mut Actions<P>) {
        if self.phase != Phase::Running || !self.running.remove(&subtask) {
            return;
        }
        let was_at_end = self.at_end.remove(&subtask);
        self.finished.insert(subtask);
        self.handled.remove(&subtask);
        self.unstored.remove(&subtask);
        let mut unsaid = Vec::new();
        for (checkpoint, in_flight) in &mut self.in_flight {
            if in_flight.missing.remove(&subtask) {
                in_flight.finished.insert(subtask);
                unsaid.push(*checkpoint);
            }
        }
        for checkpoint in unsaid {
            self.remember_late(checkpoint, [subtask]);
        }
        if self.running.is_empty() {
            self.abort_all(&AbortReason::JobEnded, actions);
        } else if !was_at_end && self.is_at_end() {
            // The only one that was not at its end is gone.
            self.is_final_due = true;
        }
    }

    fn completion_handled(&mut self, subtask: SubtaskId, checkpoint: CheckpointId) {
        if self.running.contains(&subtask) {
            let handled = self.handled.entry(subtask).or_insert(checkpoint);
            *handled = checkpoint.max(*handled);
        }
    }

    // ── What the store says ─────────────────────────────────────────────────────────────────────────────────────────

    /// Has the oldest fully acknowledged checkpoint written, if none is.
    fn write_next(&mut self, actions: &mut Actions<P>) {
        if self.phase != Phase::Running || self.writing.is_some() {
            return;
        }
        let ready = self.in_flight.iter().find(|(_, in_flight)| in_flight.missing.is_empty());
        let Some((checkpoint, in_flight)) = ready else { return };
        self.writing = Some(*checkpoint);
        actions.push(Action::WriteManifest {
            checkpoint: *checkpoint,
            kind: in_flight.kind,
            parts: in_flight.parts.clone(),
            finished: in_flight.finished.clone(),
        });
    }

    fn entry_written(&mut self, now: Duration, checkpoint: CheckpointId, actions: &mut Actions<P>) {
        if self.writing != Some(checkpoint) {
            return;
        }
        self.writing = None;
        let Some(complete) = self.in_flight.remove(&checkpoint) else { return };
        self.completed_at = Some(now);
        if self.phase == Phase::Running && complete.kind.is_notified() {
            self.failures = 0;
            self.unstored.retain(|_, after| *after >= Some(checkpoint));
            self.subsume(checkpoint, actions);
            self.last_notified = Some(checkpoint);
            self.unresolved.insert(checkpoint);
            actions.push(Action::NotifyComplete(checkpoint));
        }
        let answer = |request| Action::Answer { request, outcome: Ok(checkpoint) };
        actions.extend(complete.requests.into_iter().map(answer));
        self.settle(actions);
    }

    fn subsume(&mut self, complete: CheckpointId, actions: &mut Actions<P>) {
        let older = self.in_flight.range(..complete);
        let subsumed = older.filter(|(_, in_flight)| !in_flight.kind.is_savepoint());
        let subsumed: Vec<_> = subsumed.map(|(checkpoint, _)| *checkpoint).collect();
        for checkpoint in subsumed {
            self.abort(checkpoint, AbortReason::Subsumed(complete), actions);
        }
    }

    fn entry_failed(&mut self, checkpoint: CheckpointId, error: String, actions: &mut Actions<P>) {
        if self.writing != Some(checkpoint) {
            return;
        }
        self.writing = None;
        let was_down = self.phase == Phase::Down;
        self.abort(checkpoint, AbortReason::EntryFailed(error), actions);
        // When it is this failure that takes the job down, it has been settled there.
        if was_down {
            self.settle(actions);
        }
    }

    fn taken_over(&mut self, actions: &mut Actions<P>) {
        if self.phase == Phase::Done {
            return;
        }
        self.phase = Phase::TakenOver;
        let in_flight = mem::take(&mut self.in_flight).into_values();
        let requests = in_flight.flat_map(|in_flight| in_flight.requests).chain(mem::take(&mut self.waiting));
        actions.extend(requests.map(|request| refused(request, AbortReason::TakenOver)));
        actions.push(Action::EndSelf);
    }

    // ── How a checkpoint, and a job, ends ───────────────────────────────────────────────────────────────────────────

    fn expire(&mut self, now: Duration, actions: &mut Actions<P>) {
        let due = self
            .in_flight
            .keys()
            .filter(|checkpoint| self.expires_at(**checkpoint).is_some_and(|at| at <= now));
        let due: Vec<_> = due.copied().collect();
        for checkpoint in due {
            self.abort(checkpoint, AbortReason::Expired, actions);
        }
    }

    fn expires_at(&self, checkpoint: CheckpointId) -> Option<Duration> {
        if self.writing == Some(checkpoint) {
            return None;
        }
        let in_flight = self.in_flight.get(&checkpoint)?;
        Some(in_flight.triggered_at.saturating_add(self.settings.timeout))
    }

    /// Drops a checkpoint, and fails the job if that is one too many.
    fn abort(&mut self, checkpoint: CheckpointId, reason: AbortReason, actions: &mut Actions<P>) {
        let Some(aborted) = self.in_flight.remove(&checkpoint) else { return };
        self.remember_late(checkpoint, aborted.missing);
        actions.push(Action::NotifyAborted(checkpoint));
        if !aborted.parts.is_empty() {
            let parts = aborted.parts.into_values().collect();
            actions.push(Action::DiscardParts { checkpoint, parts });
        }
        let refuse = |request| refused(request, reason.clone());
        actions.extend(aborted.requests.into_iter().map(refuse));
        if let Some(failure) = self.failure_after(checkpoint, aborted.kind, aborted.is_last, reason) {
            self.fail(failure, actions);
        }
    }

    fn failure_after(
        &mut self,
        checkpoint: CheckpointId,
        kind: CheckpointKind,
        is_last: bool,
        reason: AbortReason,
    ) -> Option<FailReason> {
        let is_harmless = matches!(reason, AbortReason::Subsumed(_) | AbortReason::JobEnded);
        if self.phase != Phase::Running || is_harmless || kind == CheckpointKind::Savepoint {
            return None;
        }
        if kind.is_stop() {
            return Some(FailReason::StopFailed { checkpoint, reason });
        }
        if reason.is_failure() && self.last_notified < Some(checkpoint) {
            self.failures += 1;
        }
        if self.failures > self.settings.tolerable_failures {
            return Some(FailReason::TooManyFailures { failures: self.failures, checkpoint, reason });
        }
        let has_another_try = self.settings.interval.is_some();
        (is_last && !has_another_try).then_some(FailReason::FinalFailed { checkpoint, reason })
    }

    fn fail(&mut self, reason: FailReason, actions: &mut Actions<P>) {
        if self.phase == Phase::Running {
            actions.push(Action::FailJob(reason));
            self.go_down(actions);
        }
    }

    fn go_down(&mut self, actions: &mut Actions<P>) {
        self.phase = Phase::Down;
        self.abort_all(&AbortReason::JobFailed, actions);
        self.is_final_due = false;
        self.unstored.clear();
        self.stopping = None;
        self.failures = 0;
        self.unresolved.clear();
        self.handled.clear();
        self.settle(actions);
    }

    /// Aborts everything that can be, and refuses what waits.
    fn abort_all(&mut self, reason: &AbortReason, actions: &mut Actions<P>) {
        let writing = self.writing;
        let others = self.in_flight.keys().copied().filter(|checkpoint| Some(*checkpoint) != writing);
        let others: Vec<_> = others.collect();
        for checkpoint in others {
            self.abort(checkpoint, reason.clone(), actions);
        }
        let waiting = mem::take(&mut self.waiting);
        actions.extend(waiting.into_iter().map(|request| refused(request, reason.clone())));
    }

    fn settle(&mut self, actions: &mut Actions<P>) {
        if self.phase == Phase::Down && self.writing.is_none() {
            actions.push(Action::Settled);
        }
    }

    fn restarted(&mut self, now: Duration, subtasks: Vec<SubtaskId>, actions: &mut Actions<P>) {
        if self.phase != Phase::Down {
            return;
        }
        if let Some(checkpoint) = self.writing {
            actions.push(Action::FailJob(FailReason::RestoredTooEarly(checkpoint)));
            return;
        }
        self.phase = Phase::Running;
        self.first_of_run = self.next;
        self.running = subtasks.into_iter().collect();
        self.at_end.clear();
        self.finished.clear();
        self.periodic_at = self.settings.interval.map(|interval| now.saturating_add(interval));
    }

    /// Finds the newest completion that every running task has handled.
    fn resolve(&mut self, actions: &mut Actions<P>) {
        let newest = match self.running.iter().map(|subtask| self.handled.get(subtask)).min() {
            Some(Some(handled_by_all)) => self.unresolved.range(..=*handled_by_all).next_back(),
            Some(None) => None,
            // The tasks are closed, which they do only after they have handled what covers all they did.
            None => self.unresolved.last(),
        };
        let Some(resolved) = newest.copied() else { return };
        self.unresolved = self.unresolved.split_off(&resolved.next());
        self.resolved = Some(resolved);
        actions.push(Action::Resolved(resolved));
    }

    fn end_if_done(&mut self, actions: &mut Actions<P>) {
        let has_stopped = self.stopping.is_some_and(|stop| self.resolved >= Some(stop));
        let has_ended = self.running.is_empty() || has_stopped;
        if self.phase != Phase::Running || self.writing.is_some() || !has_ended {
            return;
        }
        self.phase = Phase::Done;
        self.abort_all(&AbortReason::JobEnded, actions);
        actions.push(Action::Done { last: self.resolved });
    }

    /// Asks for a tick when something becomes due by time alone.
    fn schedule(&mut self, actions: &mut Actions<P>) {
        let expiry = self.in_flight.keys().filter_map(|checkpoint| self.expires_at(*checkpoint)).min();
        let periodic = self.periodic_due_at().filter(|_| self.may_begin() && self.has_slot());
        let next = expiry.into_iter().chain(periodic).min();
        if let Some(at) = next
            && self.scheduled != next
        {
            self.scheduled = next;
            actions.push(Action::ScheduleTick(at));
        }
    }
}

fn refused<P>(request: RequestId, reason: AbortReason) -> Action<P> {
    Action::Answer { request, outcome: Err(reason) }
}

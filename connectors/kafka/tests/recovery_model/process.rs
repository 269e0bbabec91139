//! What a process does, step by step: the order of the engine's recovery and of its driver of two-phase sinks, over the
//! decisions of the code that is checked.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use levada_core::CheckpointId;
use levada_core::template::{Decision, Fate, decide};
use levada_kafka::sink::recovery::{
    AbortSettled, Answer, CommitSettled, Evidence, Marker, Terms as Judging, answer, check_prepared, fate,
    settled_abort, settled_commit, to_fence,
};

use super::broker::{WRITERS, now};
use super::names::{Handle, Id, id_of, naming};
use super::store::{Checkpoint, Entry};
use super::world::{Offence, Phase, Recovery, Terms, Why, World};

/// What came of a commit or an abort.
enum End {
    Done,
    /// Somebody has published what was to be dropped.
    Visible,
    /// The process must start again.
    Failed,
}

impl World {
    /// Does the next step of a process.
    pub(crate) fn step(&mut self, process: usize, terms: &Terms) {
        match self.processes[process].phase.clone() {
            Phase::Waiting => self.take_lease(process),
            Phase::Choosing => self.choose(process, terms),
            Phase::Inspecting { found } => self.inspect(process, found, terms),
            Phase::Noting { to } => {
                if self.put(process, Entry::RolledBack(to), terms) {
                    self.processes[process].phase = Phase::Choosing;
                }
            }
            Phase::Dropping { left } => self.drop_next(process, left, terms),
            Phase::Fencing { listed } => self.fence(process, listed),
            Phase::Running { interval } => self.run(process, interval, terms),
            Phase::Completing { interval, id } => self.complete(process, interval, id, terms),
            Phase::Committing { interval, id, done } => self.commit_next(process, interval, id, done, terms),
            Phase::Resolving { interval, id } => {
                if self.put(process, Entry::Resolved(id), terms) {
                    self.processes[process].pending.clear();
                    self.processes[process].phase = Phase::Running { interval: interval + 1 };
                }
            }
            Phase::Done | Phase::TakenOver | Phase::Refused | Phase::Stopped { .. } => {}
        }
    }

    fn put(&mut self, process: usize, entry: Entry, terms: &Terms) -> bool {
        let process = &mut self.processes[process];
        let is_created = self.store.put(&mut process.known, entry, terms.is_put_conditional);
        if !is_created {
            process.phase = Phase::TakenOver;
        }
        is_created
    }

    fn take_lease(&mut self, process: usize) {
        let attempt = self.store.log.len() as u8 + 1;
        self.store.log.push(Entry::Lease(attempt));
        let process = &mut self.processes[process];
        (process.attempt, process.known, process.phase) = (attempt, attempt.into(), Phase::Choosing);
    }

    fn is_taken_over(&mut self, process: usize) -> bool {
        let is_taken_over = self.store.newest_lease() > Some(self.processes[process].attempt);
        if is_taken_over {
            self.processes[process].phase = Phase::TakenOver;
        }
        is_taken_over
    }

    fn restart(&mut self, process: usize) {
        let process = &mut self.processes[process];
        process.restarts += 1;
        process.pending.clear();
        process.open.clear();
        process.phase = Phase::Choosing;
    }

    fn judging(&self) -> Judging {
        Judging { now: now(self.is_late), margin: Duration::from_secs(10) }
    }

    /// The fate of a transaction, by the code that is checked.
    fn fate(&self, handle: &Handle, terms: &Terms) -> Fate {
        let description = self.broker.describe(handle.id);
        let marker = match terms.has_markers {
            true => self.broker.marker(handle.id.subtask),
            false => Marker::Silent,
        };
        let evidence = Evidence { cluster_id: "cluster".to_owned(), description, marker };
        fate(&handle.real(), &evidence, self.judging())
    }

    fn choose(&mut self, process: usize, terms: &Terms) {
        if self.is_taken_over(process) {
            return;
        }
        let Some(chosen) = self.store.choose() else {
            self.processes[process].phase = Phase::Refused;
            return;
        };
        self.processes[process].chosen = chosen.clone();
        let Some(checkpoint) = chosen.checkpoint.filter(|_| !chosen.is_resolved) else {
            return self.begin_dropping(process, terms);
        };
        if terms.recovery != Recovery::Verified {
            checkpoint.handles.iter().for_each(|handle| _ = self.broker.init(handle.id));
        }
        self.processes[process].phase = match terms.recovery {
            Recovery::InitInstead => Phase::Resolving { interval: checkpoint.interval, id: checkpoint.id },
            _ => Phase::Inspecting { found: Vec::new() },
        };
    }

    fn inspect(&mut self, process: usize, mut found: Vec<Fate>, terms: &Terms) {
        let chosen = self.processes[process].chosen.clone();
        let Some(checkpoint) = chosen.checkpoint else { return };
        if let Some(handle) = checkpoint.handles.get(found.len()) {
            found.push(self.fate(handle, terms));
            self.processes[process].phase = Phase::Inspecting { found };
            return;
        }
        let covered = checkpoint.handles.iter().map(|handle| handle.covered_by);
        let decision = decide(&covered.zip(found).collect::<Vec<_>>(), chosen.previous);
        match decision {
            Decision::CommitAll => self.begin_dropping(process, terms),
            Decision::RollBack { to } => self.processes[process].phase = Phase::Noting { to },
            Decision::Torn { .. } => self.stop(process, Why::Torn, checkpoint.id),
            _ => self.stop(process, Why::Unknown, checkpoint.id),
        }
    }

    /// Whoever was taken over has nothing to tell: what it found may be its successor's doing.
    fn stop(&mut self, process: usize, why: Why, checkpoint: CheckpointId) {
        if self.is_taken_over(process) {
            return;
        }
        self.processes[process].phase = Phase::Stopped { why, checkpoint };
    }

    /// Looks at everything that rolled-back checkpoints hold back, before the first of it is dropped.
    fn begin_dropping(&mut self, process: usize, terms: &Terms) {
        let chosen = self.processes[process].chosen.clone();
        let kept = chosen.checkpoint.map(|checkpoint| checkpoint.id);
        let mut left = Vec::new();
        for checkpoint in chosen.rolled_back {
            let above = checkpoint.handles.iter().filter(|handle| Some(handle.covered_by) > kept);
            for handle in above {
                if self.fate(handle, terms) == Fate::Committed {
                    return self.stop(process, Why::VisibleAfterAll, checkpoint.id);
                }
                left.push(*handle);
            }
        }
        self.processes[process].phase = Phase::Dropping { left };
    }

    fn drop_next(&mut self, process: usize, mut left: Vec<Handle>, terms: &Terms) {
        let Some(handle) = left.pop() else {
            self.processes[process].phase = Phase::Fencing { listed: None };
            return;
        };
        match self.end(&handle, false, terms) {
            End::Done => self.processes[process].phase = Phase::Dropping { left },
            End::Visible => self.stop(process, Why::VisibleAfterAll, handle.covered_by),
            End::Failed => self.restart(process),
        }
    }

    fn end(&mut self, handle: &Handle, is_commit: bool, terms: &Terms) -> End {
        match answer(self.broker.end(handle.id, handle.epoch, is_commit)) {
            Answer::Done => End::Done,
            Answer::Ask if is_commit => match settled_commit(self.fate(handle, terms)) {
                CommitSettled::Done => End::Done,
                _ => End::Failed,
            },
            Answer::Ask => match settled_abort(self.fate(handle, terms)) {
                AbortSettled::Done => End::Done,
                AbortSettled::Visible => End::Visible,
                _ => End::Failed,
            },
            other => panic!("the model's coordinator does not answer {other:?}"),
        }
    }

    /// Lists first, and initialises in another step.
    fn fence(&mut self, process: usize, listed: Option<Vec<Id>>) {
        let Some(listed) = listed else {
            if !self.is_taken_over(process) {
                let listed = self.left_overs(process);
                self.processes[process].phase = Phase::Fencing { listed: Some(listed) };
            }
            return;
        };
        for id in listed {
            self.look_for_offences(process, id);
            self.broker.init(id);
        }
        self.open(process);
    }

    fn left_overs(&self, process: usize) -> Vec<Id> {
        let process = &self.processes[process];
        let first = CheckpointId::new(process.attempt.into(), process.sequence);
        let kept: Vec<_> = process.chosen.kept().iter().map(Handle::real).collect();
        let ids: BTreeMap<String, Id> = self.broker.ongoing().map(|id| (id_of(id), id)).collect();
        let chosen = to_fence(naming(), ids.keys().map(String::as_str), first, &kept, &BTreeMap::new());
        chosen.into_iter().map(|name| ids[name]).collect()
    }

    fn look_for_offences(&mut self, process: usize, id: Id) {
        if id.attempt > self.processes[process].attempt {
            self.offences.push(Offence::FencedLater(id));
        }
        let is_waiting =
            |handle: &&Handle| handle.id == id && self.broker.is_committed(id, handle.epoch).is_none();
        // What the log says now, not when this process looked.
        let now = self.store.choose().unwrap_or_default();
        if now.kept().iter().any(|handle| is_waiting(&handle)) {
            self.offences.push(Offence::FencedUnresolved(id));
        }
    }

    /// Subtasks open: they commit what waits for them.
    fn open(&mut self, process: usize) {
        let chosen = self.processes[process].chosen.clone();
        let phase = match &chosen.checkpoint {
            None => Phase::Running { interval: 1 },
            Some(checkpoint) if chosen.is_resolved => Phase::Running { interval: checkpoint.interval + 1 },
            Some(Checkpoint { id, interval, .. }) => {
                Phase::Committing { interval: *interval, id: *id, done: 0 }
            }
        };
        self.processes[process].pending = chosen.kept().to_vec();
        self.processes[process].phase = phase;
    }

    /// Writes an interval, or pre-commits what was written.
    fn run(&mut self, process: usize, interval: u8, terms: &Terms) {
        if interval > terms.intervals {
            self.processes[process].phase = Phase::Done;
        } else if self.processes[process].open.is_empty() {
            self.begin(process, interval, terms);
        } else {
            self.pre_commit(process, interval);
        }
    }

    fn begin(&mut self, process: usize, interval: u8, terms: &Terms) {
        for subtask in 0..WRITERS {
            let owner = &self.processes[process];
            let named = CheckpointId::new(owner.attempt.into(), owner.sequence);
            let id = self.free_slot(process, subtask, terms);
            let epoch = match self.broker.ids.get(&id) {
                Some(held) if !terms.has_fresh_epochs => held.epoch,
                _ => self.broker.init(id),
            };
            self.broker.begin(id, interval, named, self.is_late);
            let handle = Handle { id, epoch, is_late: self.is_late, named, covered_by: named };
            self.processes[process].open.push(handle);
        }
    }

    /// The lowest slot whose transaction is resolved, or that has had none.
    fn free_slot(&self, process: usize, subtask: u8, terms: &Terms) -> Id {
        let process = &self.processes[process];
        let committed = match process.phase {
            Phase::Committing { done, .. } if terms.is_slot_freed_early => done,
            Phase::Resolving { .. } if terms.is_slot_freed_early => process.pending.len(),
            _ => 0,
        };
        let used = &process.pending[committed..];
        let slots = (0..).map(|slot| Id { attempt: process.attempt, subtask, slot });
        let mut free = slots.filter(|id| used.iter().chain(&process.open).all(|handle| handle.id != *id));
        free.next().expect("numbers do not end")
    }

    fn pre_commit(&mut self, process: usize, interval: u8) {
        let judging = self.judging();
        let open = mem::take(&mut self.processes[process].open);
        let is_prepared = |handle: &Handle| {
            check_prepared(&handle.real(), &self.broker.describe(handle.id), judging).is_ok()
        };
        if !open.iter().all(is_prepared) {
            return self.restart(process);
        }
        let process = &mut self.processes[process];
        let id = CheckpointId::new(process.attempt.into(), process.sequence);
        process.sequence += 1;
        process.pending.extend(open.into_iter().map(|handle| Handle { covered_by: id, ..handle }));
        process.phase = Phase::Completing { interval, id };
    }

    pub(crate) fn begin_ahead(&mut self, process: usize, terms: &Terms) {
        let (Phase::Completing { interval, .. }
        | Phase::Committing { interval, .. }
        | Phase::Resolving { interval, .. }) = self.processes[process].phase
        else {
            return;
        };
        self.begin(process, interval + 1, terms);
    }

    pub(crate) fn decline(&mut self, process: usize) {
        let Phase::Completing { interval, .. } = self.processes[process].phase else { return };
        self.declines -= 1;
        // What was pre-committed rides along.
        self.processes[process].phase = Phase::Running { interval: interval + 1 };
    }

    fn complete(&mut self, process: usize, interval: u8, id: CheckpointId, terms: &Terms) {
        let handles = self.processes[process].pending.clone();
        if self.put(process, Entry::Checkpoint(Checkpoint { id, interval, handles }), terms) {
            self.processes[process].phase = Phase::Committing { interval, id, done: 0 };
        }
    }

    fn commit_next(&mut self, process: usize, interval: u8, id: CheckpointId, done: usize, terms: &Terms) {
        let Some(handle) = self.processes[process].pending.get(done).copied() else {
            self.processes[process].phase = Phase::Resolving { interval, id };
            return;
        };
        match self.end(&handle, true, terms) {
            End::Done => self.processes[process].phase = Phase::Committing { interval, id, done: done + 1 },
            _ => self.restart(process),
        }
    }
}

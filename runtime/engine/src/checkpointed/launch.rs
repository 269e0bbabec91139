//! One attempt: its tasks, and what each of them starts with.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_core::async_io::Order;
use levada_core::{Budget, CheckpointId, Clock, SinkContext, SourceContext, State};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::backlog::Backlogs;
use super::control::{Command, Commands, Events, Participant};
use super::restoring::Restoring;
use super::tasks::Tasks;
use crate::async_io::CallStatus;
use crate::driver::{DriverContext, Restored};
use crate::plan::Orders;
use crate::time::{DriftGroups, TimeContext, TimeStatus};

/// What a checkpoint holds for the job, dealt out for today's parallelism.
#[derive(Debug, Default)]
pub(crate) struct RestoredJob {
    /// The checkpoint; `None` at a start from nothing.
    pub(crate) checkpoint: Option<CheckpointId>,
    /// By operator and subtask.
    pub(crate) states: BTreeMap<Participant, State>,
    /// Async steps with inputs that another subtask held before, from the source on.
    pub(crate) moved: Vec<String>,
    /// The savepoint that it is.
    pub(crate) savepoint: Option<String>,
    /// How many records each sink has taken before.
    pub(crate) records: BTreeMap<String, u64>,
    /// Whether everything it covers is visible once all tasks have opened, and nobody has noted that yet.
    pub(crate) is_resolved_by_opening: bool,
}

/// What a task does that takes part in checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Reads.
    Source,
    /// Calls a function.
    Calls,
    /// Writes.
    Sink,
}

/// A task that takes part in checkpoints, as the coordinator sees it.
#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) participant: Participant,
    pub(crate) role: Role,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
}

/// Collects the tasks of an attempt.
pub(crate) struct Launch<'a> {
    pub(crate) job: &'a str,
    pub(crate) parallelism: u32,
    pub(crate) budget: &'a Budget,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) groups: &'a DriftGroups,
    pub(crate) time: &'a TimeStatus,
    pub(crate) calls: &'a CallStatus,
    /// In which order async steps let results leave.
    pub(crate) orders: &'a Orders,
    pub(crate) restored: &'a RestoredJob,
    pub(crate) restoring: Restoring,
    pub(crate) backlogs: Backlogs,
    /// Whether there is an exchange on the line so far: what stands behind it gets records of every subtask.
    pub(crate) has_exchange: bool,
    /// The first checkpoint that may follow.
    pub(crate) first: CheckpointId,
    pub(crate) events: &'a Events,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) tasks: Tasks,
    pub(crate) contacts: Vec<Contact>,
}

impl Launch<'_> {
    /// Names a task, and opens the channel by which it is told.
    pub(crate) fn enlist(&mut self, uid: &str, subtask: u32, role: Role) -> (Participant, Commands) {
        let participant = Participant { uid: uid.to_owned(), subtask };
        let (commands, receiver) = mpsc::unbounded_channel();
        self.contacts.push(Contact { participant: participant.clone(), role, commands });
        (participant, receiver)
    }

    /// Returns the order in which an async step lets results leave.
    pub(crate) fn order_of(&self, uid: &str) -> Order {
        self.orders.get(uid).copied().unwrap_or(Order::Ordered)
    }

    pub(crate) fn state_of(&self, participant: &Participant) -> State {
        self.restored.states.get(participant).cloned().unwrap_or_default()
    }

    pub(crate) fn source_context(&self, subtask: u32) -> SourceContext {
        SourceContext { subtask, parallelism: self.parallelism, budget: self.budget.clone() }
    }

    pub(crate) fn time_context(&self, participant: &Participant) -> TimeContext {
        TimeContext {
            uid: participant.uid.clone(),
            subtask: participant.subtask,
            clock: Arc::clone(self.clock),
            groups: self.groups.clone(),
            status: self.time.clone(),
        }
    }

    pub(crate) fn driver_context(&self, participant: &Participant) -> DriverContext {
        let sink = SinkContext {
            job: self.job.to_owned(),
            subtask: participant.subtask,
            parallelism: self.parallelism,
        };
        DriverContext { sink, uid: participant.uid.clone(), first: self.first, clock: Arc::clone(self.clock) }
    }

    pub(crate) fn restored_of(&self, participant: &Participant) -> Option<Restored> {
        let checkpoint = self.restored.checkpoint?;
        Some(Restored { checkpoint, state: self.state_of(participant) })
    }
}

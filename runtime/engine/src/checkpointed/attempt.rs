//! The tasks that run between two failures.

use std::collections::BTreeMap;

use levada_core::{CheckpointId, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backlog::Backlogs;
use super::control::{Command, Event, Participant};
use super::launch::{Contact, Launch, RestoredJob, Role};
use super::restoring::Restoring;
use super::run::CheckpointedJob;
use super::tasks::Tasks;
use crate::async_io::CallStatus;
use crate::checkpoint::{CheckpointKind, SubtaskId};
use crate::driver::DriverTally;
use crate::error::JobError;
use crate::time::TimeStatus;

/// A checkpoint whose barrier was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Triggered {
    pub(super) at: Timestamp,
    pub(super) since: Instant,
    pub(super) kind: CheckpointKind,
}

/// What an attempt hears of its tasks.
pub(super) enum Happened {
    Told(Event),
    /// One died without a word.
    Panicked(JobError),
}

/// The tasks, and what is known of them.
pub(super) struct Attempt {
    cancel: CancellationToken,
    tasks: Tasks,
    pub(super) contacts: Vec<Contact>,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    /// How many records each sink had taken before.
    pub(super) records: BTreeMap<String, u64>,
    pub(super) triggered: BTreeMap<CheckpointId, Triggered>,
    pub(super) last_of_input: Option<CheckpointId>,
    pub(super) tick_at: Option<Instant>,
    pub(super) failure: Option<JobError>,
    pub(super) is_settled: bool,
    pub(super) done: Option<Option<CheckpointId>>,
    /// What became of the records of each sink.
    pub(super) tallies: BTreeMap<String, DriverTally>,
}

impl Attempt {
    /// Spawns the tasks; they open, and wait for [`Command::Start`].
    pub(super) fn launch(
        job: &CheckpointedJob,
        restored: &RestoredJob,
        first: CheckpointId,
        cancel: CancellationToken,
        (time, calls): (&TimeStatus, &CallStatus),
    ) -> Self {
        let (events, receiver) = mpsc::unbounded_channel();
        let mut launch = Launch {
            job: &job.job.name,
            parallelism: job.job.parallelism,
            budget: &job.job.budget,
            clock: &job.clock,
            groups: &job.job.drift_groups,
            time,
            calls,
            orders: &job.orders,
            restored,
            restoring: Restoring::new(restored.moved.clone(), job.job.parallelism),
            backlogs: Backlogs::new(job.job.parallelism),
            has_exchange: false,
            first,
            events: &events,
            cancel: &cancel,
            tasks: Tasks::default(),
            contacts: Vec::new(),
        };
        (job.spawn)(&mut launch);
        let (tasks, contacts) = (launch.tasks, launch.contacts);
        Self {
            cancel,
            tasks,
            contacts,
            events: receiver,
            records: restored.records.clone(),
            triggered: BTreeMap::new(),
            last_of_input: None,
            tick_at: None,
            failure: None,
            is_settled: false,
            done: None,
            tallies: BTreeMap::new(),
        }
    }

    pub(super) fn subtask(&self, participant: &Participant) -> Option<SubtaskId> {
        let place = self.contacts.iter().position(|contact| contact.participant == *participant)?;
        // A job has few tasks.
        Some(SubtaskId(place as u32))
    }

    pub(super) fn subtasks(&self) -> Vec<SubtaskId> {
        (0..self.contacts.len() as u32).map(SubtaskId).collect()
    }

    pub(super) fn tell_all(&self, command: &Command) {
        for contact in &self.contacts {
            // One that has ended is told of by its event.
            contact.commands.send(command.clone()).ok();
        }
    }

    pub(super) fn tell(&self, role: Role, command: &Command) {
        for contact in self.contacts.iter().filter(|contact| contact.role == role) {
            contact.commands.send(command.clone()).ok();
        }
    }

    /// Notes why the attempt is over, unless that is known, and ends its tasks.
    pub(super) fn fail(&mut self, error: JobError) {
        self.failure.get_or_insert(error);
        self.cancel.cancel();
    }

    /// Waits until every task has taken over what was restored: none reads before.
    pub(super) async fn wait_until_open(&mut self) {
        let mut open = 0;
        while open < self.contacts.len() {
            match self.next().await {
                Happened::Told(Event::Opened) => open += 1,
                Happened::Told(Event::Failed(error)) | Happened::Panicked(error) => return self.fail(error),
                Happened::Told(_) => {}
            }
        }
    }

    /// Waits until a task says something, or dies without a word. Cancel safe.
    pub(super) async fn next(&mut self) -> Happened {
        tokio::select! {
            // What a task has said counts first: a panic may be but the consequence.
            biased;
            Some(event) = self.events.recv() => Happened::Told(event),
            panicked = self.tasks.panicked() => Happened::Panicked(panicked),
        }
    }

    /// Ends all tasks and waits for them.
    pub(super) async fn end(&mut self) {
        self.cancel.cancel();
        self.join().await;
    }

    /// Lets all tasks close, and waits for them.
    pub(super) async fn close(&mut self) {
        self.tell_all(&Command::Close);
        self.join().await;
    }

    async fn join(&mut self) {
        self.tasks.ended().await;
        while let Ok(event) = self.events.try_recv() {
            if let Event::Closed(participant, tally) = event {
                self.tallied(participant, tally);
            }
        }
    }

    pub(super) fn tallied(&mut self, participant: Participant, tally: DriverTally) {
        self.tallies.entry(participant.uid).or_default().add(tally);
    }
}

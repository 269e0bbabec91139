//! The shell around the coordinator: starts attempts, carries words to and fro, and keeps the store.

use std::collections::{BTreeMap, HashMap};

use levada_core::{CheckpointId, State, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::control::{Command, Event, Participant};
use super::launch::{Contact, Launch, RestoredJob};
use super::restore::{deal_out, deal_out_nothing};
use super::run::{CheckpointedJob, CheckpointedReport};
use crate::checkpoint::{
    AbortReason, Action, CheckpointKind, Command as Asked, Coordinator, DeclineReason, FailReason, Input,
    RequestId, Restart, Restarts, SubtaskId,
};
use crate::error::JobError;
use crate::store::{
    Decision, Lease, Manifest, OperatorState, PartHome, RestoreFrom, Store, StoreError, Stored, SubtaskState,
    choose,
};

/// How many complete checkpoints are kept.
const KEPT: usize = 2;

/// Somebody asks for a checkpoint.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Asked,
    pub(crate) answer: oneshot::Sender<Result<CheckpointId, AbortReason>>,
}

/// What a task has stored, or why it could not.
struct Kept {
    subtask: SubtaskId,
    checkpoint: CheckpointId,
    outcome: Result<Stored, StoreError>,
}

pub(crate) struct Shell {
    job: CheckpointedJob,
    store: Store,
    requests: mpsc::UnboundedReceiver<Request>,
    cancel: CancellationToken,
    begun: Instant,
    answers: HashMap<RequestId, oneshot::Sender<Result<CheckpointId, AbortReason>>>,
    asked: u64,
    restarts: Restarts,
    /// What tasks have stored. Outlives an attempt: what comes late is deleted.
    kept: mpsc::UnboundedReceiver<Kept>,
    keep: mpsc::UnboundedSender<Kept>,
}

/// The tasks that run.
struct Attempt {
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    contacts: Vec<Contact>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Attempt {
    fn subtask(&self, participant: &Participant) -> Option<SubtaskId> {
        let place = self.contacts.iter().position(|contact| contact.participant == *participant)?;
        // A job has few tasks.
        Some(SubtaskId(place as u32))
    }

    fn subtasks(&self) -> Vec<SubtaskId> {
        (0..self.contacts.len() as u32).map(SubtaskId).collect()
    }

    fn tell_all(&self, command: &Command) {
        for contact in &self.contacts {
            // One that has ended is told of by its event.
            contact.commands.send(command.clone()).ok();
        }
    }

    fn tell_sources(&self, command: &Command) {
        for contact in self.contacts.iter().filter(|contact| contact.is_source) {
            contact.commands.send(command.clone()).ok();
        }
    }

    /// Ends all tasks and waits for them.
    async fn end(&mut self) {
        self.cancel.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// How a stretch of running came to its end.
enum Ended {
    Done(Option<CheckpointId>),
    Failed(JobError),
}

/// What an attempt knows while it runs.
struct Run {
    attempt: Attempt,
    triggered: BTreeMap<CheckpointId, Timestamp>,
    last_of_input: Option<CheckpointId>,
    tick_at: Option<Instant>,
    failure: Option<JobError>,
    is_settled: bool,
    done: Option<Option<CheckpointId>>,
}

impl Shell {
    pub(crate) fn new(
        job: CheckpointedJob,
        store: Store,
        requests: mpsc::UnboundedReceiver<Request>,
        cancel: CancellationToken,
    ) -> Self {
        let restarts = Restarts::new(job.restarts);
        let begun = Instant::now();
        let (keep, kept) = mpsc::unbounded_channel();
        Self { kept, keep, job, store, requests, cancel, begun, answers: HashMap::new(), asked: 0, restarts }
    }

    /// Runs the job to its end.
    pub(crate) async fn run(mut self) -> Result<CheckpointedReport, JobError> {
        let mut lease = self.store.take_lease(&self.job.job.name, self.job.take_over).await?;
        let heartbeat = tokio::spawn(lease.heartbeat().keep_beating());
        let outcome = self.hold(&mut lease).await;
        heartbeat.abort();
        if !matches!(&outcome, Err(JobError::Store(error)) if error.is_taken_over()) {
            lease.release().await;
        }
        outcome
    }

    async fn hold(&mut self, lease: &mut Lease) -> Result<CheckpointedReport, JobError> {
        let attempt = lease.attempt();
        let mut coordinator: Option<Coordinator<Stored>> = None;
        let mut first = CheckpointId::new(attempt, 1);
        loop {
            let restored = self.restore().await?;
            let mut run = self.launch(&restored, first);
            let restored_from = restored.checkpoint;
            // The tasks have their shares; kept here, a large state would stay in memory as long as the attempt.
            drop(restored);
            self.wait_until_open(&mut run).await;
            let now = self.begun.elapsed();
            let subtasks = run.attempt.subtasks();
            let coordinator = match &mut coordinator {
                Some(coordinator) => {
                    let actions = coordinator.handle(now, Input::Restarted { subtasks });
                    self.act(&mut run, coordinator, lease, actions).await?;
                    coordinator
                }
                none => {
                    none.insert(Coordinator::new(self.job.settings, attempt, restored_from, subtasks, now))
                }
            };
            let ended = self.attend(&mut run, coordinator, lease).await;
            run.attempt.end().await;
            // What the tasks began without a checkpoint bears this name.
            coordinator.skip();
            first = coordinator.next();
            match ended? {
                Ended::Done(last) => {
                    return Ok(CheckpointedReport { attempt, last, restarts: self.restarts.count() });
                }
                Ended::Failed(error) => self.wait_for_restart(error).await?,
            }
        }
    }

    /// Finds what to go on from.
    async fn restore(&mut self) -> Result<RestoredJob, JobError> {
        let recovery = self.store.recover(RestoreFrom::Latest).await?;
        let log = &recovery.log;
        match choose(&log.entries, &log.damages, RestoreFrom::Latest, self.job.policy) {
            Decision::Fresh => Ok(deal_out_nothing()),
            Decision::Restore(manifest) => {
                deal_out(&self.store, &manifest, &self.job.stages, self.job.job.parallelism).await
            }
            Decision::Replay { from, passed_over } => {
                tracing::error!(checkpoint = %from.id, ?passed_over, "an older checkpoint is used: sinks may publish again");
                deal_out(&self.store, &from, &self.job.stages, self.job.job.parallelism).await
            }
            Decision::Refuse(refusal) => Err(JobError::Refusal(Box::new(refusal))),
        }
    }

    fn launch(&self, restored: &RestoredJob, first: CheckpointId) -> Run {
        let (events, receiver) = mpsc::unbounded_channel();
        let cancel = self.cancel.child_token();
        let job = &self.job.job;
        let mut launch = Launch {
            job: &job.name,
            parallelism: job.parallelism,
            budget: &job.budget,
            clock: &self.job.clock,
            restored,
            first,
            events: &events,
            cancel: &cancel,
            tasks: JoinSet::new(),
            contacts: Vec::new(),
        };
        (self.job.spawn)(&mut launch);
        let (tasks, contacts) = (launch.tasks, launch.contacts);
        let attempt = Attempt { cancel, tasks, contacts, events: receiver };
        Run {
            attempt,
            triggered: BTreeMap::new(),
            last_of_input: None,
            tick_at: None,
            failure: None,
            is_settled: false,
            done: None,
        }
    }

    /// Waits until every task has taken over what was restored: none reads before.
    async fn wait_until_open(&mut self, run: &mut Run) {
        let mut open = 0;
        while open < run.attempt.contacts.len() {
            let event = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return,
                event = run.attempt.events.recv() => event,
            };
            match event {
                Some(Event::Opened) => open += 1,
                Some(Event::Failed(error)) => {
                    run.failure.get_or_insert(error);
                    return;
                }
                // A task that died without a word.
                None => {
                    run.failure.get_or_insert(JobError::Panicked { subtask: 0 });
                    return;
                }
                Some(_) => {}
            }
        }
        run.attempt.tell_sources(&Command::Start);
    }

    /// Carries words between tasks, coordinator and store, until the attempt is over.
    async fn attend(
        &mut self,
        run: &mut Run,
        coordinator: &mut Coordinator<Stored>,
        lease: &mut Lease,
    ) -> Result<Ended, JobError> {
        let mut inputs = vec![if run.failure.is_some() { Input::TasksFailed } else { Input::Tick }];
        loop {
            for input in inputs.drain(..) {
                let actions = coordinator.handle(self.begun.elapsed(), input);
                self.act(run, coordinator, lease, actions).await?;
            }
            if let Some(last) = run.done {
                run.attempt.tell_all(&Command::Close);
                while run.attempt.tasks.join_next().await.is_some() {}
                return Ok(Ended::Done(last));
            }
            if run.is_settled
                && let Some(error) = run.failure.take()
            {
                return Ok(Ended::Failed(error));
            }
            let tick = async {
                match run.tick_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(JobError::Cancelled),
                Some(kept) = self.kept.recv() => inputs.push(kept_input(kept)),
                event = run.attempt.events.recv() => inputs = self.heard(run, event),
                Some(request) = self.requests.recv() => {
                    self.asked += 1;
                    let id = RequestId(self.asked);
                    self.answers.insert(id, request.answer);
                    inputs.push(Input::Trigger { request: id, command: request.command });
                }
                () = tick => {
                    run.tick_at = None;
                    inputs.push(Input::Tick);
                }
            }
        }
    }

    /// Turns what a task says into what the coordinator understands.
    fn heard(&self, run: &mut Run, event: Option<Event>) -> Vec<Input<Stored>> {
        let of = |run: &Run, participant: &Participant| run.attempt.subtask(participant);
        match event {
            None => {
                run.failure.get_or_insert(JobError::Panicked { subtask: 0 });
                vec![Input::TasksFailed]
            }
            Some(Event::Failed(error)) => {
                run.failure.get_or_insert(error);
                run.attempt.cancel.cancel();
                vec![Input::TasksFailed]
            }
            Some(Event::Opened) => Vec::new(),
            Some(Event::Acked(participant, checkpoint, state)) => {
                if let Some(subtask) = of(run, &participant) {
                    self.keep(subtask, checkpoint, state);
                }
                Vec::new()
            }
            Some(Event::Ended(participant)) => {
                of(run, &participant).map(|subtask| Input::EndReached { subtask }).into_iter().collect()
            }
            Some(Event::Handled(participant, checkpoint)) => {
                let Some(subtask) = of(run, &participant) else { return Vec::new() };
                let mut inputs = vec![Input::Handled { subtask, checkpoint }];
                // It has read, or written, everything, and a complete checkpoint covers it.
                if run.last_of_input.is_some_and(|last| last <= checkpoint) {
                    inputs.push(Input::Finished { subtask });
                }
                inputs
            }
        }
    }

    /// Stores a task's state beside the flow.
    fn keep(&self, subtask: SubtaskId, checkpoint: CheckpointId, state: State) {
        let (store, keep) = (self.store.clone(), self.keep.clone());
        tokio::spawn(async move {
            let outcome = store.put_state(&PartHome::Checkpoint(checkpoint), &state).await;
            // Nobody listens when the attempt is over.
            keep.send(Kept { subtask, checkpoint, outcome }).ok();
        });
    }

    /// Does what the coordinator says, and tells it what came of it.
    async fn act(
        &mut self,
        run: &mut Run,
        coordinator: &mut Coordinator<Stored>,
        lease: &mut Lease,
        actions: Vec<Action<Stored>>,
    ) -> Result<(), JobError> {
        let mut due = std::collections::VecDeque::from(actions);
        while let Some(action) = due.pop_front() {
            let mut told = Vec::new();
            match action {
                Action::Inject { mut barrier, drain: _ } => {
                    barrier.triggered_at = self.job.clock.now();
                    run.triggered.insert(barrier.checkpoint, barrier.triggered_at);
                    run.attempt.tell_sources(&Command::Inject(barrier));
                }
                Action::WriteManifest { checkpoint, kind, parts, finished: _ } => {
                    if kind == CheckpointKind::Final {
                        run.last_of_input = Some(checkpoint);
                    }
                    let manifest = manifest_of(run, checkpoint, parts, self.job.job.parallelism);
                    told.push(match lease.complete(manifest).await {
                        Ok(_) => Input::EntryWritten(checkpoint),
                        Err(error) if error.is_taken_over() => {
                            run.failure = Some(error.into());
                            Input::TakenOver
                        }
                        Err(error) => Input::EntryFailed { checkpoint, error: error.to_string() },
                    });
                }
                Action::NotifyComplete(checkpoint) => run.attempt.tell_all(&Command::Complete(checkpoint)),
                Action::NotifyAborted(checkpoint) => run.attempt.tell_all(&Command::Aborted(checkpoint)),
                Action::DiscardParts { checkpoint, .. } => {
                    if let Err(error) = lease.abandon(checkpoint).await {
                        tracing::warn!(%checkpoint, %error, "parts of a checkpoint that will not be complete are left behind");
                    }
                }
                Action::Resolved(checkpoint) => self.resolved(lease, checkpoint).await?,
                Action::Answer { request, outcome } => {
                    if let Some(answer) = self.answers.remove(&request) {
                        // Whoever asked may have gone.
                        answer.send(outcome).ok();
                    }
                }
                Action::FailJob(reason) => fail(run, reason),
                Action::Settled => run.is_settled = true,
                Action::Done { last } => run.done = Some(last),
                Action::EndSelf => {
                    return Err(run.failure.take().unwrap_or(JobError::Cancelled));
                }
                Action::ScheduleTick(at) => run.tick_at = Some(self.begun + at),
            }
            for input in told {
                due.extend(coordinator.handle(self.begun.elapsed(), input));
            }
        }
        Ok(())
    }

    /// Notes that what follows from a checkpoint is done, and clears older ones away.
    async fn resolved(&mut self, lease: &mut Lease, checkpoint: CheckpointId) -> Result<(), JobError> {
        match lease.resolve(checkpoint).await {
            Ok(_) => {}
            Err(error) if error.is_taken_over() => return Err(error.into()),
            // The next one covers it.
            Err(error) => tracing::warn!(%checkpoint, %error, "a resolved checkpoint is not noted"),
        }
        if let Err(error) = lease.retain(KEPT).await {
            if error.is_taken_over() {
                return Err(error.into());
            }
            tracing::warn!(%error, "older checkpoints are left behind");
        }
        Ok(())
    }

    /// Waits before the next attempt, or gives up.
    async fn wait_for_restart(&mut self, error: JobError) -> Result<(), JobError> {
        let delay = match self.restarts.failed(self.begun.elapsed(), rand::random()) {
            Restart::After(delay) => delay,
            _ => return Err(error),
        };
        let cause = levada_core::ErrorChain(&error).to_string();
        tracing::warn!(%cause, ?delay, restarts = self.restarts.count(), "the job failed, and is restarted");
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(JobError::Cancelled),
            () = tokio::time::sleep_until(Instant::now() + delay) => Ok(()),
        }
    }
}

fn kept_input(kept: Kept) -> Input<Stored> {
    let Kept { subtask, checkpoint, outcome } = kept;
    match outcome {
        Ok(parts) => Input::Acked { subtask, checkpoint, parts },
        Err(error) => {
            Input::Declined { subtask, checkpoint, reason: DeclineReason::Failed(error.to_string()) }
        }
    }
}

fn fail(run: &mut Run, reason: FailReason) {
    run.failure.get_or_insert(JobError::Checkpoints(Box::new(reason)));
    run.attempt.cancel.cancel();
}

fn manifest_of(
    run: &Run,
    checkpoint: CheckpointId,
    parts: BTreeMap<SubtaskId, Stored>,
    parallelism: u32,
) -> Manifest {
    let triggered = run.triggered.get(&checkpoint).copied().unwrap_or_default();
    let mut manifest = Manifest::new(checkpoint, triggered);
    for (subtask, stored) in parts {
        let contact = &run.attempt.contacts[subtask.0 as usize];
        let operator = manifest.operators.entry(contact.participant.uid.clone()).or_insert_with(|| {
            OperatorState { parallelism, subtasks: vec![SubtaskState::default(); parallelism as usize] }
        });
        operator.subtasks[contact.participant.subtask as usize] =
            SubtaskState { stored, ..SubtaskState::default() };
    }
    manifest
}

//! The shell around the coordinator: holds the store, and runs one attempt after the other.

use std::collections::{BTreeMap, HashMap};

use levada_core::{CheckpointId, ErrorChain};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attempt::Attempt;
use super::caught::{caught, caught_in};
use super::control::Command;
use super::entry::savepoint_name;
use super::handle::{CheckpointedReport, TakenSavepoint};
use super::job_state::JobState;
use super::launch::{RestoredJob, Role};
use super::recovery::{Recovery, Terms};
use super::run::{CheckpointedJob, StartFrom};
use crate::async_io::CallStatus;
use crate::checkpoint::{
    AbortReason, CheckpointKind, Command as Asked, Coordinator, Input, RequestId, Restart, Restarts,
    SubtaskId,
};
use crate::driver::DriverTally;
use crate::error::JobError;
use crate::failpoint::fail_point;
use crate::store::{Lease, Store, SubtaskState};
use crate::time::TimeStatus;

/// How many complete checkpoints are kept.
pub(super) const KEPT: usize = 2;

/// Somebody asks for a checkpoint.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command: Asked,
    pub(crate) answer: oneshot::Sender<Result<CheckpointId, AbortReason>>,
}

/// What a task has stored.
#[derive(Debug, Clone)]
pub(super) struct Acked {
    pub(super) state: SubtaskState,
    /// Records that a sink has taken since it was opened.
    pub(super) written: u64,
}

/// What a task has stored, or why it could not.
pub(super) struct Kept {
    pub(super) subtask: SubtaskId,
    pub(super) checkpoint: CheckpointId,
    pub(super) outcome: Result<Acked, String>,
}

pub(crate) struct Shell {
    pub(super) job: CheckpointedJob,
    pub(super) store: Store,
    pub(super) requests: mpsc::UnboundedReceiver<Request>,
    pub(super) cancel: CancellationToken,
    pub(super) begun: Instant,
    pub(super) answers: HashMap<RequestId, oneshot::Sender<Result<CheckpointId, AbortReason>>>,
    pub(super) asked: u64,
    restarts: Restarts,
    /// What tasks have stored. Outlives an attempt: what comes late is deleted.
    pub(super) kept: mpsc::UnboundedReceiver<Kept>,
    pub(super) keep: mpsc::UnboundedSender<Kept>,
    pub(super) state: watch::Sender<JobState>,
    from: StartFrom,
    /// The savepoint that is gone on from, until a checkpoint is complete.
    pub(super) continues: Option<String>,
    /// Somebody wants the job to stop: it is not restarted to read on.
    pub(super) is_to_stop: bool,
    /// The complete checkpoint to end with.
    pub(super) stopped: Option<(CheckpointId, CheckpointKind)>,
    tallies: BTreeMap<String, DriverTally>,
    /// Outlives an attempt: what was counted goes on.
    time: TimeStatus,
    calls: CallStatus,
}

/// Says that the job lives, and stops when it does not, however that comes.
struct Beating {
    enough: CancellationToken,
    task: JoinHandle<()>,
}

impl Beating {
    fn of(lease: &Lease) -> Self {
        let enough = CancellationToken::new();
        let task = tokio::spawn(lease.heartbeat().keep_beating_until(enough.clone()));
        Self { enough, task }
    }

    /// Waits for a beat that is on its way: behind the release, it would say that the job lives.
    async fn stop(mut self) {
        self.enough.cancel();
        // It ends in each case.
        (&mut self.task).await.ok();
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What outlives an attempt, and not the lease.
struct Course {
    coordinator: Option<Coordinator<Acked>>,
    /// The first checkpoint that the tasks of the next attempt may name.
    first: CheckpointId,
}

impl Shell {
    pub(crate) fn new(
        job: CheckpointedJob,
        store: Store,
        requests: mpsc::UnboundedReceiver<Request>,
        cancel: CancellationToken,
        state: watch::Sender<JobState>,
        (time, calls): (TimeStatus, CallStatus),
    ) -> Self {
        let (keep, kept) = mpsc::unbounded_channel();
        Self {
            restarts: Restarts::new(job.restarts),
            from: job.from.clone(),
            kept,
            keep,
            job,
            store,
            requests,
            cancel,
            begun: Instant::now(),
            answers: HashMap::new(),
            asked: 0,
            state,
            continues: None,
            is_to_stop: false,
            stopped: None,
            tallies: BTreeMap::new(),
            time,
            calls,
        }
    }

    /// Runs the job to its end.
    pub(crate) async fn run(mut self) -> Result<CheckpointedReport, JobError> {
        let outcome = Box::pin(self.take_and_hold()).await;
        let cause = outcome.as_ref().err().map(|error| ErrorChain(error).to_string());
        self.tell(JobState::Ended { cause });
        outcome
    }

    pub(super) fn tell(&self, state: JobState) {
        self.state.send_replace(state);
    }

    async fn take_and_hold(&mut self) -> Result<CheckpointedReport, JobError> {
        let mut lease = self.take_lease().await?;
        let heartbeat = Beating::of(&lease);
        let outcome = self.hold(&mut lease).await;
        heartbeat.stop().await;
        if !matches!(&outcome, Err(JobError::Store(error)) if error.is_taken_over()) {
            lease.release().await;
        }
        outcome
    }

    /// A job that was cancelled meanwhile must not take the store from whoever came behind it.
    async fn take_lease(&mut self) -> Result<Lease, JobError> {
        let taking = self.store.take_lease(&self.job.job.name, self.job.take_over);
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(JobError::Cancelled),
            lease = taking => Ok(lease?),
        }
    }

    /// Runs attempts until one comes to the job's end.
    async fn hold(&mut self, lease: &mut Lease) -> Result<CheckpointedReport, JobError> {
        let mut course = Course { coordinator: None, first: CheckpointId::new(lease.attempt(), 1) };
        loop {
            match self.attempt(lease, &mut course).await {
                Ok(last) => return Ok(self.report(lease.attempt(), last)),
                Err(error) => self.wait_for_restart(unless_taken_over(error, lease).await?).await?,
            }
        }
    }

    async fn attempt(
        &mut self,
        lease: &mut Lease,
        course: &mut Course,
    ) -> Result<Option<CheckpointId>, JobError> {
        let mut restored = self.recover(lease, course.first).await?;
        let (cancel, status) = (self.cancel.child_token(), (&self.time, &self.calls));
        let mut run = caught(|| Attempt::launch(&self.job, &restored, course.first, cancel, status))?;
        // The tasks have their shares; kept here, a large state would stay in memory as long as the attempt.
        restored.states.clear();
        let ended = self.drive(&mut run, lease, course, &restored).await;
        run.end().await;
        for (uid, tally) in std::mem::take(&mut run.tallies) {
            self.tallies.entry(uid).or_default().add(tally);
        }
        if let Some(coordinator) = &mut course.coordinator {
            // What the tasks began without a checkpoint bears this name.
            coordinator.skip();
            course.first = coordinator.next();
        }
        ended
    }

    /// Opens the tasks, lets them read, and attends to them until they have ended or failed.
    async fn drive(
        &mut self,
        run: &mut Attempt,
        lease: &mut Lease,
        course: &mut Course,
        restored: &RestoredJob,
    ) -> Result<Option<CheckpointId>, JobError> {
        self.open(run, lease, restored).await?;
        let stopped = self.stopped.map(|(checkpoint, _)| checkpoint);
        if run.failure.is_none()
            && let Some(checkpoint) = stopped
        {
            run.close().await;
            return match stopped == restored.checkpoint {
                // The job had stopped reading, and what was left to do is done.
                true => Ok(stopped),
                false => Err(JobError::StopRolledBack { checkpoint, to: restored.checkpoint }),
            };
        }
        let (now, subtasks) = (self.begun.elapsed(), run.subtasks());
        let coordinator = match &mut course.coordinator {
            Some(coordinator) => {
                let actions = coordinator.handle(now, Input::Restarted { subtasks });
                self.act(run, coordinator, lease, actions).await?;
                coordinator
            }
            none => {
                let (settings, restored) = (self.job.settings, restored.checkpoint);
                none.insert(Coordinator::new(settings, lease.attempt(), restored, subtasks, now))
            }
        };
        if run.failure.is_none() {
            self.tell(JobState::Running { last: None, restarts: self.restarts.count() });
            run.tell(Role::Calls, &Command::Start);
            run.tell(Role::Source, &Command::Start);
        }
        self.attend(run, coordinator, lease).await
    }

    /// Finds what to go on from, and brings the sinks' targets there.
    async fn recover(&mut self, lease: &mut Lease, first: CheckpointId) -> Result<RestoredJob, JobError> {
        self.tell(JobState::Recovering);
        let resolvers = caught(|| self.job.sinks.iter().map(|sink| sink.resolver()).collect())?;
        let terms = Terms::of(&self.job);
        let mut recovery = Recovery { terms: &terms, store: &self.store, lease, from: &mut self.from, first };
        let restored = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(JobError::Cancelled),
            restored = Box::pin(caught_in(recovery.run(resolvers))) => restored?,
        };
        self.continues = restored.savepoint.clone();
        Ok(restored)
    }

    /// Waits until every task has taken over what was restored, and notes that it is visible.
    async fn open(
        &mut self,
        run: &mut Attempt,
        lease: &mut Lease,
        restored: &RestoredJob,
    ) -> Result<(), JobError> {
        let cancel = self.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(JobError::Cancelled),
            () = run.wait_until_open() => {}
        }
        match restored.checkpoint {
            Some(checkpoint) if restored.is_resolved_by_opening && run.failure.is_none() => {
                fail_point!("recovery::before_resolved");
                self.resolved(lease, checkpoint).await
            }
            _ => Ok(()),
        }
    }

    fn report(&self, attempt: u64, last: Option<CheckpointId>) -> CheckpointedReport {
        let savepoint = self.stopped.filter(|(_, kind)| kind.is_savepoint());
        CheckpointedReport {
            attempt,
            last,
            restarts: self.restarts.count(),
            savepoint: savepoint.map(|(id, _)| TakenSavepoint::new(&self.store, id, savepoint_name(id))),
            sinks: self.tallies.clone(),
        }
    }

    /// Waits before the next attempt, or gives up.
    async fn wait_for_restart(&mut self, error: JobError) -> Result<(), JobError> {
        let is_to_end = self.is_to_stop && self.stopped.is_none();
        if error.is_final() || is_to_end {
            return Err(error);
        }
        let delay = match self.restarts.failed(self.begun.elapsed(), rand::random()) {
            Restart::After(delay) => delay,
            _ => return Err(error),
        };
        let (cause, restarts) = (ErrorChain(&error).to_string(), self.restarts.count());
        tracing::warn!(%cause, ?delay, restarts, "the job failed, and is restarted");
        self.tell(JobState::Restarting { cause, after: delay, restarts });
        let again = Instant::now() + delay;
        loop {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(JobError::Cancelled),
                () = tokio::time::sleep_until(again) => return Ok(()),
                Some(request) = self.requests.recv() => {
                    let is_stop = request.command == Asked::Stop;
                    // Whoever asked may have gone.
                    request.answer.send(Err(AbortReason::NotRunning)).ok();
                    if is_stop {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Returns a failure, unless the store was taken over: then whatever failed may be the successor's doing, who fences what is
/// not its own.
async fn unless_taken_over(error: JobError, lease: &Lease) -> Result<JobError, JobError> {
    if matches!(error, JobError::Cancelled | JobError::Store(_)) {
        return Ok(error);
    }
    match lease.confirm().await {
        Err(taken) if taken.is_taken_over() => {
            tracing::warn!(cause = %ErrorChain(&error), "the job failed, and was taken over before");
            Err(taken.into())
        }
        // A store that cannot be read is noticed when something is to be written.
        _ => Ok(error),
    }
}

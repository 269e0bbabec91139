//! Carrying words between tasks, coordinator and store while an attempt runs.

use std::collections::VecDeque;

use levada_core::CheckpointId;
use tokio::time::{Instant, sleep_until};

use super::attempt::{Attempt, Happened, Triggered};
use super::control::{Command, Event};
use super::entry::kept_input;
use super::job_state::{CompleteCheckpoint, JobState};
use super::launch::Role;
use super::shell::{Acked, KEPT, Request, Shell};
use crate::checkpoint::{
    Action, CheckpointKind, Command as Asked, Coordinator, FailReason, Input, RequestId,
};
use crate::error::JobError;
use crate::store::Lease;

impl Shell {
    /// Carries words to and fro until the attempt is over; returns the last checkpoint of a job that has come to its end.
    pub(super) async fn attend(
        &mut self,
        run: &mut Attempt,
        coordinator: &mut Coordinator<Acked>,
        lease: &mut Lease,
    ) -> Result<Option<CheckpointId>, JobError> {
        let mut inputs = vec![if run.failure.is_some() { Input::TasksFailed } else { Input::Tick }];
        loop {
            for input in inputs.drain(..) {
                let actions = coordinator.handle(self.begun.elapsed(), input);
                self.act(run, coordinator, lease, actions).await?;
            }
            if let Some(last) = run.done {
                run.close().await;
                return Ok(last);
            }
            if run.is_settled
                && let Some(error) = run.failure.take()
            {
                return Err(error);
            }
            let tick_at = run.tick_at;
            let tick = async {
                match tick_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(JobError::Cancelled),
                Some(kept) = self.kept.recv() => inputs.push(kept_input(kept)),
                happened = run.next() => inputs = self.heard(run, happened),
                Some(request) = self.requests.recv() => inputs.push(self.asked(request)),
                () = tick => {
                    run.tick_at = None;
                    inputs.push(Input::Tick);
                }
            }
        }
    }

    fn asked(&mut self, request: Request) -> Input<Acked> {
        self.asked += 1;
        let id = RequestId(self.asked);
        self.answers.insert(id, request.answer);
        self.is_to_stop |= request.command == Asked::Stop;
        Input::Trigger { request: id, command: request.command }
    }

    /// Turns what a task says into what the coordinator understands.
    fn heard(&self, run: &mut Attempt, happened: Happened) -> Vec<Input<Acked>> {
        let event = match happened {
            Happened::Told(Event::Failed(error)) | Happened::Panicked(error) => {
                run.fail(error);
                return vec![Input::TasksFailed];
            }
            Happened::Told(event) => event,
        };
        match event {
            // Failures are dealt with above.
            Event::Opened | Event::Failed(_) => Vec::new(),
            Event::Acked(participant, checkpoint, snapshot) => {
                self.keep(run, &participant, checkpoint, *snapshot);
                Vec::new()
            }
            Event::StartsFound(participant, after) => {
                let found = |subtask| Input::StartsFound { subtask, after };
                run.subtask(&participant).map(found).into_iter().collect()
            }
            Event::Ended(participant) => {
                run.subtask(&participant).map(|subtask| Input::EndReached { subtask }).into_iter().collect()
            }
            Event::Closed(participant, tally) => {
                run.tallied(participant, tally);
                Vec::new()
            }
            Event::Handled(participant, checkpoint) => {
                let Some(subtask) = run.subtask(&participant) else { return Vec::new() };
                let mut inputs = vec![Input::Handled { subtask, checkpoint }];
                // It has read, or written, everything, and a complete checkpoint covers it.
                if run.last_of_input.is_some_and(|last| last <= checkpoint) {
                    inputs.push(Input::Finished { subtask });
                }
                inputs
            }
        }
    }

    /// Does what the coordinator says, and tells it what came of it.
    pub(super) async fn act(
        &mut self,
        run: &mut Attempt,
        coordinator: &mut Coordinator<Acked>,
        lease: &mut Lease,
        actions: Vec<Action<Acked>>,
    ) -> Result<(), JobError> {
        let mut due = VecDeque::from(actions);
        while let Some(action) = due.pop_front() {
            match action {
                Action::Inject { mut barrier, drain } => {
                    barrier.triggered_at = self.job.clock.now();
                    let kind = coordinator.kind(barrier.checkpoint).unwrap_or(CheckpointKind::Requested);
                    let triggered = Triggered { at: barrier.triggered_at, since: Instant::now(), kind };
                    run.triggered.insert(barrier.checkpoint, triggered);
                    if kind.is_stop() {
                        self.tell(JobState::Stopping { checkpoint: barrier.checkpoint });
                    }
                    run.tell(Role::Calls, &Command::Expect(barrier.checkpoint));
                    run.tell(Role::Source, &Command::Inject { barrier, drain });
                }
                Action::WriteManifest { checkpoint, kind, parts, finished: _ } => {
                    let told = self.complete(lease, run, checkpoint, kind, parts).await;
                    due.extend(coordinator.handle(self.begun.elapsed(), told));
                }
                Action::NotifyComplete(checkpoint) => run.tell_all(&Command::Complete(checkpoint)),
                Action::NotifyAborted(checkpoint) => run.tell_all(&Command::Aborted(checkpoint)),
                Action::DiscardParts { checkpoint, .. } => self.abandon(lease, run, checkpoint).await,
                Action::Resolved(checkpoint) => self.resolved(lease, checkpoint).await?,
                Action::Answer { request, outcome } => {
                    if let Some(answer) = self.answers.remove(&request) {
                        // Whoever asked may have gone.
                        answer.send(outcome).ok();
                    }
                }
                Action::FailJob(reason) => run.fail(failed(reason)),
                Action::Settled => run.is_settled = true,
                Action::Done { last } => run.done = Some(last),
                Action::EndSelf => return Err(run.failure.take().unwrap_or(JobError::Cancelled)),
                Action::ScheduleTick(at) => run.tick_at = Some(self.begun + at),
            }
        }
        Ok(())
    }

    /// A checkpoint's entry was created.
    pub(super) fn completed(&mut self, run: &Attempt, checkpoint: CheckpointId, kind: CheckpointKind) {
        if kind.is_stop() {
            self.stopped = Some((checkpoint, kind));
            return;
        }
        let since = run.triggered.get(&checkpoint).map(|triggered| triggered.since);
        let duration = since.map_or_else(Default::default, |since| since.elapsed());
        let last = CompleteCheckpoint { id: checkpoint, duration };
        self.state.send_if_modified(|state| match state {
            JobState::Running { last: known, .. } => {
                *known = Some(last);
                true
            }
            // A job that stops says so until it has.
            _ => false,
        });
    }

    /// Notes that what follows from a checkpoint is done, and clears older ones away.
    pub(super) async fn resolved(
        &mut self,
        lease: &mut Lease,
        checkpoint: CheckpointId,
    ) -> Result<(), JobError> {
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
}

fn failed(reason: FailReason) -> JobError {
    JobError::Checkpoints(Box::new(reason))
}

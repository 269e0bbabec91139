//! Completing a checkpoint: its manifest, and its entry in the log.

use std::collections::BTreeMap;

use levada_core::{CheckpointId, Timestamp};

use super::attempt::Attempt;
use super::control::{Participant, Snapshot};
use super::launch::Role;
use super::pieces::part_of;
use super::shell::{Acked, Kept, Shell};
use crate::checkpoint::{CheckpointKind, DeclineReason, Input, SubtaskId};
use crate::store::{
    Continued, Lease, Manifest, OperatorState, PartHome, Store, StoreError, Stored, SubtaskState,
};

/// A savepoint's folder is named after its checkpoint: no other ever has the name.
pub(super) fn savepoint_name(checkpoint: CheckpointId) -> String {
    checkpoint.to_string()
}

fn home(checkpoint: CheckpointId, kind: Option<CheckpointKind>) -> PartHome {
    match kind {
        Some(kind) if kind.is_savepoint() => PartHome::Savepoint(savepoint_name(checkpoint)),
        _ => PartHome::Checkpoint(checkpoint),
    }
}

pub(super) fn kept_input(kept: Kept) -> Input<Acked> {
    let Kept { subtask, checkpoint, outcome } = kept;
    match outcome {
        Ok(parts) => Input::Acked { subtask, checkpoint, parts },
        Err(error) => Input::Declined { subtask, checkpoint, reason: DeclineReason::Failed(error) },
    }
}

/// Stores what a task has snapshotted.
async fn stored(store: &Store, home: &PartHome, snapshot: &Snapshot) -> Result<Acked, String> {
    let pieces = snapshot.pending.pieces.iter().map(|reference| part_of(reference)).collect::<Result<_, _>>();
    let state = SubtaskState {
        stored: Stored::Nothing,
        positions: snapshot.positions.clone(),
        pending_transactions: snapshot.pending.transactions,
        pending_records: snapshot.pending.records,
        pieces: pieces.map_err(|error| format!("a reference to a piece cannot be read: {error}"))?,
    };
    let stored = store.put_state(home, &snapshot.state).await.map_err(|error| error.to_string())?;
    Ok(Acked { state: SubtaskState { stored, ..state }, written: snapshot.written })
}

impl Shell {
    /// Stores a task's state beside the flow.
    pub(super) fn keep(
        &self,
        run: &Attempt,
        participant: &Participant,
        checkpoint: CheckpointId,
        snapshot: Snapshot,
    ) {
        let Some(subtask) = run.subtask(participant) else { return };
        let home = home(checkpoint, run.triggered.get(&checkpoint).map(|triggered| triggered.kind));
        let (store, keep) = (self.store.clone(), self.keep.clone());
        tokio::spawn(async move {
            let outcome = stored(&store, &home, &snapshot).await;
            // Nobody listens when the job is over.
            keep.send(Kept { subtask, checkpoint, outcome }).ok();
        });
    }

    /// Creates the entry of a checkpoint.
    pub(super) async fn complete(
        &mut self,
        lease: &mut Lease,
        run: &mut Attempt,
        checkpoint: CheckpointId,
        kind: CheckpointKind,
        parts: BTreeMap<SubtaskId, Acked>,
    ) -> Input<Acked> {
        if kind == CheckpointKind::Final {
            run.last_of_input = Some(checkpoint);
        }
        let manifest = manifest_of(run, checkpoint, kind, parts, self.job.job.parallelism);
        match self.write(lease, manifest, kind).await {
            Ok(()) => {
                self.completed(run, checkpoint, kind);
                Input::EntryWritten(checkpoint)
            }
            Err(error) if error.is_taken_over() => {
                run.failure = Some(error.into());
                Input::TakenOver
            }
            Err(error) => Input::EntryFailed { checkpoint, error: error.to_string() },
        }
    }

    async fn write(
        &mut self,
        lease: &mut Lease,
        manifest: Manifest,
        kind: CheckpointKind,
    ) -> Result<(), StoreError> {
        if let Some(name) = &self.continues {
            let (owner, attempt) = (self.job.job.name.clone(), lease.attempt());
            let by = Continued { owner, attempt, at: self.job.clock.now() };
            self.store.mark_continued(name, &by).await?;
            self.continues = None;
        }
        match kind.is_savepoint() {
            true => lease.complete_savepoint(&savepoint_name(manifest.id), manifest).await?,
            false => lease.complete(manifest).await?,
        };
        Ok(())
    }

    /// Deletes what was stored for a checkpoint that will not be complete.
    pub(super) async fn abandon(&mut self, lease: &Lease, run: &Attempt, checkpoint: CheckpointId) {
        // What comes late, after a restart, is not known to be a savepoint's any more; both places are looked at.
        let kind = run.triggered.get(&checkpoint).map(|triggered| triggered.kind);
        let of_checkpoint = match kind.is_some_and(CheckpointKind::is_savepoint) {
            true => Ok(()),
            false => lease.abandon(checkpoint).await,
        };
        let of_savepoint = match kind.is_none_or(CheckpointKind::is_savepoint) {
            true => lease.abandon_savepoint(checkpoint, &savepoint_name(checkpoint)).await,
            false => Ok(()),
        };
        if let Err(error) = of_checkpoint.and(of_savepoint) {
            tracing::warn!(%checkpoint, %error, "parts of a checkpoint that will not be complete are left behind");
        }
    }
}

fn manifest_of(
    run: &Attempt,
    checkpoint: CheckpointId,
    kind: CheckpointKind,
    parts: BTreeMap<SubtaskId, Acked>,
    parallelism: u32,
) -> Manifest {
    let triggered = run.triggered.get(&checkpoint).map_or(Timestamp::default(), |triggered| triggered.at);
    let mut manifest = Manifest::new(checkpoint, triggered);
    manifest.drained = kind.is_drain();
    manifest.records = run.records.clone();
    for (subtask, Acked { state, written }) in parts {
        let contact = &run.contacts[subtask.0 as usize];
        let Participant { uid, subtask } = &contact.participant;
        if contact.role == Role::Sink {
            *manifest.records.entry(uid.clone()).or_default() += written;
        }
        let operator = manifest.operators.entry(uid.clone()).or_insert_with(|| OperatorState {
            parallelism,
            subtasks: vec![SubtaskState::default(); parallelism as usize],
        });
        operator.subtasks[*subtask as usize] = state;
    }
    manifest
}

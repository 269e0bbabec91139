//! Dealing a checkpoint's state out to the tasks of today.

use std::collections::BTreeSet;

use levada_core::state::Redistribution;

use super::control::Participant;
use super::launch::RestoredJob;
use crate::error::JobError;
use crate::plan::Stage;
use crate::store::{Manifest, Store};

/// What a job starts with that never had a checkpoint.
pub(crate) fn deal_out_nothing() -> RestoredJob {
    RestoredJob::default()
}

/// Reads a checkpoint's state, and deals it out to `parallelism` subtasks of each operator.
pub(crate) async fn deal_out(
    store: &Store,
    manifest: &Manifest,
    stages: &[Stage],
    parallelism: u32,
) -> Result<RestoredJob, JobError> {
    let known: BTreeSet<&str> = stages.iter().map(|stage| stage.uid.as_str()).collect();
    let mut restored = RestoredJob { checkpoint: Some(manifest.id), ..RestoredJob::default() };
    let mut redistribution = Redistribution::new(parallelism);
    for (uid, operator) in &manifest.operators {
        let mut states = Vec::new();
        for subtask in &operator.subtasks {
            states.push(store.get_state(&manifest.home(), &subtask.stored).await?);
        }
        // State that nobody takes over would be lost without a word.
        if !known.contains(uid.as_str()) && states.iter().any(|state| !state.is_empty()) {
            return Err(JobError::UnknownState { checkpoint: manifest.id, uid: uid.clone() });
        }
        let dealt = redistribution
            .redistribute(states)
            .map_err(|cause| JobError::State { uid: uid.clone(), cause })?;
        for (subtask, state) in (0..).zip(dealt) {
            restored.states.insert(Participant { uid: uid.clone(), subtask }, state);
        }
    }
    Ok(restored)
}

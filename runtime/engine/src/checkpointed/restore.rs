//! Dealing a checkpoint's state out to the tasks of today.

use std::collections::{BTreeMap, BTreeSet};

use levada_core::State;
use levada_core::state::Redistribution;

use super::control::Participant;
use super::launch::RestoredJob;
use super::recovery::Terms;
use crate::error::JobError;
use crate::store::{Manifest, Store};

/// Reads a checkpoint's states, by operator.
pub(super) async fn read_states(
    store: &Store,
    manifest: &Manifest,
) -> Result<BTreeMap<String, Vec<State>>, JobError> {
    let mut all = BTreeMap::new();
    for (uid, operator) in &manifest.operators {
        let mut states = Vec::new();
        for subtask in &operator.subtasks {
            states.push(store.get_state(&manifest.home(), &subtask.stored).await?);
        }
        all.insert(uid.clone(), states);
    }
    Ok(all)
}

/// Deals states out to the subtasks of each operator.
pub(super) fn deal_out(
    terms: &Terms,
    manifest: Option<&Manifest>,
    states: BTreeMap<String, Vec<State>>,
) -> Result<RestoredJob, JobError> {
    let Some(manifest) = manifest else { return Ok(RestoredJob::default()) };
    if manifest.drained {
        tracing::warn!(checkpoint = %manifest.id, "event time came to its end with this savepoint: later records are late");
    }
    let known: BTreeSet<&str> = terms.stages.iter().map(|stage| stage.uid.as_str()).collect();
    let mut restored = RestoredJob {
        checkpoint: Some(manifest.id),
        savepoint: manifest.savepoint.clone(),
        records: manifest.records.clone(),
        ..RestoredJob::default()
    };
    let mut redistribution = Redistribution::new(terms.parallelism);
    for (uid, states) in states {
        // State that nobody takes over would be lost without a word.
        if !known.contains(uid.as_str()) && states.iter().any(|state| !state.is_empty()) {
            if !terms.allow_unknown_state {
                return Err(JobError::UnknownState { checkpoint: manifest.id, uid });
            }
            tracing::error!(checkpoint = %manifest.id, uid, "state of an operator that the job does not have is dropped, as it was allowed");
            continue;
        }
        let dealt = redistribution.redistribute(states);
        let dealt = dealt.map_err(|cause| JobError::State { uid: uid.clone(), cause })?;
        for (subtask, state) in (0..).zip(dealt) {
            restored.states.insert(Participant { uid: uid.clone(), subtask }, state);
        }
    }
    Ok(restored)
}

//! Dealing a checkpoint's state out to the tasks of today.

use std::collections::{BTreeMap, BTreeSet};

use levada_core::state::Redistribution;
use levada_core::{CheckpointId, State};

use super::control::Participant;
use super::deal::deal_by_split;
use super::held::MOVED;
use super::launch::RestoredJob;
use super::recovery::Terms;
use crate::error::JobError;
use crate::plan::StageKind;
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

/// Whether they are those of an async step, with inputs.
fn holds_inputs(terms: &Terms, uid: &str, states: &[State]) -> bool {
    let is_async = terms.stages.iter().any(|stage| stage.uid == uid && stage.kind == StageKind::Async);
    is_async && states.iter().any(|state| !state.is_empty())
}

fn is_known(terms: &Terms, uid: &str, states: &[State]) -> bool {
    terms.stages.iter().any(|stage| stage.uid == uid) || states.iter().all(State::is_empty)
}

/// State that nobody takes over would be lost without a word. Looked at before anything is changed: what a renamed sink has
/// left may bear names that the fence of the new one drops.
pub(super) fn refuse_unknown(
    terms: &Terms,
    checkpoint: CheckpointId,
    states: &BTreeMap<String, Vec<State>>,
) -> Result<(), JobError> {
    let unknown = states.iter().find(|(uid, states)| !is_known(terms, uid, states));
    match unknown {
        Some((uid, _)) if !terms.allow_unknown_state => {
            Err(JobError::UnknownState { checkpoint, uid: uid.clone() })
        }
        _ => Ok(()),
    }
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
    let mut restored = RestoredJob {
        checkpoint: Some(manifest.id),
        savepoint: manifest.savepoint.clone(),
        records: manifest.records.clone(),
        ..RestoredJob::default()
    };
    let mut redistribution = Redistribution::new(terms.parallelism);
    let mut moved = BTreeSet::new();
    for (uid, states) in states {
        if !is_known(terms, &uid, &states) {
            tracing::error!(checkpoint = %manifest.id, uid, "state of an operator that the job does not have is dropped, as it was allowed");
            continue;
        }
        let is_moving = states.len() != terms.parallelism as usize && holds_inputs(terms, &uid, &states);
        if is_moving || states.iter().any(|state| state.get(MOVED).is_some()) {
            moved.insert(uid.clone());
        }
        let dealt = match is_moving {
            true => deal_by_split(&states, terms.parallelism),
            false => redistribution.redistribute(states),
        };
        let dealt = dealt.map_err(|cause| JobError::State { uid: uid.clone(), cause })?;
        for (subtask, state) in (0..).zip(dealt) {
            restored.states.insert(Participant { uid: uid.clone(), subtask }, state);
        }
    }
    let steps = terms.stages.iter().map(|stage| &stage.uid);
    restored.moved = steps.filter(|uid| moved.contains(*uid)).cloned().collect();
    Ok(restored)
}

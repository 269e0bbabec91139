//! Dealing out to another number of subtasks what async steps hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_core::{ListState, Spread, State, StateError};

use super::held::{INPUTS, split_of};

/// Deals the elements of one step out by their split, each split's in their order: whoever has read them in one order is answered
/// in that order; the splits go round. What belongs to no split is a watermark, which says nothing of another subtask's records.
pub(super) fn deal_by_split(states: &[State], parallelism: u32) -> Result<Vec<State>, StateError> {
    let mut version = None;
    let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
    let mut dealt: Vec<Vec<Bytes>> = vec![Vec::new(); parallelism as usize];
    for list in states.iter().filter_map(|state| state.get(INPUTS)) {
        if version.replace(list.version).is_some_and(|other| other != list.version) {
            return Err(StateError::new("the inputs of one step were stored in several versions"));
        }
        for element in list.elements.iter() {
            let Some(split) = split_of(element)? else { continue };
            let next = places.len() % dealt.len();
            dealt[*places.entry(split).or_insert(next)].push(element.clone());
        }
    }
    let list = |elements: Vec<Bytes>| match version {
        Some(version) if !elements.is_empty() => {
            State::new().with(INPUTS, ListState::shared(Spread::Split, version, elements.into()))
        }
        _ => State::new(),
    };
    Ok(dealt.into_iter().map(list).collect())
}

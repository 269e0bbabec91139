//! The order of the inputs.

use std::collections::BTreeMap;

use super::Entry;

/// What is in front leaves, once it can.
#[derive(Debug)]
pub(super) struct Fifo;

impl Fifo {
    pub(super) fn next<V, R, M>(&self, entries: &BTreeMap<u64, Entry<V, R, M>>) -> Option<u64> {
        match entries.first_key_value()? {
            (_, Entry::Waiting { .. }) => None,
            (place, _) => Some(*place),
        }
    }
}

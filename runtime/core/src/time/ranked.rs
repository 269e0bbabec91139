//! Watermarks by key, and in order.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Timestamp;

/// Knows the lowest and the highest of many watermarks at once: a change costs the logarithm of their number, and a look
/// costs the same however many there are.
#[derive(Debug, Clone)]
pub(super) struct Ranked<K> {
    of: BTreeMap<K, Timestamp>,
    in_order: BTreeSet<(Timestamp, K)>,
}

impl<K: Ord + Clone> Ranked<K> {
    pub(super) fn new() -> Self {
        Self { of: BTreeMap::new(), in_order: BTreeSet::new() }
    }

    pub(super) fn set(&mut self, key: K, watermark: Timestamp) {
        match self.of.insert(key.clone(), watermark) {
            Some(before) if before == watermark => return,
            Some(before) => self.in_order.remove(&(before, key.clone())),
            None => false,
        };
        self.in_order.insert((watermark, key));
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<Timestamp> {
        let watermark = self.of.remove(key)?;
        self.in_order.remove(&(watermark, key.clone()));
        Some(watermark)
    }

    pub(super) fn get(&self, key: &K) -> Option<Timestamp> {
        self.of.get(key).copied()
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.of.contains_key(key)
    }

    pub(super) fn lowest(&self) -> Option<Timestamp> {
        self.in_order.first().map(|(watermark, _)| *watermark)
    }

    pub(super) fn highest(&self) -> Option<Timestamp> {
        self.in_order.last().map(|(watermark, _)| *watermark)
    }

    /// Walks through the keys from the highest watermark down, with their watermarks.
    pub(super) fn highest_first(&self) -> impl Iterator<Item = (Timestamp, &K)> {
        self.in_order.iter().rev().map(|(watermark, key)| (*watermark, key))
    }

    /// Walks through the keys in their own order, with their watermarks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, Timestamp)> {
        self.of.iter().map(|(key, watermark)| (key, *watermark))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.of.keys()
    }
}

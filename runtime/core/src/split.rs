//! Places: splits of a stream and positions in them.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt;
use std::sync::Arc;

/// One ordered part of a stream. In Kafka: a topic's partition.
///
/// Ordered by stream, then index: the order in which every writer locks position rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SplitId {
    /// The stream's name. In Kafka: the topic.
    pub stream: Arc<str>,
    /// The number of the split within its stream.
    pub index: u32,
}

impl SplitId {
    /// Names split `index` of `stream`.
    pub fn new(stream: impl Into<Arc<str>>, index: u32) -> Self {
        Self { stream: stream.into(), index }
    }
}

/// Prints `topic-3`.
impl fmt::Display for SplitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.stream, self.index)
    }
}

/// Identifies a stream for good, beyond its name. In Kafka: cluster id and topic id, so that a re-created topic or
/// another cluster is never mistaken for the one that stored positions refer to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub Arc<str>);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where reading goes on in a split. Ordered by `next`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position {
    /// The first record that was not yet handed on. In Kafka: an offset.
    pub next: u64,
    /// What else the source must know to go on; empty for Kafka.
    pub detail: Box<[u8]>,
}

impl Position {
    /// Makes a position without detail.
    pub fn at(next: u64) -> Self {
        Self { next, detail: Box::default() }
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.next.cmp(&other.next).then_with(|| self.detail.cmp(&other.detail))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.next)
    }
}

/// Positions by split, in the splits' order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Positions(BTreeMap<SplitId, Position>);

impl Positions {
    /// Makes an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the position of one split, replacing an earlier one.
    pub fn set(&mut self, split: SplitId, position: Position) {
        self.0.insert(split, position);
    }

    /// Returns the position of a split.
    pub fn get(&self, split: &SplitId) -> Option<&Position> {
        self.0.get(split)
    }

    /// Forgets a split.
    pub fn remove(&mut self, split: &SplitId) -> Option<Position> {
        self.0.remove(split)
    }

    /// Takes over every position of `newer`.
    pub fn merge(&mut self, newer: Positions) {
        self.0.extend(newer.0);
    }

    /// Walks through the positions in split order.
    pub fn iter(&self) -> btree_map::Iter<'_, SplitId, Position> {
        self.0.iter()
    }

    /// Returns the number of splits.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells whether no split has a position.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Positions {
    type Item = (&'a SplitId, &'a Position);
    type IntoIter = btree_map::Iter<'a, SplitId, Position>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for Positions {
    type Item = (SplitId, Position);
    type IntoIter = btree_map::IntoIter<SplitId, Position>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<(SplitId, Position)> for Positions {
    fn from_iter<I: IntoIterator<Item = (SplitId, Position)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

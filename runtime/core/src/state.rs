//! What operators store with a checkpoint, and how it is dealt out again when the parallelism has changed.

mod elements;
mod redistribute;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

pub use elements::Elements;
pub use redistribute::{Redistribution, redistribute};

/// How the elements of a list find their subtasks after a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Spread {
    /// Each element goes to one subtask: its own at the same parallelism, else to one of a contiguous chunk.
    Split,
    /// Every subtask gets the elements of all, also at the same parallelism.
    Union,
    /// Every subtask holds the same; after a restore each gets the copy of one.
    Broadcast,
}

/// A list of elements under one name. What an element means, and its version, is its operator's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListState {
    /// How the elements are dealt out.
    pub spread: Spread,
    /// The version of the elements' format.
    pub version: u16,
    /// The elements, in the operator's order.
    pub elements: Elements,
}

impl ListState {
    /// Makes a list of elements that were just written.
    pub fn new(spread: Spread, version: u16, elements: Vec<Vec<u8>>) -> Self {
        Self::of(spread, version, elements.into())
    }

    /// Makes a list of elements that may be shared.
    pub fn of(spread: Spread, version: u16, elements: Elements) -> Self {
        Self { spread, version, elements }
    }

    /// Makes a list of values.
    pub fn of<V: Storable>(spread: Spread, values: impl IntoIterator<Item = V>) -> Self {
        let stored = |value: V| {
            let mut bytes = Vec::new();
            value.store(&mut bytes);
            bytes
        };
        Self::new(spread, V::VERSION, values.into_iter().map(stored).collect())
    }

    /// Reads the values back, in their order.
    ///
    /// # Errors
    /// An element is no such value, or one of a later version.
    pub fn values<V: Storable>(&self) -> Result<Vec<V>, StateError> {
        self.elements.iter().map(|bytes| V::load(self.version, bytes)).collect()
    }
}

/// What one subtask of an operator stores: lists by name. Cloning shares the elements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    lists: BTreeMap<String, ListState>,
}

impl State {
    /// Makes an empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a list, in place of an earlier one of the name.
    pub fn insert(&mut self, name: impl Into<String>, list: ListState) {
        self.lists.insert(name.into(), list);
    }

    /// Adds a list and returns the state.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, list: ListState) -> Self {
        self.insert(name, list);
        self
    }

    /// Returns a list.
    pub fn get(&self, name: &str) -> Option<&ListState> {
        self.lists.get(name)
    }

    /// Walks through the lists by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ListState)> {
        self.lists.iter().map(|(name, list)| (name.as_str(), list))
    }

    /// Tells whether there is no list.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}

/// A stored element, version or list is not what its reader understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateError(String);

impl StateError {
    /// Says what was found and what was expected.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for StateError {}

/// A value that can be stored and read back by a later version of the program.
pub trait Storable: Sized {
    /// The version of what [`Storable::store`] writes.
    const VERSION: u16;

    /// Appends the value.
    fn store(&self, out: &mut Vec<u8>);

    /// Reads a value of this or an earlier version.
    ///
    /// # Errors
    /// The bytes are not such a value, or of a later version.
    fn load(version: u16, bytes: &[u8]) -> Result<Self, StateError>;
}

fn check_version(found: u16) -> Result<(), StateError> {
    match found {
        1 => Ok(()),
        other => Err(StateError::new(format!("version {other} of a value was found, up to 1 is understood"))),
    }
}

impl Storable for String {
    const VERSION: u16 = 1;

    fn store(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn load(version: u16, bytes: &[u8]) -> Result<Self, StateError> {
        check_version(version)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| StateError::new("a stored text is not UTF-8"))
    }
}

impl Storable for Vec<u8> {
    const VERSION: u16 = 1;

    fn store(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn load(version: u16, bytes: &[u8]) -> Result<Self, StateError> {
        check_version(version)?;
        Ok(bytes.to_vec())
    }
}

impl Storable for u64 {
    const VERSION: u16 = 1;

    fn store(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn load(version: u16, bytes: &[u8]) -> Result<Self, StateError> {
        check_version(version)?;
        let eight = bytes.try_into();
        let eight =
            eight.map_err(|_| StateError::new(format!("a number has 8 bytes, found {}", bytes.len())))?;
        Ok(u64::from_be_bytes(eight))
    }
}

#[cfg(test)]
mod tests {
    use super::{ListState, Spread};

    #[test]
    fn values_of_a_list_are_read_back_in_their_order() {
        let list = ListState::of(Spread::Union, [7_u64, 0, u64::MAX]);
        assert_eq!(list.values::<u64>(), Ok(vec![7, 0, u64::MAX]));
        assert_eq!((list.spread, list.version), (Spread::Union, 1));
    }

    #[test]
    fn list_of_a_later_version_is_refused() {
        let list = ListState { version: 2, ..ListState::of(Spread::Split, ["a".to_owned()]) };
        assert!(list.values::<String>().expect_err("later").to_string().contains("version 2"));
    }
}

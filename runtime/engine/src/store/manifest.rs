//! What a complete checkpoint consists of.

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_core::{CheckpointId, State, Timestamp};
use serde::{Deserialize, Serialize};

use super::codec;
use super::entry::{id, milliseconds};
use super::frame::Flaw;
use super::part::{PartHome, PartRef};

/// State up to this many bytes is kept in the manifest: one object less to write and to lose.
pub(crate) const INLINE_LIMIT: usize = 4 << 10;

/// Everything a job needs to go on from a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The checkpoint.
    #[serde(with = "id")]
    pub id: CheckpointId,
    /// When it was triggered, in milliseconds since the Unix epoch.
    #[serde(with = "milliseconds")]
    pub triggered: Timestamp,
    /// The name of the savepoint that it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub savepoint: Option<String>,
    /// Whether event time came to its end with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// How many records each sink has taken since the job began, over all its starts; for people, and to tell them what
    /// would be published again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub records: BTreeMap<String, u64>,
    /// The operators by uid.
    pub operators: BTreeMap<String, OperatorState>,
}

/// The state of one operator.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OperatorState {
    /// How many subtasks it had.
    pub parallelism: u32,
    /// The subtasks in order. Those that had ended are absent from their place on: fewer than `parallelism`.
    pub subtasks: Vec<SubtaskState>,
}

/// The state of one subtask, with what a person may want to know of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SubtaskState {
    /// Where the state is.
    pub stored: Stored,
    /// Where a source goes on, by split; for people, a restore does not read it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub positions: BTreeMap<String, u64>,
    /// Transactions that wait for this checkpoint; for people.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pending_transactions: u64,
    /// Records in them; for people.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pending_records: u64,
    /// Pieces that the state refers to. They may be older than the checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<PartRef>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants it so
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where the state of a subtask is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Stored {
    /// Nowhere: there is none.
    #[default]
    Nothing,
    /// Here, as [`codec`] writes it, in hexadecimal.
    Inline(#[serde(with = "hexadecimal")] Vec<u8>),
    /// In an object of its own.
    Part(PartRef),
}

impl Stored {
    /// Encodes a small state into the manifest; `None` for a large one, which needs a part.
    pub(crate) fn inline(state: &State) -> Option<Self> {
        if state.is_empty() {
            return Some(Stored::Nothing);
        }
        let is_small = codec::encoded_length(state) <= INLINE_LIMIT;
        is_small.then(|| Stored::Inline(codec::encode(state)))
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Stored::Nothing => 0,
            Stored::Inline(bytes) => bytes.len() as u64,
            Stored::Part(part) => part.length,
        }
    }
}

impl Manifest {
    /// Makes the manifest of a checkpoint without operators.
    pub fn new(id: CheckpointId, triggered: Timestamp) -> Self {
        Self {
            id,
            triggered,
            savepoint: None,
            drained: false,
            records: BTreeMap::new(),
            operators: BTreeMap::new(),
        }
    }

    /// Walks through the parts.
    pub fn parts(&self) -> impl Iterator<Item = &PartRef> {
        let subtasks = self.operators.values().flat_map(|operator| &operator.subtasks);
        subtasks.filter_map(|subtask| match &subtask.stored {
            Stored::Part(part) => Some(part),
            _ => None,
        })
    }

    /// Walks through the pieces that its states refer to.
    pub fn pieces(&self) -> impl Iterator<Item = &PartRef> {
        self.operators.values().flat_map(|operator| &operator.subtasks).flat_map(|subtask| &subtask.pieces)
    }

    /// Tells where its parts are.
    pub fn home(&self) -> PartHome {
        match &self.savepoint {
            Some(name) => PartHome::Savepoint(name.clone()),
            None => PartHome::Checkpoint(self.id),
        }
    }

    /// Checks what needs no other object: that inlined state can be read.
    pub(crate) fn check(&self) -> Result<(), (String, Flaw)> {
        for (uid, operator) in &self.operators {
            for (subtask, state) in operator.subtasks.iter().enumerate() {
                if let Stored::Inline(bytes) = &state.stored {
                    let read = codec::decode(Bytes::copy_from_slice(bytes));
                    read.map_err(|error| {
                        (format!("{uid}, subtask {subtask}"), Flaw::Content(error.to_string()))
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Bytes as text.
mod hexadecimal {
    use std::fmt::Write;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            // Writing to a String never fails.
            let _ = write!(text, "{byte:02x}");
        }
        to.serialize_str(&text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        if !text.is_ascii() || text.len() % 2 != 0 {
            return Err(D::Error::custom("not hexadecimal"));
        }
        let pairs = text.as_bytes().chunks_exact(2);
        let bytes = pairs.map(|pair| {
            let digits = [char::from(pair[0]).to_digit(16)?, char::from(pair[1]).to_digit(16)?];
            u8::try_from(digits[0] * 16 + digits[1]).ok()
        });
        bytes.collect::<Option<_>>().ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

//! The entries of the log, as values.

use levada_core::{CheckpointId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::{Holder, StoreError};
use super::frame::{self, Flaw};
use super::manifest::Manifest;
use super::process::ProcessId;

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number; the same as in its name.
    pub number: u64,
    /// Names the lease whose holder wrote it, beyond its number: drawn at random.
    pub writer: String,
    /// Tells this entry from any other that the writer tried to write.
    pub nonce: u64,
    /// What it says.
    #[serde(flatten)]
    pub kind: EntryKind,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "lowercase")]
#[non_exhaustive]
pub enum EntryKind {
    /// A process holds the store from here on. Never deleted.
    Lease(LeaseRecord),
    /// A checkpoint is complete.
    Checkpoint(Manifest),
    /// Everything that this checkpoint covers has become visible.
    #[serde(with = "id")]
    Resolved(CheckpointId),
    /// This checkpoint and all before it may be deleted, and are no longer to be restored.
    #[serde(with = "id")]
    Discarding(CheckpointId),
    /// Checkpoints above this one, and before this entry, are no longer to be restored: what they added is dropped, and
    /// read again. `None`: none of before is. Never deleted.
    #[serde(with = "optional_id")]
    RolledBack(Option<CheckpointId>),
}

/// Who took a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The name the holder gave.
    pub owner: String,
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessId,
    /// When, in milliseconds since the Unix epoch by the holder's clock.
    #[serde(with = "milliseconds")]
    pub at: Timestamp,
}

impl LeaseRecord {
    /// Describes the holder of the lease at `number`.
    pub fn holder(&self, number: u64) -> Holder {
        let (owner, host) = (self.owner.clone(), self.process.host.clone());
        Holder { owner, host, pid: self.process.pid, attempt: number, since: self.at }
    }
}

impl Entry {
    /// Returns the lease, if it is one.
    pub fn lease(&self) -> Option<&LeaseRecord> {
        match &self.kind {
            EntryKind::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    /// Returns the manifest, if it is a checkpoint.
    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.kind {
            EntryKind::Checkpoint(manifest) => Some(manifest),
            _ => None,
        }
    }

    /// Writes it down.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let json = serde_json::to_vec_pretty(self).map_err(StoreError::Encode)?;
        Ok(frame::wrap(&json))
    }

    /// Reads the entry that was found at `number`.
    pub(crate) fn decode(number: u64, framed: &[u8]) -> Result<Self, Flaw> {
        let json = frame::unwrap(framed)?;
        let entry: Entry = serde_json::from_slice(json).map_err(|error| Flaw::Content(error.to_string()))?;
        if entry.number != number {
            return Err(Flaw::Content(format!("it says that its number is {}", entry.number)));
        }
        Ok(entry)
    }
}

/// Ids as people see them: `3-17`.
pub(crate) mod id {
    use levada_core::CheckpointId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(id: &CheckpointId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CheckpointId, D::Error> {
        let text = String::deserialize(from)?;
        parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no checkpoint id")))
    }

    /// Reads `3-17`.
    pub(crate) fn parse(text: &str) -> Option<CheckpointId> {
        let (attempt, sequence) = text.split_once('-')?;
        Some(CheckpointId::new(attempt.parse().ok()?, sequence.parse().ok()?))
    }
}

/// Ids that may be absent, as text or `null`.
pub(crate) mod optional_id {
    use levada_core::CheckpointId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option)] // serde wants it so
    pub(crate) fn serialize<S: Serializer>(id: &Option<CheckpointId>, to: S) -> Result<S::Ok, S::Error> {
        id.map(|id| id.to_string()).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CheckpointId>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let id = super::id::parse(&text);
        id.map(Some).ok_or_else(|| D::Error::custom(format!("{text:?} is no checkpoint id")))
    }
}

/// Times as numbers.
pub(crate) mod milliseconds {
    use levada_core::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(time.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(from).map(Timestamp)
    }
}

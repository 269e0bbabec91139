//! Small stand-ins for ids and handles, and the real ones for the code that is checked.

use std::sync::LazyLock;

use levada_core::{CheckpointId, Timestamp};
use levada_kafka::sink::recovery::{SlotName, TransactionHandle, TransactionNaming};

use super::broker::TIMEOUT;

/// A transactional id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) attempt: u8,
    pub(crate) subtask: u8,
    pub(crate) slot: u8,
}

/// A handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Handle {
    pub(crate) id: Id,
    pub(crate) epoch: i16,
    pub(crate) is_late: bool,
    /// The checkpoint that it was begun for.
    pub(crate) named: CheckpointId,
    /// The one that covers it.
    pub(crate) covered_by: CheckpointId,
}

static NAMING: LazyLock<TransactionNaming> =
    LazyLock::new(|| TransactionNaming::new("levada", "job", "sink").expect("parts of a name"));

pub(crate) fn naming() -> &'static TransactionNaming {
    &NAMING
}

pub(crate) fn id_of(id: Id) -> String {
    let (attempt, subtask, slot) = (u64::from(id.attempt), u32::from(id.subtask), u32::from(id.slot));
    NAMING.id_of(SlotName { attempt, subtask, slot })
}

pub(crate) fn producer_of(id: Id) -> i64 {
    i64::from(id.attempt) * 100 + i64::from(id.subtask) * 10 + i64::from(id.slot)
}

pub(crate) fn start_of(is_late: bool) -> Timestamp {
    if is_late { Timestamp(55_000) } else { Timestamp(500) }
}

impl Handle {
    /// Makes the handle that the sink would store.
    pub(crate) fn real(&self) -> TransactionHandle {
        TransactionHandle {
            transactional_id: id_of(self.id),
            producer_id: producer_of(self.id),
            epoch: self.epoch,
            start: Some(start_of(self.is_late)),
            timeout: TIMEOUT,
            checkpoint: self.named,
            attempt: u64::from(self.id.attempt),
            subtask: u32::from(self.id.subtask),
            partitions: [("out".to_owned(), [i32::from(self.id.subtask)].into())].into(),
            records: 1,
            cluster_id: "cluster".to_owned(),
        }
    }
}

//! A transaction and what a coordinator may say of it, for the tests beside.

use std::time::Duration;

use levada_core::{CheckpointId, Timestamp};

use super::describe::{DescribedTransaction, Description, TransactionState};
use super::evidence::Evidence;
use super::handle::TransactionHandle;
use super::marker::Marker;

pub(super) const PRODUCER: i64 = 7;
pub(super) const CHECKPOINT: CheckpointId = CheckpointId { attempt: 3, sequence: 17 };

/// Began at 500 ms, drops 60 s later, epoch 5.
pub(super) fn handle() -> TransactionHandle {
    TransactionHandle {
        transactional_id: "levada.flights.out.a3.s0.t1".to_owned(),
        producer_id: PRODUCER,
        epoch: 5,
        start: Some(Timestamp(500)),
        timeout: Duration::from_secs(60),
        checkpoint: CHECKPOINT,
        attempt: 3,
        subtask: 0,
        partitions: [("out".to_owned(), [0, 1].into())].into(),
        records: 120,
        cluster_id: "cluster".to_owned(),
    }
}

pub(super) fn described(state: TransactionState, epoch: i16) -> Description {
    Description::Found(DescribedTransaction {
        state,
        producer_id: PRODUCER,
        epoch,
        start: Some(Timestamp(500)),
        timeout: Duration::from_secs(60),
        partitions: [("out".to_owned(), [0, 1].into())].into(),
    })
}

pub(super) fn evidence(description: Description, marker: Marker) -> Evidence {
    Evidence { cluster_id: "cluster".to_owned(), description, marker }
}

//! The coordinator, as far as its rules for ending transactions go, and what readers see.
//!
//! The rules are those of Kafka's request versions up to `EndTxn` 4. A decided end is visible at once: what lies between a
//! durable decision and its markers differs in the answers 51 alone, which are tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_core::{CheckpointId, Timestamp};
use levada_kafka::sink::recovery::{DescribedTransaction, Description, Marker, TransactionState};

use super::names::{Id, producer_of, start_of};

/// Subtasks, each with a transaction of its own.
pub(crate) const WRITERS: u8 = 2;
/// How long the broker keeps a transaction.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// What the coordinator has on an id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) epoch: i16,
    pub(crate) state: TransactionState,
    /// Whether the newest transaction began late.
    pub(crate) is_late: bool,
    /// The interval whose records are in it.
    pub(crate) interval: u8,
    /// The checkpoint that its marker names.
    pub(crate) named: CheckpointId,
}

/// How a transaction ended: what nobody in the model can look at, and the promises are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ended {
    pub(crate) id: Id,
    pub(crate) epoch: i16,
    pub(crate) is_committed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Broker {
    pub(crate) ids: BTreeMap<Id, Held>,
    /// How often a committed reader sees the record of each interval and subtask.
    pub(crate) visible: BTreeMap<(u8, u8), u8>,
    pub(crate) markers: BTreeMap<u8, CheckpointId>,
    pub(crate) ended: Vec<Ended>,
}

impl Broker {
    /// `InitProducerId`, repeated until it answers: aborts what is open and gives the id a fresh epoch.
    pub(crate) fn init(&mut self, id: Id) -> i16 {
        self.expire(id);
        let fresh = Held {
            epoch: 0,
            state: TransactionState::Empty,
            is_late: false,
            interval: 0,
            named: CheckpointId::default(),
        };
        let held = self.ids.entry(id).and_modify(|held| held.epoch += 1).or_insert(fresh);
        held.state = TransactionState::Empty;
        held.epoch
    }

    /// Begins a transaction and writes the record of an interval into it.
    pub(crate) fn begin(&mut self, id: Id, interval: u8, named: CheckpointId, is_late: bool) {
        if let Some(held) = self.ids.get_mut(&id) {
            *held = Held { state: TransactionState::Ongoing, is_late, interval, named, epoch: held.epoch };
        }
    }

    /// Aborts what is open under an id, as a timeout does.
    pub(crate) fn expire(&mut self, id: Id) {
        let epoch = match self.ids.get_mut(&id) {
            Some(held) if held.state == TransactionState::Ongoing => {
                held.state = TransactionState::CompleteAbort;
                held.epoch += 1;
                held.epoch - 1
            }
            _ => return,
        };
        self.note(id, epoch, false);
    }

    /// `EndTxn`, version 4. Returns the error code.
    pub(crate) fn end(&mut self, id: Id, epoch: i16, is_commit: bool) -> i16 {
        let Some(held) = self.ids.get_mut(&id) else { return 49 };
        if held.epoch != epoch {
            return 90;
        }
        match (held.state, is_commit) {
            (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false) => return 0,
            (TransactionState::Ongoing, _) => {}
            _ => return 48,
        }
        if is_commit {
            held.state = TransactionState::CompleteCommit;
            *self.visible.entry((held.interval, id.subtask)).or_default() += 1;
            let marker = self.markers.entry(id.subtask).or_default();
            *marker = held.named.max(*marker);
        } else {
            held.state = TransactionState::CompleteAbort;
        }
        self.note(id, epoch, is_commit);
        0
    }

    fn note(&mut self, id: Id, epoch: i16, is_committed: bool) {
        self.ended.push(Ended { id, epoch, is_committed });
        self.ended.sort_unstable();
    }

    /// `DescribeTransactions`.
    pub(crate) fn describe(&self, id: Id) -> Description {
        let Some(held) = self.ids.get(&id) else { return Description::NotFound };
        Description::Found(DescribedTransaction {
            state: held.state,
            producer_id: producer_of(id),
            epoch: held.epoch,
            start: (held.state != TransactionState::Empty).then(|| start_of(held.is_late)),
            timeout: TIMEOUT,
            partitions: [("out".to_owned(), [i32::from(id.subtask)].into())].into(),
        })
    }

    pub(crate) fn marker(&self, subtask: u8) -> Marker {
        self.markers.get(&subtask).map_or(Marker::Never, |checkpoint| Marker::At(*checkpoint))
    }

    /// `ListTransactions`, those that are ongoing.
    pub(crate) fn ongoing(&self) -> impl Iterator<Item = Id> + '_ {
        let open = self.ids.iter().filter(|(_, held)| held.state == TransactionState::Ongoing);
        open.map(|(id, _)| *id)
    }

    /// Tells how a transaction ended; `None` while it has not.
    pub(crate) fn is_committed(&self, id: Id, epoch: i16) -> Option<bool> {
        let ended = self.ended.iter().find(|ended| (ended.id, ended.epoch) == (id, epoch));
        ended.map(|ended| ended.is_committed)
    }
}

/// The time by our clock.
pub(crate) fn now(is_late: bool) -> Timestamp {
    // What began early has five seconds left when it is late, and ten are wanted.
    if is_late { Timestamp(55_500) } else { Timestamp(1_000) }
}

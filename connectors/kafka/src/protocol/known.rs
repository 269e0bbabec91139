//! What the cluster has told, for as long as it proves right.

use std::collections::{BTreeMap, HashMap};

use super::address::Address;

/// Whose coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CoordinatorOf {
    Group,
    Transaction,
}

impl CoordinatorOf {
    /// The number in the protocol.
    pub(super) fn key_type(self) -> i8 {
        match self {
            CoordinatorOf::Group => 0,
            CoordinatorOf::Transaction => 1,
        }
    }
}

/// So many ids may be kept in mind; a process has tens.
const MOST_COORDINATORS: usize = 10_000;

/// Where brokers listen, and which of them coordinates what.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Whom to ask for the others.
    bootstrap: Vec<Address>,
    brokers: BTreeMap<i32, Address>,
    coordinators: HashMap<(CoordinatorOf, String), i32>,
    /// Who answered last.
    answering: Option<Address>,
}

impl Known {
    pub(super) fn new(bootstrap: Vec<Address>) -> Self {
        Self { bootstrap, ..Self::default() }
    }

    /// Returns everybody who could answer what any broker can: who answered last first, who we were told of at first last.
    pub(super) fn candidates(&self) -> Vec<Address> {
        let mut all: Vec<Address> = self.answering.iter().cloned().collect();
        for address in self.brokers.values().chain(&self.bootstrap) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    pub(super) fn note_answering(&mut self, broker: &Address) {
        if self.answering.as_ref() != Some(broker) {
            self.answering = Some(broker.clone());
        }
    }

    pub(super) fn replace_brokers(&mut self, brokers: BTreeMap<i32, Address>) {
        self.brokers = brokers;
    }

    pub(super) fn broker(&self, id: i32) -> Option<Address> {
        self.brokers.get(&id).cloned()
    }

    pub(super) fn coordinator(&self, of: CoordinatorOf, key: &str) -> Option<i32> {
        self.coordinators.get(&(of, key.to_owned())).copied()
    }

    pub(super) fn note_coordinator(&mut self, of: CoordinatorOf, key: &str, id: i32, address: Address) {
        if self.coordinators.len() >= MOST_COORDINATORS {
            self.coordinators.clear();
        }
        self.coordinators.insert((of, key.to_owned()), id);
        self.brokers.insert(id, address);
    }

    pub(super) fn forget_coordinator(&mut self, of: CoordinatorOf, key: &str) {
        self.coordinators.remove(&(of, key.to_owned()));
    }

    /// Forgets where a broker listens: it may come back elsewhere.
    pub(super) fn forget_broker(&mut self, broker: &Address) {
        self.brokers.retain(|_, address| address != broker);
        if self.answering.as_ref() == Some(broker) {
            self.answering = None;
        }
    }
}

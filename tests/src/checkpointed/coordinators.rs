//! The coordinators of a job's transactions, as the protocol tells of them.

use std::time::Duration;

use levada_kafka::protocol::{
    Ending, ProtocolClient, ProtocolConfig, State, TransactionAdmin as _, TransactionKey,
};
use levada_testcontainers::wait_until;
use tokio::runtime::Runtime;

use crate::process::PATIENCE;

/// How long one question may take.
const WITHIN: Duration = Duration::from_secs(10);

/// Asks about the transactions whose ids begin with a prefix.
#[derive(Debug)]
pub struct Coordinators {
    admin: ProtocolClient,
    prefix: String,
    runtime: Runtime,
}

impl Coordinators {
    /// Makes a client; `prefix` is that of a sink.
    ///
    /// # Panics
    /// Panics if there is no runtime.
    pub fn of(brokers: &str, prefix: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let config = ProtocolConfig::from_properties([("bootstrap.servers", brokers)]).expect("addresses");
        let config = config.patience(Duration::from_secs(1));
        let admin = ProtocolClient::new(config).expect("a client");
        Self { admin, prefix: format!("{prefix}."), runtime: runtime.expect("a runtime") }
    }

    /// Returns the ids that have an open transaction; nothing while a broker does not answer.
    pub fn open(&self) -> Option<Vec<String>> {
        let listed = self.runtime.block_on(self.admin.list(&[State::Ongoing], WITHIN)).ok()?;
        let ids = listed.into_iter().map(|listed| listed.transactional_id);
        Some(ids.filter(|id| id.starts_with(&self.prefix)).collect())
    }

    /// Returns the number of the broker that decides about an open transaction, if there is one.
    pub fn of_an_open_transaction(&self) -> Option<usize> {
        let id = self.open()?.into_iter().next()?;
        let broker = self.runtime.block_on(self.admin.find_coordinator(&id, WITHIN)).ok()?;
        usize::try_from(broker).ok()
    }

    /// Aborts every transaction that is open, as brokers do in time. Returns how many.
    ///
    /// # Panics
    /// Panics if the broker does not let us.
    pub fn abort_what_is_open(&self) -> usize {
        let open = self.open().expect("the broker answers");
        let ids: Vec<&str> = open.iter().map(String::as_str).collect();
        let found = self.runtime.block_on(self.admin.describe(&ids, WITHIN)).expect("the broker answers");
        for (id, described) in &found {
            let identity = described.as_ref().expect("it is open").identity;
            let (producer_id, epoch) = (identity.producer_id, identity.epoch);
            let key = TransactionKey { transactional_id: id, producer_id, epoch };
            self.runtime.block_on(self.admin.end(key, Ending::Abort, WITHIN)).expect("it is aborted");
        }
        found.len()
    }

    /// Waits until brokers have dropped every transaction that was left open.
    ///
    /// # Panics
    /// Panics if they do not.
    pub fn wait_until_none_is_open(&self) {
        let is_dropped = || self.open().is_some_and(|open| open.is_empty());
        wait_until(PATIENCE, "the timeout of what is open", is_dropped).expect("brokers drop it");
    }
}

//! Looking behind commits in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::ErrorChain;
use tokio::task::{JoinError, JoinSet};

use super::error::ResolveError;
use super::resolver::Resolver;
use crate::sink::recovery::TransactionHandle;

/// What this process has committed and not seen, by transactional id: a job that starts again in it looks behind it first.
static UNSEEN: Mutex<BTreeMap<String, TransactionHandle>> = Mutex::new(BTreeMap::new());

fn unseen() -> MutexGuard<'static, BTreeMap<String, TransactionHandle>> {
    // Each change is one insertion or removal.
    UNSEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sees to it that committed transactions are seen, while others are written. Ends with itself.
#[derive(Debug, Default)]
pub(super) struct Watch {
    tasks: JoinSet<(TransactionHandle, Result<(), ResolveError>)>,
    /// By transactional id. An id is not used again before.
    unseen: BTreeSet<String>,
}

impl Watch {
    /// Begins to look behind the commit of a transaction.
    pub(super) fn begin(&mut self, resolver: &Resolver, handle: &TransactionHandle) {
        if handle.records == 0 {
            return;
        }
        unseen().insert(handle.transactional_id.clone(), handle.clone());
        self.unseen.insert(handle.transactional_id.clone());
        let (resolver, handle) = (resolver.clone(), handle.clone());
        self.tasks.spawn(async move {
            let seen = resolver.see_committed(&handle).await;
            match &seen {
                Ok(()) => drop(unseen().remove(&handle.transactional_id)),
                // Nobody may write for long; the next call fails by it.
                Err(error) => {
                    tracing::error!(error = %ErrorChain(error), "a committed transaction is not seen")
                }
            }
            (handle, seen)
        });
    }

    /// Whether nobody has to look behind the last transaction of an id any more.
    pub(super) fn is_seen(&self, id: &str) -> bool {
        !self.unseen.contains(id)
    }

    /// Takes over what has been seen meanwhile.
    ///
    /// # Errors
    /// A transaction is not seen. It is looked behind again.
    pub(super) fn check(&mut self, resolver: &Resolver) -> Result<(), ResolveError> {
        while let Some(ended) = self.tasks.try_join_next() {
            let (handle, seen) = match ended.map_err(JoinError::try_into_panic) {
                Ok(ended) => ended,
                Err(Ok(payload)) => panic::resume_unwind(payload),
                // The runtime ends: what is unseen stays so.
                Err(Err(_)) => continue,
            };
            match seen {
                Ok(()) => drop(self.unseen.remove(&handle.transactional_id)),
                Err(error) => {
                    self.begin(resolver, &handle);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Waits for those that are looked behind, but not for ever. What is not seen by then is told by the log, and looked behind
    /// at the next start.
    pub(super) async fn finish(&mut self, within: Duration) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(within, all).await.is_err() {
            let transactions = self.tasks.len();
            tracing::warn!(
                transactions,
                "committed, and not seen by readers yet: the next start looks for them"
            );
        }
    }
}

impl Resolver {
    /// Looks behind what this process has committed under names of this sink in a cluster, and did not see.
    pub(super) async fn see_unseen(&self, cluster_id: &str) -> Result<(), ResolveError> {
        let is_ours = |handle: &&TransactionHandle| {
            handle.cluster_id == cluster_id && self.naming.slot_of(&handle.transactional_id).is_some()
        };
        let left: Vec<TransactionHandle> = unseen().values().filter(is_ours).cloned().collect();
        for handle in left {
            self.see_committed(&handle).await?;
            unseen().remove(&handle.transactional_id);
        }
        Ok(())
    }
}

//! Looking behind commits in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::{Sleeper as _, TokioSleeper};
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

/// Before a transaction that was not seen in time is looked behind again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Sees to it that committed transactions are seen, while others are written or none is. Ends with itself.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Each ends when its transaction is seen, and with its id.
    tasks: JoinSet<String>,
    /// By transactional id. An id is not used again before.
    unseen: BTreeSet<String>,
    troubles: Troubles,
}

/// Why transactions are not seen yet, by transactional id: what the last look has told.
#[derive(Debug, Clone, Default)]
struct Troubles(Arc<Mutex<BTreeMap<String, ResolveError>>>);

impl Troubles {
    fn of_all(&self) -> MutexGuard<'_, BTreeMap<String, ResolveError>> {
        // Each change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Begins to look behind the commit of a transaction.
    pub(super) fn begin(&mut self, resolver: &Resolver, handle: &TransactionHandle) {
        if handle.records == 0 {
            return;
        }
        unseen().insert(handle.transactional_id.clone(), handle.clone());
        self.unseen.insert(handle.transactional_id.clone());
        let (resolver, handle, troubles) = (resolver.clone(), handle.clone(), self.troubles.clone());
        self.tasks.spawn(async move {
            until_seen(&resolver, &handle, &troubles).await;
            troubles.of_all().remove(&handle.transactional_id);
            unseen().remove(&handle.transactional_id);
            handle.transactional_id
        });
    }

    /// Whether nobody has to look behind the last transaction of an id any more.
    pub(super) fn is_seen(&self, id: &str) -> bool {
        !self.unseen.contains(id)
    }

    /// Takes over what has been seen meanwhile.
    ///
    /// # Errors
    /// A transaction was not seen in time, and is not yet. It is looked behind again and again, whoever asks or not.
    pub(super) fn check(&mut self) -> Result<(), ResolveError> {
        while let Some(ended) = self.tasks.try_join_next() {
            match ended.map_err(JoinError::try_into_panic) {
                Ok(id) => drop(self.unseen.remove(&id)),
                Err(Ok(payload)) => panic::resume_unwind(payload),
                // The runtime ends: what is unseen stays so.
                Err(Err(_)) => {}
            }
        }
        self.troubles.of_all().pop_first().map_or(Ok(()), |(_, trouble)| Err(trouble))
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

/// A broker that is away for longer than one look takes, or a right that is missing, is waited for: readers wait, too, and perhaps
/// nobody writes.
async fn until_seen(resolver: &Resolver, handle: &TransactionHandle, troubles: &Troubles) {
    let mut pause = FIRST_PAUSE;
    while let Err(error) = resolver.see_committed(handle).await {
        tracing::error!(error = %ErrorChain(&error), "a committed transaction is not seen");
        resolver.metrics.note_unseen(&handle.transactional_id);
        troubles.of_all().insert(handle.transactional_id.clone(), error);
        TokioSleeper.sleep(pause).await;
        pause = LONGEST_PAUSE.min(2 * pause);
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

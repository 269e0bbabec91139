//! Where a task sends its elements: to one task, by key to several, or through steps and branches first.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use levada_core::{Batch, Record, StreamElement};
use tokio::sync::mpsc;

use super::mark::Sorted;
use super::relay::Relay;
use crate::message::Stopped;
use crate::time::{TimeContext, TimeEvent, TimeTerms, Wanted};

/// Elements between two tasks: two batches and what stands between them keep both busy; the byte budget bounds the rest.
pub(crate) const CAPACITY: usize = 4;

/// What a record's key hashes to; the same for the same key, in every run of this version.
pub(crate) type KeyHash<T> = Arc<dyn Fn(&T) -> u64 + Send + Sync>;

/// Hashes a key. Not stored: after a restore, records of a key may go to another subtask.
pub(crate) fn hash_of(key: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The sending end of a task.
pub(crate) enum Outlet<T> {
    /// To the one task behind.
    Forward(mpsc::Sender<StreamElement<T>>),
    /// Records by their key, everything else to all.
    Exchange { to: Vec<mpsc::Sender<StreamElement<T>>>, key: KeyHash<T> },
    /// Records to one of them, everything else to all.
    Gather { to: Vec<mpsc::Sender<StreamElement<T>>>, at: usize },
    /// Through steps, or past a branch, in this task.
    Relay(Box<dyn Relay<T>>),
}

impl<T> fmt::Debug for Outlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outlet::Forward(_) => "Forward",
            Outlet::Exchange { .. } => "Exchange",
            Outlet::Gather { .. } => "Gather",
            Outlet::Relay(_) => "Relay",
        })
    }
}

impl<T: Send> Outlet<T> {
    /// Sends an element; waits while the receivers are busy.
    pub(crate) async fn send(&mut self, element: StreamElement<T>) -> Result<(), Stopped> {
        match self {
            Outlet::Forward(to) => to.send(element).await.map_err(|_| Stopped::PeerGone),
            Outlet::Exchange { to, key } => exchange(to, key, element).await,
            Outlet::Gather { to, at } => gather(to, *at, element).await,
            Outlet::Relay(relay) => relay.send(element).await,
        }
    }

    /// Begins to keep time, if a step of this task does that.
    pub(crate) fn begin_time(&mut self, ctx: &TimeContext) -> Option<TimeTerms> {
        match self {
            Outlet::Relay(relay) => relay.begin_time(ctx),
            Outlet::Forward(_) | Outlet::Exchange { .. } | Outlet::Gather { .. } => None,
        }
    }

    /// Tells the step of this task that keeps time, and sends what it says.
    pub(crate) async fn time(&mut self, event: TimeEvent, wanted: &mut Wanted) -> Result<(), Stopped> {
        match self {
            Outlet::Relay(relay) => relay.time(event, wanted).await,
            Outlet::Forward(_) | Outlet::Exchange { .. } | Outlet::Gather { .. } => Ok(()),
        }
    }

    /// Sends records, if there are any.
    pub(crate) async fn send_batch(&mut self, batch: Batch<T>) -> Result<(), Stopped> {
        match batch.is_empty() {
            true => Ok(()),
            false => self.send(StreamElement::Batch(batch)).await,
        }
    }
}

async fn exchange<T: Send>(
    to: &[mpsc::Sender<StreamElement<T>>],
    key: &KeyHash<T>,
    element: StreamElement<T>,
) -> Result<(), Stopped> {
    let gone = |_| Stopped::PeerGone;
    match Sorted::from(element) {
        Sorted::Batch(batch) => {
            for (part, receiver) in deal(batch, to.len(), key).into_iter().zip(to) {
                if !part.is_empty() {
                    receiver.send(StreamElement::Batch(part)).await.map_err(gone)?;
                }
            }
        }
        // Its key is not known, and one place is as good as another.
        Sorted::Refused(refused) => {
            if let Some(first) = to.first() {
                first.send(StreamElement::Refused(refused)).await.map_err(gone)?;
            }
        }
        Sorted::Mark(mark) => {
            for receiver in to {
                receiver.send(mark.element()).await.map_err(gone)?;
            }
        }
        Sorted::Foreign => {}
    }
    Ok(())
}

async fn gather<T: Send>(
    to: &[mpsc::Sender<StreamElement<T>>],
    at: usize,
    element: StreamElement<T>,
) -> Result<(), Stopped> {
    let gone = |_| Stopped::PeerGone;
    match Sorted::from(element) {
        Sorted::Mark(mark) => {
            for receiver in to {
                receiver.send(mark.element()).await.map_err(gone)?;
            }
        }
        Sorted::Batch(batch) => to[at].send(StreamElement::Batch(batch)).await.map_err(gone)?,
        Sorted::Refused(refused) => to[at].send(StreamElement::Refused(refused)).await.map_err(gone)?,
        Sorted::Foreign => {}
    }
    Ok(())
}

/// Parts a batch by key; the order within a part is that of the batch.
fn deal<T>(batch: Batch<T>, receivers: usize, key: &KeyHash<T>) -> Vec<Batch<T>> {
    let (parts, records) = batch.into_parts();
    let mut dealt: Vec<Vec<Record<T>>> = (0..receivers).map(|_| Vec::new()).collect();
    for record in records {
        // The remainder is below the number of receivers.
        let receiver = (key(&record.item) % receivers as u64) as usize;
        dealt[receiver].push(record);
    }
    dealt.into_iter().map(|records| parts.with_records(records)).collect()
}

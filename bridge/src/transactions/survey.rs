//! What became of each transaction, and what the next start would do with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use levada_core::template::Fate;
use levada_core::{CheckpointId, Clock as _, SystemClock, Timestamp};
use levada_engine::store::Store;
use levada_kafka::protocol::{Described, ProtocolClient, State};
use levada_kafka::sink::recovery::{
    Plan, SlotName, Standing as Decided, TransactionHandle, TransactionNaming, plan_by_fates,
};
use levada_kafka::sink::two_phase::Resolver;

use super::stored::{self, Standing, Stored, StoredCheckpoint};
use super::{Failure, Place};

/// The sink's own margin, unless it is told another one.
const MARGIN: Duration = Duration::from_secs(10);

/// What the next start would do with a transaction, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Would {
    Commit,
    Abort(&'static str),
    Nothing(&'static str),
    Stop(&'static str),
}

/// One transaction.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: String,
    /// The newest checkpoint that names it, with its place among the store's.
    pub(super) named: Option<Named>,
    /// What its coordinator says of the id now.
    pub(super) told: Option<Described>,
    pub(super) would: Would,
}

/// What a checkpoint knows of a transaction.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) checkpoint: CheckpointId,
    pub(super) standing: Standing,
    pub(super) handle: TransactionHandle,
    pub(super) fate: Fate,
    /// Whether the checkpoint as a whole can be committed.
    pub(super) is_whole: bool,
}

/// Everything that is known, changed by nobody.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) stored: Stored,
    pub(super) found: Vec<Found>,
    pub(super) now: Timestamp,
}

/// Asks store and brokers.
pub(super) async fn survey(
    place: &Place,
    store: &Store,
    client: &ProtocolClient,
    is_all: bool,
) -> Result<Survey, Failure> {
    let stored = stored::read(store).await?;
    let resolver = resolver(place, client)?;
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for checkpoint in &stored.checkpoints {
        for (named, would) in of_checkpoint(checkpoint, &resolver).await? {
            let id = named.handle.transactional_id.clone();
            // Carried on from checkpoint to checkpoint, it counts for the newest.
            if seen.insert((id.clone(), named.handle.epoch)) {
                found.push(Found { id, named: Some(named), told: None, would });
            }
        }
    }
    let ids: Vec<&str> = found.iter().map(|found| found.id.as_str()).collect();
    let mut known = place.known_to_brokers(client, &ids, is_all).await?;
    for found in &mut found {
        found.told = known.get(&found.id).cloned().flatten();
    }
    let is_named = |told: &Option<Described>, id: &str| {
        let epoch = told.as_ref().map(|told| told.identity.epoch);
        seen.iter().any(|(named, of)| named == id && Some(*of) == epoch)
    };
    known.retain(|id, told| told.is_some() && !is_named(told, id) && !is_over_and_named(&seen, id, told));
    found.extend(left_over(place, &stored, known));
    Ok(Survey { stored, found, now: SystemClock.now() })
}

/// An id of a handle whose transaction is over, in the epoch behind it: nothing of its own.
fn is_over_and_named(seen: &BTreeSet<(String, i16)>, id: &str, told: &Option<Described>) -> bool {
    let is_open = told.as_ref().is_some_and(|told| is_open(told.state));
    !is_open && seen.iter().any(|(named, _)| named == id)
}

pub(super) fn is_open(state: State) -> bool {
    matches!(state, State::Ongoing | State::PrepareCommit | State::PrepareAbort | State::PrepareEpochFence)
}

/// What asks and ends by handles. It fences nothing, so the job's and the sink's names do not matter.
pub(super) fn resolver(place: &Place, client: &ProtocolClient) -> Result<Resolver, Failure> {
    let naming = TransactionNaming::new(&place.prefix, "any", "any")?;
    Ok(Resolver::new(client.clone(), naming, Arc::new(SystemClock), MARGIN))
}

async fn of_checkpoint(
    checkpoint: &StoredCheckpoint,
    resolver: &Resolver,
) -> Result<Vec<(Named, Would)>, Failure> {
    // Without records there is no transaction: whatever has its id is another one.
    let stored: Vec<_> = checkpoint
        .transactions
        .iter()
        .map(|(_, stored)| stored)
        .filter(|stored| stored.handle.records > 0)
        .collect();
    let handles: Vec<_> = stored.iter().map(|stored| stored.handle.clone()).collect();
    if handles.is_empty() {
        return Ok(Vec::new());
    }
    let fates = resolver.inspect(&handles).await?;
    let covering = stored.iter().map(|stored| stored.checkpoint);
    let covered: Vec<_> = covering.zip(fates).collect();
    let plan = plan_by_fates(&covered, Decided::Complete, checkpoint.previous);
    let named = handles.into_iter().zip(covered).map(|(handle, (covering, fate))| {
        let StoredCheckpoint { id, previous, standing, .. } = checkpoint;
        let would = match standing {
            Standing::Resolved => Would::Nothing("its checkpoint is resolved"),
            Standing::Superseded => Would::Nothing("a newer checkpoint is complete"),
            Standing::RolledBack if fate == Fate::Committed => Would::Stop("rolled back, and yet visible"),
            Standing::RolledBack => Would::Abort("its checkpoint is rolled back"),
            Standing::Waiting => would_with_waiting(&plan, (covering, fate), *previous),
        };
        let is_whole = plan == Plan::CommitAll;
        (Named { checkpoint: *id, standing: *standing, handle, fate, is_whole }, would)
    });
    Ok(named.collect())
}

/// As the decision over the whole checkpoint goes.
fn would_with_waiting(
    plan: &Plan,
    (covering, fate): (CheckpointId, Fate),
    previous: Option<CheckpointId>,
) -> Would {
    match plan {
        Plan::CommitAll if fate == Fate::Committed => Would::Nothing("visible already"),
        Plan::CommitAll => Would::Commit,
        Plan::RollBackAll if previous.is_none() => {
            Would::Stop("a part of its checkpoint is gone or too near its timeout, and there is none before")
        }
        // The one before covers it, too.
        Plan::RollBackAll if Some(covering) <= previous => Would::Commit,
        Plan::RollBackAll => Would::Abort("a part of its checkpoint is gone or too near its timeout"),
        Plan::Torn { .. } => Would::Stop("torn: some are visible, others gone"),
        _ => Would::Stop("nobody tells what became of some"),
    }
}

fn left_over(place: &Place, stored: &Stored, known: BTreeMap<String, Option<Described>>) -> Vec<Found> {
    let namings: Vec<_> = stored
        .sinks
        .iter()
        .filter_map(|(job, uid)| TransactionNaming::new(&place.prefix, job, uid).ok())
        .collect();
    let attempt = stored.newest.as_ref().map_or(0, |newest| newest.attempt);
    let would = |id: &str, told: &Option<Described>| {
        let slot: Option<SlotName> = namings.iter().find_map(|naming| naming.slot_of(id));
        match (slot, told) {
            (None, _) => Would::Nothing("of no job in this store"),
            (Some(slot), _) if slot.attempt > attempt => Would::Nothing("of an attempt above the store's"),
            (Some(slot), _) if stored.holder.is_some() && slot.attempt == attempt => {
                Would::Nothing("of the job that runs")
            }
            (_, Some(told)) if is_open(told.state) => Would::Abort("no checkpoint names it"),
            _ => Would::Nothing("it is over"),
        }
    };
    let found = known.into_iter().map(|(id, told)| Found { would: would(&id, &told), id, named: None, told });
    found.collect()
}

//! The same for programs. Fields are only ever added.

use std::collections::BTreeMap;

use levada_core::Timestamp;
use serde::Serialize;

use super::end::Ending;
use super::list::{Times, identity, partitions, state};
use super::stored::Standing;
use super::survey::{Found, Survey, Would};

#[derive(Serialize)]
struct Document {
    /// Whether the job runs.
    running: bool,
    newest_checkpoint: Option<String>,
    transactions: Vec<Transaction>,
    damages: Vec<String>,
}

#[derive(Serialize)]
struct Transaction {
    id: String,
    producer_id: Option<i64>,
    epoch: Option<i16>,
    /// pending, expiring, committed, aborted, unknown, open, gone, or a state of the protocol.
    state: String,
    age_seconds: Option<u64>,
    /// None: for ever, or not open.
    left_seconds: Option<u64>,
    has_timeout: bool,
    /// None: no checkpoint names it.
    records: Option<u64>,
    checkpoint: Option<String>,
    /// waiting, resolved, superseded, rolled_back.
    checkpoint_status: Option<&'static str>,
    partitions: BTreeMap<String, Vec<i32>>,
    /// commit, abort, nothing, stop.
    next_start: &'static str,
    reason: Option<&'static str>,
}

#[derive(Serialize)]
struct EndDocument {
    ending: String,
    /// Whether it was carried out, or would be with --yes.
    done: bool,
    transactions: Vec<Ended>,
}

#[derive(Serialize)]
struct Ended {
    id: String,
    records: Option<u64>,
    /// False: it was so before.
    changed: bool,
}

fn transaction(found: &Found, now: Timestamp) -> Transaction {
    let (named, times) = (found.named.as_ref(), Times::of(found, now));
    let (next_start, reason) = match found.would {
        Would::Commit => ("commit", None),
        Would::Abort(why) => ("abort", Some(why)),
        Would::Nothing(why) => ("nothing", Some(why)),
        Would::Stop(why) => ("stop", Some(why)),
    };
    let of_topic = |(topic, numbers): (&String, &std::collections::BTreeSet<i32>)| {
        (topic.clone(), numbers.iter().copied().collect())
    };
    Transaction {
        id: found.id.clone(),
        producer_id: identity(found).map(|(producer_id, _)| producer_id),
        epoch: identity(found).map(|(_, epoch)| epoch),
        state: state(found),
        age_seconds: times.age.map(|age| age.as_secs()),
        left_seconds: times.left.flatten().map(|left| left.as_secs()),
        has_timeout: times.left != Some(None),
        records: named.map(|named| named.handle.records),
        checkpoint: named.map(|named| named.checkpoint.to_string()),
        checkpoint_status: named.map(|named| match named.standing {
            Standing::Waiting => "waiting",
            Standing::Resolved => "resolved",
            Standing::Superseded => "superseded",
            Standing::RolledBack => "rolled_back",
        }),
        partitions: partitions(found).iter().map(of_topic).collect(),
        next_start,
        reason,
    }
}

pub(super) fn document(survey: &Survey) -> serde_json::Result<String> {
    let stored = &survey.stored;
    written(&Document {
        running: stored.holder.is_some(),
        newest_checkpoint: stored.checkpoints.first().map(|checkpoint| checkpoint.id.to_string()),
        transactions: survey.found.iter().map(|found| transaction(found, survey.now)).collect(),
        damages: stored.damages.iter().map(|damage| format!("{damage} {}", damage.flaw)).collect(),
    })
}

pub(super) fn ended(ending: Ending, rows: &[(&Found, bool)], done: bool) -> serde_json::Result<String> {
    let ended = |(found, changed): &(&Found, bool)| Ended {
        id: found.id.clone(),
        records: found.named.as_ref().map(|named| named.handle.records),
        changed: *changed,
    };
    let transactions = rows.iter().map(ended).collect();
    written(&EndDocument { ending: ending.to_string(), done, transactions })
}

fn written(document: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

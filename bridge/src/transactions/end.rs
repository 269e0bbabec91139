//! `levada transactions commit` and `abort`.

use std::collections::BTreeSet;
use std::fmt;

use levada_core::CheckpointId;
use levada_engine::store::{Lease, Store, TakeOver};
use levada_kafka::protocol::{self, ProtocolClient, TransactionAdmin as _, TransactionKey};

use super::cluster::asking;
use super::json;
use super::refuse::{Checked, check};
use super::stored::Standing;
use super::survey::{Found, Survey, resolver, survey};
use super::{End, Failure, Report, Which};
use crate::checkpoint::counted;
use crate::exit::Exit;

/// How long the end of one transaction that no checkpoint names may take.
const WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// How transactions are to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Commit,
    Abort,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Ending::Commit { "commit" } else { "abort" })
    }
}

impl Ending {
    pub(super) fn past(self) -> &'static str {
        if self == Ending::Commit { "committed" } else { "aborted" }
    }
}

pub(super) async fn end(arguments: &End, ending: Ending) -> Result<Report, Failure> {
    let client = arguments.place.client()?;
    // What is not there is not made.
    let store = Store::open_to_read(&arguments.place.store)?;
    let before = survey(&arguments.place, &store, &client, true).await?;
    let owner = owner(&before)?;
    chosen(arguments, ending, &before)?;
    if !arguments.yes {
        let text = told(arguments, ending, &before, false)?;
        return Ok(Report { text, exit: Exit::Config });
    }
    let store = Store::open(&arguments.place.store).await?;
    let lease = store.take_lease(&owner, TakeOver::IfAbandoned).await?;
    let beating = tokio::spawn(lease.heartbeat().keep_beating());
    let ended = under_lease(arguments, ending, &store, &client, &lease).await;
    beating.abort();
    lease.release().await;
    ended
}

/// The job whose name the lease is taken under: a start takes the newest checkpoint for its own by it.
fn owner(before: &Survey) -> Result<String, Failure> {
    if let Some(holder) = &before.stored.holder {
        return Err(Failure::Running { owner: holder.owner.clone(), by: holder.to_string() });
    }
    let newest = before.stored.newest.as_ref().ok_or(Failure::Empty)?;
    Ok(newest.owner.clone())
}

/// Nobody else appends now, so what is found stays as it is, but for timeouts.
async fn under_lease(
    arguments: &End,
    ending: Ending,
    store: &Store,
    client: &ProtocolClient,
    lease: &Lease,
) -> Result<Report, Failure> {
    let now = survey(&arguments.place, store, client, true).await?;
    for found in chosen(arguments, ending, &now)? {
        lease.confirm().await?;
        carry_out(arguments, ending, client, found).await?;
    }
    Ok(Report { text: told(arguments, ending, &now, true)?, exit: Exit::Done })
}

/// Those that are to be ended, oldest checkpoint first. All of them are checked before any is.
fn chosen<'s>(arguments: &End, ending: Ending, survey: &'s Survey) -> Result<Vec<&'s Found>, Failure> {
    let mut due = Vec::new();
    let mut refusals = Vec::new();
    for found in wanted(&arguments.which, ending, survey)? {
        match check(found, ending, arguments.force) {
            Checked::Due => due.push(found),
            Checked::Done => {}
            Checked::Refused(why) => refusals.push(why),
        }
    }
    // Over what is rolled back it is decided.
    let undecided = due
        .iter()
        .filter_map(|found| found.named.as_ref())
        .filter(|named| named.standing != Standing::RolledBack);
    let checkpoints: BTreeSet<CheckpointId> = undecided.map(|named| named.checkpoint).collect();
    refusals.extend(checkpoints.iter().filter_map(|checkpoint| others(arguments, survey, *checkpoint)));
    if refusals.is_empty() { Ok(due) } else { Err(Failure::Refused(refusals)) }
}

fn wanted<'s>(which: &Which, ending: Ending, survey: &'s Survey) -> Result<Vec<&'s Found>, Failure> {
    let is_wanted = |found: &&Found| match (&which.id, which.checkpoint) {
        (Some(id), _) => found.id == *id,
        (None, Some(checkpoint)) => found.named.as_ref().is_some_and(|named| named.checkpoint == checkpoint),
        (None, None) => false,
    };
    let mut wanted: Vec<_> = survey.found.iter().filter(is_wanted).collect();
    if wanted.len() > 1 && which.id.is_some() {
        // The id has another transaction by now: what a checkpoint names is committed, what is open is aborted.
        wanted.retain(|found| found.named.is_some() == (ending == Ending::Commit));
    }
    match (wanted.is_empty(), &which.id, which.checkpoint) {
        (true, Some(id), _) => Err(Failure::NoSuchTransaction(id.clone())),
        (true, None, Some(checkpoint)) => Err(Failure::NoSuchCheckpoint(checkpoint)),
        _ => Ok(wanted),
    }
}

/// Sinks of the same checkpoint that hold something back in another system: a start decides over all together.
fn others(arguments: &End, survey: &Survey, checkpoint: CheckpointId) -> Option<String> {
    let stored = survey.stored.checkpoints.iter().find(|stored| stored.id == checkpoint)?;
    if arguments.force || stored.others.is_empty() {
        return None;
    }
    let names = stored.others.join(", ");
    Some(format!(
        "checkpoint {checkpoint} also holds back what is not Kafka's, of {names}, and a start decides over all together; \
         --force does it all the same"
    ))
}

async fn carry_out(
    arguments: &End,
    ending: Ending,
    client: &ProtocolClient,
    found: &Found,
) -> Result<(), Failure> {
    if let Some(named) = &found.named {
        let resolver = resolver(&arguments.place, client)?;
        match ending {
            Ending::Commit => resolver.commit(&named.handle).await?,
            Ending::Abort => resolver.abort(&named.handle).await?,
        }
        return Ok(());
    }
    // `check` lets no other one pass.
    let Some(told) = &found.told else { return Ok(()) };
    let key = TransactionKey {
        transactional_id: &found.id,
        producer_id: told.identity.producer_id,
        epoch: told.identity.epoch,
    };
    let aborted = client.end(key, protocol::Ending::Abort, WITHIN).await;
    aborted.map_err(asking("abort a transaction that no checkpoint names"))
}

fn told(arguments: &End, ending: Ending, survey: &Survey, is_done: bool) -> Result<String, Failure> {
    let mut rows = Vec::new();
    for found in wanted(&arguments.which, ending, survey)? {
        let is_due = check(found, ending, arguments.force) == Checked::Due;
        rows.push((found, is_due));
    }
    if arguments.place.json {
        return Ok(json::ended(ending, &rows, is_done)?);
    }
    let mut text = String::new();
    for (found, is_due) in &rows {
        let records = found.named.as_ref().map_or_else(
            || "records that no checkpoint counts".to_owned(),
            |named| counted(named.handle.records, "record"),
        );
        let what = match (is_due, is_done) {
            (false, _) => format!("was {} before", ending.past()),
            (true, true) => ending.past().to_owned(),
            (true, false) => format!("would be {}", ending.past()),
        };
        text.push_str(&format!("{what}: {}, {records}\n", found.id));
    }
    if !is_done {
        text.push_str(&format!("\nNothing was changed. The same with --yes will {ending} them.\n"));
    }
    Ok(text)
}

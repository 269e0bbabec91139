//! `levada transactions list`.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_core::Timestamp;
use levada_core::template::Fate;
use levada_engine::store::Store;
use levada_kafka::protocol::State;
use levada_kafka::sink::recovery::Partitions;

use super::json;
use super::stored::Standing;
use super::survey::{Found, Survey, Would, survey};
use super::{Failure, List, Report};
use crate::checkpoint::columns::{Columns, Side};
use crate::checkpoint::{counted, damage_lines};
use crate::exit::Exit;

/// The timeout that exempts a transaction from the brokers' scan.
const NEVER: Duration = Duration::from_millis(i32::MAX as u64);

pub(super) async fn list(arguments: &List) -> Result<Report, Failure> {
    let client = arguments.place.client()?;
    let store = Store::open_to_read(&arguments.place.store)?;
    let survey = survey(&arguments.place, &store, &client, arguments.all).await?;
    let text = if arguments.place.json { json::document(&survey)? } else { text(&survey) };
    let exit = if survey.stored.damages.is_empty() { Exit::Done } else { Exit::Damaged };
    Ok(Report { text, exit })
}

fn text(survey: &Survey) -> String {
    let mut columns = Columns::new([
        ("ID", Side::Left),
        ("PRODUCER", Side::Right),
        ("EPOCH", Side::Right),
        ("STATE", Side::Left),
        ("AGE", Side::Right),
        ("LEFT", Side::Right),
        ("RECORDS", Side::Right),
        ("CHECKPOINT", Side::Left),
        ("PARTITIONS", Side::Left),
        ("THE NEXT START", Side::Left),
    ]);
    survey.found.iter().for_each(|found| columns.add(cells(found, survey.now)));
    let rows = if survey.found.is_empty() { String::new() } else { format!("{}\n", columns.text()) };
    format!("{rows}{}{}", damage_lines(&survey.stored.damages), summary(survey))
}

fn cells(found: &Found, now: Timestamp) -> [String; 10] {
    let named = found.named.as_ref();
    let identity = identity(found);
    let times = Times::of(found, now);
    let number = |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
    [
        found.id.clone(),
        number(identity.map(|(producer_id, _)| producer_id)),
        number(identity.map(|(_, epoch)| epoch.into())),
        state(found),
        times.age.map_or_else(String::new, rounded),
        times.left(),
        named.map_or_else(String::new, |named| named.handle.records.to_string()),
        named.map_or_else(String::new, |named| format!("{}{}", named.checkpoint, remark(named.standing))),
        list_of(partitions(found)),
        would(found.would),
    ]
}

/// The producer id and epoch of the transaction: the handle's, or what the id has now.
pub(super) fn identity(found: &Found) -> Option<(i64, i16)> {
    let of_handle = found.named.as_ref().map(|named| (named.handle.producer_id, named.handle.epoch));
    of_handle.or_else(|| found.told.as_ref().map(|told| (told.identity.producer_id, told.identity.epoch)))
}

/// What became of a transaction: of one with a handle by all that is known, else as the coordinator says.
pub(super) fn state(found: &Found) -> String {
    let told = found.told.as_ref().map(|told| told.state);
    match (found.named.as_ref().map(|named| named.fate), told) {
        (Some(Fate::Pending), _) => "pending".to_owned(),
        (Some(Fate::Expiring), _) => "expiring".to_owned(),
        (Some(Fate::Committed), _) => "committed".to_owned(),
        (Some(Fate::Aborted), _) => "aborted".to_owned(),
        (Some(_), _) => "unknown".to_owned(),
        (None, Some(State::Ongoing)) => "open".to_owned(),
        (None, Some(State::CompleteCommit)) => "committed".to_owned(),
        (None, Some(State::CompleteAbort)) => "aborted".to_owned(),
        (None, Some(other)) => format!("{other:?}"),
        (None, None) => "gone".to_owned(),
    }
}

pub(super) fn partitions(found: &Found) -> &Partitions {
    static NONE: Partitions = BTreeMap::new();
    match (&found.named, &found.told) {
        (Some(named), _) => &named.handle.partitions,
        (None, Some(told)) => &told.partitions,
        (None, None) => &NONE,
    }
}

/// How old a transaction is, and what is left to it.
pub(super) struct Times {
    pub(super) age: Option<Duration>,
    /// `None` within: for ever. Only while it is open.
    pub(super) left: Option<Option<Duration>>,
}

impl Times {
    pub(super) fn of(found: &Found, now: Timestamp) -> Self {
        let of_handle = found.named.as_ref().map(|named| (named.handle.start, named.handle.timeout));
        let of_id = found.told.as_ref().map(|told| (told.start, told.timeout));
        let Some((Some(start), timeout)) = of_handle.or(of_id) else { return Self { age: None, left: None } };
        let is_open = match &found.named {
            Some(named) => matches!(named.fate, Fate::Pending | Fate::Expiring),
            None => found.told.as_ref().is_some_and(|told| told.state == State::Ongoing),
        };
        let left = (timeout != NEVER).then(|| start.saturating_add(timeout).since(now));
        Self { age: Some(now.since(start)), left: is_open.then_some(left) }
    }

    fn left(&self) -> String {
        match self.left {
            None => String::new(),
            Some(None) => "for ever".to_owned(),
            Some(Some(left)) => rounded(left),
        }
    }
}

fn rounded(time: Duration) -> String {
    humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
}

fn remark(standing: Standing) -> &'static str {
    match standing {
        Standing::Waiting => "",
        Standing::Resolved => " (resolved)",
        Standing::Superseded => " (superseded)",
        Standing::RolledBack => " (rolled back)",
    }
}

fn list_of(partitions: &Partitions) -> String {
    let topics = partitions.iter().map(|(topic, partitions)| {
        let numbers: Vec<_> = partitions.iter().map(i32::to_string).collect();
        format!("{topic}[{}]", numbers.join(","))
    });
    topics.collect::<Vec<_>>().join(" ")
}

pub(super) fn would(would: Would) -> String {
    match would {
        Would::Commit => "commits it".to_owned(),
        Would::Abort(why) => format!("aborts it: {why}"),
        Would::Nothing(why) => format!("does nothing: {why}"),
        Would::Stop(why) => format!("STOPS: {why}"),
    }
}

fn summary(survey: &Survey) -> String {
    let stored = &survey.stored;
    let mut text = counted(survey.found.len() as u64, "transaction");
    match stored.checkpoints.first() {
        Some(newest) => {
            text.push_str(&format!(", the newest checkpoint is {} of job {:?}", newest.id, newest.job))
        }
        None => text.push_str(", no checkpoint"),
    }
    if let Some(holder) = &stored.holder {
        text.push_str(&format!("; the job runs: {holder}"));
    }
    for checkpoint in stored.checkpoints.iter().filter(|checkpoint| !checkpoint.others.is_empty()) {
        let names = checkpoint.others.join(", ");
        text.push_str(&format!(
            "\ncheckpoint {} also holds back what is not Kafka's, of {names}: a start decides over all together",
            checkpoint.id
        ));
    }
    text + "\n"
}

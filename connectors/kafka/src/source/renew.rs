//! Looking after the client of the consumer's thread, and going on with a new one where it is of no use any more.
//!
//! ```text
//!   old client ── closed on a thread of its own, what it had fetched ahead is dropped
//!   new client ◀── every split, at its own position; those that rest, or all when held back, paused
//! ```
//!
//! The positions are ours and stand behind the last record that was appended, so nothing is lost and nothing comes twice. The
//! readings stay the same: for `poll` nothing has happened.

use std::time::{Duration, Instant};

use levada_core::time::SplitEvent;
use rdkafka::Offset;
use rdkafka::consumer::Consumer;

use super::client::{at_offsets, partitions};
use super::contact::OutOfContact;
use super::error::ReadError;
use super::reader::{Flow, IDLE, Reader};

/// After so long without a record the client is asked for a sign of life: it tells no error of a broker that keeps its
/// connections and answers nothing.
const QUIET: Duration = Duration::from_secs(10);

/// What was seen of the client at the last looks.
#[derive(Default)]
pub(super) struct Looks {
    last: Option<Instant>,
    /// How many records had been read then.
    records: u64,
    /// When there was a sign of life last.
    alive: Option<Instant>,
    last_probe: Option<Instant>,
}

impl Looks {
    /// Notes a look, and tells whether records have come since the one before.
    fn look(&mut self, records: u64) -> bool {
        self.last = Some(Instant::now());
        std::mem::replace(&mut self.records, records) != records
    }

    fn is_quiet(&mut self) -> bool {
        self.alive.get_or_insert_with(Instant::now).elapsed() >= QUIET
    }
}

impl Reader {
    /// About once a second looks whether the client knows brokers, and, after one could not be reached or when nothing has come
    /// for a while, whether any can, until one can.
    ///
    /// The client itself tells that all are down only when it has tried all, and that one is back only by the next
    /// record, which in a quiet topic may never come.
    pub(super) fn look_after_client(&mut self) -> Result<(), ReadError> {
        let is_in_doubt = self.suspects_outage || self.status.is_cut_off();
        let last = if is_in_doubt { self.looks.last_probe } else { self.looks.last };
        if last.is_some_and(|last| last.elapsed() < IDLE) {
            return Ok(());
        }
        let has_read = self.looks.look(self.splits.records());
        let knows_broker = self.client.knows_broker();
        if self.contact.has_let_go(knows_broker) {
            self.set_cut_off(true);
            return self.renew(OutOfContact::HasLetGo);
        }
        if has_read {
            self.in_contact();
        } else if knows_broker && !is_in_doubt {
            self.contact.answered(); // an end of a partition may have ended the doubt
        }
        if is_in_doubt || !knows_broker || self.looks.is_quiet() { self.probe_brokers() } else { Ok(()) }
    }

    fn in_contact(&mut self) {
        self.contact.answered();
        self.looks.alive = Some(Instant::now());
    }

    /// Asks the client for brokers.
    fn probe_brokers(&mut self) -> Result<(), ReadError> {
        let Some(reading) = self.splits.iter().next() else { return Ok(()) };
        let answer = self.client.consumer().fetch_metadata(Some(&reading.split.stream), IDLE / 4);
        self.looks.last_probe = Some(Instant::now());
        self.suspects_outage = false;
        let has_answer = answer.is_ok_and(|told| !told.brokers().is_empty());
        let knows_broker = self.client.knows_broker();
        let is_cut_off = !has_answer || !knows_broker;
        self.set_cut_off(is_cut_off);
        if !is_cut_off {
            self.in_contact();
            return Ok(());
        }
        match self.contact.unanswered(knows_broker, Instant::now()) {
            Some(silent) => self.renew(OutOfContact::IsSilent(silent)),
            None => Ok(()),
        }
    }

    fn set_cut_off(&mut self, is_cut_off: bool) {
        if self.status.set_cut_off(is_cut_off) {
            self.building.tell_of_all(&self.splits, SplitEvent::BrokerAway);
        }
    }

    /// Goes on with a new client.
    fn renew(&mut self, why: OutOfContact) -> Result<(), ReadError> {
        // Splits that have ended are unassigned with it: they are the old client's.
        self.close_batch()?;
        let client = self.client.anew().map_err(ReadError::of_creation)?;
        std::mem::replace(&mut self.client, client).retire();
        self.contact.renewed(why);
        // What it reported was about the old client.
        self.suspects_outage = false;
        self.retry_at = None;
        self.splits.iter_mut().for_each(|reading| reading.is_failing = false);
        self.splits.forget_keys();
        self.assign_all()?;
        self.status.count_renewal();
        tracing::warn!(reason = %why, splits = self.splits.iter().count(), "a new Kafka client takes the place of the one that read");
        Ok(())
    }

    /// Assigns every split to a client that has none.
    fn assign_all(&self) -> Result<(), ReadError> {
        let offset = |next| Offset::Offset(i64::try_from(next).unwrap_or(i64::MAX));
        let all = at_offsets(self.splits.iter().map(|reading| (&reading.split, offset(reading.next))))?;
        if all.count() == 0 {
            return Ok(());
        }
        let assigned = self.client.consumer().incremental_assign(&all);
        assigned.map_err(|cause| ReadError::Call { doing: "assign partitions", cause })?;
        let is_held_back = matches!(self.flow, Flow::HeldBack);
        let paused = self.splits.iter().filter(|reading| reading.is_resting() || is_held_back);
        self.pause_list(&partitions(paused.map(|reading| &reading.split))?)
    }
}

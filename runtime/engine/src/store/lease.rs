//! Holding the store: taking it, appending to it, and telling others that one lives.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::{CheckpointId, Timestamp};
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Store;
use super::backend::{is_taken, unavailable};
use super::entry::{Entry, EntryKind, LeaseRecord, milliseconds};
use super::error::{Holder, StoreError};
use super::failpoint::is_answer_lost;
use super::frame::{self, Flaw};
use super::log::{self, Damage, Piece};
use super::manifest::Manifest;
use super::part::PartHome;
use super::process::ProcessId;
use crate::failpoint::fail_point;

/// How often the holder says that it lives.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// How long after its last heartbeat a holder on another machine counts as living: three of them.
pub const HEARTBEAT_LIMIT: Duration = Duration::from_secs(15);

const HEARTBEATS: &str = "heartbeat";

/// Whether a store that is held is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeOver {
    /// Only if its holder lives no longer.
    #[default]
    IfAbandoned,
    /// In any case: the holder's next append fails.
    Always,
}

/// The right to append, until somebody takes over. One process has one.
#[derive(Debug)]
pub struct Lease {
    store: Store,
    attempt: u64,
    record: LeaseRecord,
    writer: String,
    /// The highest number that this process knows to be taken.
    known: u64,
    next_nonce: u64,
    /// Checkpoints whose append did not end plainly: their entry may exist, so their parts stay.
    unsettled: BTreeSet<CheckpointId>,
}

/// Says that the holder of a lease lives. Advice for a second process, no part of safety.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    store: Store,
    attempt: u64,
    writer: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Beat {
    writer: String,
    #[serde(with = "milliseconds")]
    at: Timestamp,
    /// The holder ended in good order.
    released: bool,
}

/// What became of an entry that was to be created.
enum Put {
    /// It is there.
    Created,
    /// The number was taken by an earlier entry of the same writer, whose answer was lost.
    TakenByOneself(Entry),
    /// The number was taken by somebody else.
    Taken,
}

/// Remembers the writers of leases that nobody in this process holds: their put failed or was dropped, and the entry may
/// exist; or they were given up, and that could not be written. Without it such a lease would be held by a process that
/// lives, this one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orphans(Arc<Mutex<BTreeSet<String>>>);

impl Orphans {
    /// Held for a look or an insertion, never across an await.
    fn writers(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, writer: &str) -> bool {
        self.writers().contains(writer)
    }
}

/// Makes its writer an orphan when it is dropped, unless the lease was taken.
struct Candidate {
    orphans: Orphans,
    writer: Option<String>,
}

impl Drop for Candidate {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            self.orphans.writers().insert(writer);
        }
    }
}

/// Tells who holds the store, if its holder may still live.
///
/// On the same machine its process decides, elsewhere the age of its last sign of life, by the two machines' clocks.
fn living_holder(
    lease: Option<(&Entry, &LeaseRecord)>,
    beat: Option<&Beat>,
    observer: &ProcessId,
    now: Timestamp,
) -> Option<Holder> {
    let (entry, record) = lease?;
    let beat = beat.filter(|beat| beat.writer == entry.writer);
    if beat.is_some_and(|beat| beat.released) {
        return None;
    }
    let seen = beat.map_or(record.at, |beat| beat.at.max(record.at));
    let age = now.0.saturating_sub(seen.0);
    let limit = i64::try_from(HEARTBEAT_LIMIT.as_millis()).unwrap_or(i64::MAX);
    let lives = record.process.lives(observer).unwrap_or(age < limit);
    lives.then(|| record.holder(entry.number))
}

impl Store {
    /// Takes the store: from here on only this process can append. Its entry's number is the attempt.
    ///
    /// # Errors
    /// [`StoreError::Held`] when its holder lives and is not to be taken over; or the store cannot be used. Cancel safe: a
    /// lease that a failed or dropped call left behind does not stand in the way of the next one on this value or a clone.
    pub async fn take_lease(&self, owner: &str, how: TakeOver) -> Result<Lease, StoreError> {
        let writer = format!("{:032x}", rand::random::<u128>());
        let mut candidate = Candidate { orphans: self.orphans.clone(), writer: Some(writer.clone()) };
        loop {
            let log = self.log().await?;
            if how == TakeOver::IfAbandoned {
                self.refuse_if_held(&log).await?;
            }
            let number = log.head + 1;
            let at = self.clock.now();
            let record = LeaseRecord { owner: owner.to_owned(), process: self.process.clone(), at };
            let kind = EntryKind::Lease(record.clone());
            fail_point!("store::lease::before");
            let put = self.put_entry(&Entry { number, writer: writer.clone(), nonce: 0, kind }).await?;
            if matches!(put, Put::Taken) {
                // Somebody was faster. Whether that one holds the store now, the next look tells.
                continue;
            }
            fail_point!("store::lease::after");
            candidate.writer = None;
            let (store, unsettled) = (self.clone(), BTreeSet::new());
            let lease =
                Lease { store, attempt: number, record, writer, known: number, next_nonce: 1, unsettled };
            if let Err(error) = lease.heartbeat().beat().await {
                warn!(attempt = number, error = &error as &dyn std::error::Error, "first heartbeat failed");
            }
            return Ok(lease);
        }
    }

    async fn refuse_if_held(&self, log: &log::Log) -> Result<(), StoreError> {
        match self.holder(log).await? {
            Some(holder) => Err(StoreError::Held { by: Box::new(holder) }),
            None => Ok(()),
        }
    }

    /// Tells who holds the store by this log, if that process lives as far as can be seen: on this machine by its process,
    /// elsewhere by the age of its last heartbeat. For people; only a lease keeps others out.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn holder(&self, log: &log::Log) -> Result<Option<Holder>, StoreError> {
        let lease = log.newest_lease().filter(|(entry, _)| !self.orphans.contains(&entry.writer));
        let beat = match lease {
            Some((entry, _)) => self.read_beat(entry.number).await?,
            None => None,
        };
        Ok(living_holder(lease, beat.as_ref(), &self.process, self.clock.now()))
    }

    /// A heartbeat that cannot be understood is as good as none.
    async fn read_beat(&self, attempt: u64) -> Result<Option<Beat>, StoreError> {
        let framed = self.backend.read(&self.backend.path(&[HEARTBEATS, &log::name(attempt)])).await?;
        let json = framed.as_deref().and_then(|framed| frame::unwrap(framed).ok());
        Ok(json.and_then(|json| serde_json::from_slice(json).ok()))
    }

    /// Creates an entry, and finds out what happened if the answer does not tell.
    async fn put_entry(&self, entry: &Entry) -> Result<Put, StoreError> {
        let path = self.backend.path(&[log::FOLDER, &log::name(entry.number)]);
        let framed = entry.encode()?;
        fail_point!("store::entry::before");
        let mut answer = self.backend.create(&path, framed.into()).await;
        fail_point!("store::entry::after_link");
        if is_answer_lost() {
            let source = "the answer was lost".into();
            answer = answer.and(Err(object_store::Error::Generic { store: "fail point", source }));
        }
        let Err(refusal) = answer else { return Ok(Put::Created) };
        fail_point!("store::entry::before_read_back");
        self.settle(entry, refusal).await
    }

    /// Reads an entry back whose put was not answered plainly.
    async fn settle(&self, entry: &Entry, refusal: object_store::Error) -> Result<Put, StoreError> {
        let found = match self.backend.read_entry(entry.number).await {
            Ok(Some(found)) => found,
            // It was taken and is gone: only retention of a later attempt does that.
            Ok(None) if is_taken(&refusal) => return Ok(Put::Taken),
            Ok(None) | Err(_) => {
                let path = self.backend.path(&[log::FOLDER, &log::name(entry.number)]);
                return Err(unavailable("append", &path)(refusal));
            }
        };
        let found = found.map_err(|flaw| Damage::new(Some(entry.number), Piece::Entry, flaw))?;
        if found.writer != entry.writer {
            return Ok(Put::Taken);
        }
        // It has its name, but perhaps not for good.
        self.backend.sync_folder(log::FOLDER).await?;
        Ok(if found.nonce == entry.nonce { Put::Created } else { Put::TakenByOneself(found) })
    }
}

impl Lease {
    /// Returns the number of the lease entry: the first half of the ids of its checkpoints.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the highest number that is known to be taken.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Completes a checkpoint, all of whose parts were written. Returns its entry's number.
    ///
    /// Only after it may anybody be notified.
    ///
    /// # Errors
    /// As [`Lease::resolve`], and [`StoreError::Damaged`] when the store was emptied or exchanged. After
    /// [`StoreError::Unavailable`] and [`StoreError::Folder`] the checkpoint may be complete all the same; it counts as
    /// failed, and its parts stay until retention passes it.
    pub async fn complete(&mut self, manifest: Manifest) -> Result<u64, StoreError> {
        let id = manifest.id;
        self.must_be_there().await?;
        // Before the await: a dropped future leaves the outcome open, too.
        self.unsettled.insert(id);
        let number = self.append(EntryKind::Checkpoint(manifest)).await?;
        self.unsettled.remove(&id);
        Ok(number)
    }

    /// Says that everything a checkpoint covers has become visible. Returns the entry's number.
    ///
    /// # Errors
    /// [`StoreError::TakenOver`] when another process holds the store: this one must end before any side effect;
    /// [`StoreError::Damaged`] when the number is taken by an entry that cannot be read: the same.
    pub async fn resolve(&mut self, id: CheckpointId) -> Result<u64, StoreError> {
        self.append(EntryKind::Resolved(id)).await
    }

    /// Says that a checkpoint and all before it may be deleted.
    pub(crate) async fn discard(&mut self, id: CheckpointId) -> Result<u64, StoreError> {
        self.append(EntryKind::Discarding(id)).await
    }

    /// Says that everything above `to` is dropped and will be read again, also by a process that goes on from here after
    /// this one has died; `None` for everything there is. Returns the entry's number.
    ///
    /// # Errors
    /// As [`Lease::resolve`].
    pub async fn roll_back(&mut self, to: Option<CheckpointId>) -> Result<u64, StoreError> {
        self.append(EntryKind::RolledBack(to)).await
    }

    /// Looks whether this process still holds the store. Another may take it the moment after: what must not happen then,
    /// only an append can guard.
    ///
    /// # Errors
    /// [`StoreError::TakenOver`] when another process has taken it, [`StoreError::Damaged`] when the store was emptied or
    /// exchanged; or the store cannot be read.
    pub async fn confirm(&self) -> Result<(), StoreError> {
        let log = self.store.log().await?;
        match log.newest_lease() {
            Some((entry, lease)) if entry.number > self.attempt => {
                let by = Some(Box::new(lease.holder(entry.number)));
                Err(StoreError::TakenOver { number: entry.number, by })
            }
            _ => self.must_be_there().await,
        }
    }

    /// Looks whether the store is still the one that the lease is in. A folder that was deleted, or whose disk was
    /// unmounted, takes new entries: what follows would go on from them, or from nothing.
    async fn must_be_there(&self) -> Result<(), StoreError> {
        match self.store.backend.read_entry(self.attempt).await? {
            Some(_) => Ok(()),
            // Lease entries are never deleted.
            None => Err(Damage::new(Some(self.attempt), Piece::Entry, Flaw::Missing).into()),
        }
    }

    /// Appends at the number behind the last known one. Cancel safe: an entry that a dropped future left behind is found
    /// by the next append.
    async fn append(&mut self, kind: EntryKind) -> Result<u64, StoreError> {
        let mut entry = Entry { number: 0, writer: self.writer.clone(), nonce: 0, kind };
        loop {
            entry.number = self.known + 1;
            entry.nonce = self.next_nonce;
            self.next_nonce += 1;
            match self.store.put_entry(&entry).await? {
                Put::Created => break,
                Put::TakenByOneself(earlier) => {
                    self.known = earlier.number;
                    if let Some(manifest) = earlier.manifest() {
                        warn!(checkpoint = %manifest.id, "a checkpoint that counted as failed is complete");
                    }
                }
                Put::Taken => return Err(self.taken_over(entry.number).await),
            }
        }
        self.known = entry.number;
        fail_point!("store::entry::after");
        Ok(entry.number)
    }

    async fn taken_over(&self, number: u64) -> StoreError {
        // The name is for people; without it the process must end just the same.
        let log = self.store.log().await.unwrap_or_default();
        let by = log.newest_lease().filter(|(entry, _)| entry.writer != self.writer);
        StoreError::TakenOver { number, by: by.map(|(entry, lease)| Box::new(lease.holder(entry.number))) }
    }

    /// Deletes the parts of a checkpoint that was aborted. Parts of one that may be complete stay.
    ///
    /// # Errors
    /// The store cannot be used; retention deletes what is left.
    pub async fn abandon(&self, id: CheckpointId) -> Result<(), StoreError> {
        let folder = PartHome::Checkpoint(id).path(&self.store.backend, &id.to_string());
        self.abandon_below(id, "parts", &folder).await
    }

    /// Deletes the parts of a savepoint that was aborted, as [`Lease::abandon`] those of a checkpoint.
    ///
    /// # Errors
    /// The store cannot be used; what is left has no manifest, and is no savepoint.
    pub async fn abandon_savepoint(&self, id: CheckpointId, name: &str) -> Result<(), StoreError> {
        let folder = self.store.backend.path(&["savepoints", name]);
        self.abandon_below(id, "savepoints", &folder).await
    }

    async fn abandon_below(&self, id: CheckpointId, listed: &str, folder: &Path) -> Result<(), StoreError> {
        let may_be_complete = self.unsettled.contains(&id) || id.attempt != self.attempt;
        if may_be_complete || self.store.log().await?.checkpoints().any(|(_, manifest)| manifest.id == id) {
            return Ok(());
        }
        for part in self.store.backend.list(listed).await? {
            if part.location.prefix_matches(folder) {
                self.store.backend.delete(&part.location).await?;
            }
        }
        Ok(())
    }

    /// Returns what says that this process lives.
    pub fn heartbeat(&self) -> Heartbeat {
        Heartbeat { store: self.store.clone(), attempt: self.attempt, writer: self.writer.clone() }
    }

    /// Gives the store up, so that the next process need not wait. Advice, as every heartbeat: a failure is logged.
    pub async fn release(self) {
        if let Err(error) = self.heartbeat().write(true).await {
            let error: &dyn std::error::Error = &error;
            warn!(owner = self.record.owner, error, "the next process may have to wait for the lease");
            self.store.orphans.writers().insert(self.writer);
        }
    }
}

impl Heartbeat {
    /// Says it once.
    ///
    /// # Errors
    /// The store cannot be written. Nothing follows from it.
    pub async fn beat(&self) -> Result<(), StoreError> {
        self.write(false).await
    }

    async fn write(&self, released: bool) -> Result<(), StoreError> {
        fail_point!("store::heartbeat::before");
        let beat = Beat { writer: self.writer.clone(), at: self.store.clock.now(), released };
        let json = serde_json::to_vec(&beat).map_err(StoreError::Encode)?;
        // One object per attempt, so that a holder that was taken over does not speak for its successor.
        let path = self.store.backend.path(&[HEARTBEATS, &log::name(self.attempt)]);
        let framed = frame::wrap(&json);
        self.store.backend.overwrite(&path, framed.into()).await.map_err(unavailable("write", &path))
    }

    /// Says it every five seconds, until it is dropped. Cancel safe.
    pub async fn keep_beating(self) {
        self.keep_beating_until(CancellationToken::new()).await;
    }

    /// Beats at its interval until it is told that it is enough. A beat on its way comes to its end.
    pub(crate) async fn keep_beating_until(self, enough: CancellationToken) {
        let mut ticks = interval(HEARTBEAT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while enough.run_until_cancelled(ticks.tick()).await.is_some() {
            if let Err(error) = self.beat().await {
                let error: &dyn std::error::Error = &error;
                warn!(attempt = self.attempt, error, "heartbeat failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_core::Timestamp;

    use super::{Beat, living_holder};
    use crate::store::entry::{Entry, EntryKind, LeaseRecord};
    use crate::store::process::ProcessId;

    fn process(host_id: &str, started: u64) -> ProcessId {
        ProcessId { host: "h".into(), host_id: host_id.into(), pid: std::process::id(), started }
    }

    fn held_by(process: ProcessId) -> Entry {
        let record = LeaseRecord { owner: "job".into(), process, at: Timestamp(100_000) };
        Entry { number: 7, writer: "w".into(), nonce: 0, kind: EntryKind::Lease(record) }
    }

    fn is_held(entry: &Entry, beat: Option<&Beat>, now: i64) -> bool {
        let lease = entry.lease().map(|record| (entry, record));
        let me = ProcessId::current();
        living_holder(lease, beat, &me, Timestamp(now)).is_some()
    }

    /// [CHK-15]
    #[test]
    fn on_the_same_machine_the_process_decides_whatever_the_heartbeat_says() {
        let me = ProcessId::current();
        let dead = ProcessId { started: me.started + 1, ..me.clone() };
        let fresh = Beat { writer: "w".into(), at: Timestamp(100_000), released: false };
        assert!(is_held(&held_by(me), None, 900_000));
        assert!(!is_held(&held_by(dead), Some(&fresh), 100_001));
    }

    /// [CHK-15]
    #[test]
    fn on_another_machine_a_heartbeat_of_less_than_fifteen_seconds_decides() {
        let entry = held_by(process("another", 1));
        let beat = Beat { writer: "w".into(), at: Timestamp(120_000), released: false };
        assert!(is_held(&entry, None, 114_999), "the lease itself is the first sign of life");
        assert!(!is_held(&entry, None, 115_000));
        assert!(is_held(&entry, Some(&beat), 134_999));
        assert!(!is_held(&entry, Some(&beat), 135_000));
        let of_the_one_before = Beat { writer: "v".into(), ..beat.clone() };
        assert!(!is_held(&entry, Some(&of_the_one_before), 121_000));
        assert!(!is_held(&entry, Some(&Beat { released: true, ..beat }), 121_000));
    }
}

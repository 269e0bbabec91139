//! The sink: rows and the source positions they come from become visible in one transaction.
//!
//! ```text
//!            write(batch)                                  commit(positions)
//!  records ──▶ encode by column type ──▶ interval ──▶ collapse per key ──▶ sort by key ──▶ arrays per column
//!              (CPU only, nothing sent)  in memory     last one wins                            │
//!                                                                                                ▼
//!     begin · move positions, or fail · lock and delete · insert … on conflict … · commit     one transaction,
//!                                                                                             pipelined
//!       failed: deadlock, lock or statement timeout ──▶ the same again, a few times
//!       failed: server or connection gone           ──▶ connect until it is back ──▶ claim again at our own epoch ──▶
//!                                                       stored position = old: send again
//!                                                                       = new: it had been committed
//!       failed: a row                               ──▶ find the first one, in the order of writing ──▶ bad record
//!       failed: positions not ours                  ──▶ fenced, by whom and since when
//! ```
//!
//! No transaction is open while the sink waits for input, so a stopped process blocks nobody for longer than one flush
//! and `idle_in_transaction_session_timeout`.

mod backoff;
mod catalog;
mod claim;
mod collapse;
mod commit;
mod config;
mod encode;
mod error;
mod failpoint;
mod open;
mod reconnect;
mod session;
mod sql;
mod statement;
mod stats;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use levada_core::{
    Assignment, AtomicSink, Batch, Committed, ErrorClass, Keyed, Pending, Positions, Sink, SinkContext,
    SinkError, SplitId,
};
use tokio::sync::watch;
use tracing::{debug, info};

use backoff::Pauses;
use catalog::Target;
use claim::{Claim, Held, RunNumber, Stored, Unclaimed};
use commit::{Move, Unflushed};
use error::Failure;
use failpoint::fail_point;
use reconnect::Outcome;
use session::Session;
use statement::{Work, build};
use write::{ColumnSets, Interval, Mappings};

pub use config::{ColumnOptions, EpochUnit, PostgresSinkConfig, Tombstone, WriteMode};
#[cfg(feature = "failpoints")]
pub use failpoint::FAIL_POINTS;
pub use stats::{Health, Stats};

/// Returns the statements that make the table of positions, for a database in which the sink may create nothing.
pub fn ddl() -> String {
    format!("{}{}", sql::POSITIONS_SCHEMA, sql::POSITIONS_TABLES)
}

/// Column sets kept from one interval to the next. Rows whose sets of fields vary without end would grow them without
/// end.
const MAX_COLUMN_SETS: usize = 4096;

/// Writes changes into one table, exactly once.
///
/// The order of calls is that of [`AtomicSink`]: `open`, `claim`, then `write` and `commit` again and again, `close`.
pub struct PostgresSink {
    config: PostgresSinkConfig,
    job: Option<Job>,
    session: Option<Session>,
    target: Option<Target>,
    sets: ColumnSets,
    mappings: Mappings,
    interval: Interval,
    held: BTreeMap<SplitId, Held>,
    /// Whether splits were claimed: what is claimed later was given to this sink, and is taken from whoever has it.
    has_claimed: bool,
    /// Whether a commit was sent and its outcome not seen: its future was dropped, or the connection was lost and
    /// could not be made again.
    is_in_doubt: bool,
    stats: Stats,
    health: watch::Sender<Health>,
}

/// What [`SinkContext`] says, in the forms that are needed.
#[derive(Debug, Clone)]
struct Job {
    pipeline: String,
    application_name: String,
}

/// Shows numbers and names, no value and no password.
impl std::fmt::Debug for PostgresSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresSink")
            .field("config", &self.config)
            .field("job", &self.job)
            .field("health", &*self.health.borrow())
            .field("pending", &AtomicSink::pending(self))
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl PostgresSink {
    /// Makes a sink; nothing is connected before `open`.
    pub fn new(config: PostgresSinkConfig) -> Self {
        Self {
            config,
            job: None,
            session: None,
            target: None,
            sets: ColumnSets::new(&[]),
            mappings: Mappings::default(),
            interval: Interval::default(),
            held: BTreeMap::new(),
            has_claimed: false,
            is_in_doubt: false,
            stats: Stats::default(),
            health: watch::Sender::new(Health::Closed),
        }
    }

    /// Returns what was counted so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Follows whether the server can be reached, also while a commit waits for it.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn job(&self) -> Result<Job, SinkError> {
        self.job.clone().ok_or_else(|| SinkError::new(ErrorClass::Fatal, "the sink is not open"))
    }

    /// Empties the interval, and forgets column sets, which nothing refers to then, if there are too many.
    fn clear_interval(&mut self) {
        self.interval.clear();
        if self.sets.len() > MAX_COLUMN_SETS {
            self.sets = ColumnSets::new(self.target.as_ref().map_or(&[], |target| &target.key));
            self.mappings = Mappings::default();
        }
    }

    fn count_retry(&mut self, failure: &Failure) {
        let code = failure.code.as_deref().unwrap_or("connection").to_owned();
        *self.stats.retries.entry(code).or_default() += 1;
    }

    /// Lists the positions that move, each from where this sink left it.
    fn moves(&self, positions: &Positions) -> Result<Vec<Move>, SinkError> {
        let mut moves = Vec::new();
        for (split, to) in positions {
            let Some(held) = self.held.get(split) else {
                return Err(SinkError::new(
                    ErrorClass::Fatal,
                    format!("commit of split {split}, which this sink has not claimed"),
                ));
            };
            if *to < held.position {
                return Err(SinkError::new(
                    ErrorClass::Fatal,
                    format!("commit of split {split} at {to}, which is before {}", held.position),
                ));
            }
            if *to != held.position {
                moves.push(Move {
                    split: split.clone(),
                    epoch: held.epoch,
                    from: held.position.clone(),
                    to: to.clone(),
                });
            }
        }
        Ok(moves)
    }

    /// Claims splits on the current connection until it succeeds or cannot.
    async fn claim_splits(&mut self, job: &Job, assignment: &Assignment) -> Result<Vec<Stored>, SinkError> {
        let mut attempts = Vec::new();
        let mut pauses = Pauses::new(Duration::from_millis(50), self.config.reconnect_pause);
        let mut retries = 0;
        let mut is_new = self.is_in_doubt;
        let is_first = !self.has_claimed && !assignment.splits.is_empty();
        // Held by whoever draws, until the claim that stores the number is committed: the others claim under it.
        let shared = Arc::clone(&self.config.run);
        let mut run = match is_first {
            true => Some(shared.lock().await),
            false => None,
        };
        let number = match run.as_deref() {
            Some(Some(drawn)) => RunNumber::Drawn(*drawn),
            Some(None) => RunNumber::Draw,
            None => RunNumber::None,
        };
        if number != RunNumber::Draw {
            run = None;
        }
        loop {
            is_new |= self.connected(job).await?;
            let mut splits: BTreeSet<SplitId> = assignment.splits.iter().cloned().collect();
            if is_new {
                // Whatever an earlier connection may still be doing ends here for everything we hold.
                splits.extend(self.held.keys().cloned());
            }
            let Some(session) = &mut self.session else { continue };
            attempts.push(session.backend);
            let claim = Claim {
                pipeline: &job.pipeline,
                owner: &self.config.owner,
                streams: &assignment.streams,
                splits,
                run: number,
                held: &self.held,
                attempts: &attempts,
            };
            let (result, terminated) =
                claim::claim(session, &self.config, &job.application_name, &claim).await;
            self.stats.terminated += terminated;
            match result {
                Ok(claimed) => {
                    if let Some(run) = &mut run {
                        **run = claimed.run;
                    }
                    self.has_claimed |= is_first;
                    self.recovered();
                    return Ok(claimed.stored);
                }
                Err(Unclaimed::Refused(error)) => return Err(error),
                Err(Unclaimed::Failed(failure)) => match failure.class {
                    ErrorClass::Reconnect => {
                        self.count_retry(&failure);
                        self.lost(&failure);
                        pauses.next().await;
                    }
                    ErrorClass::Retry if retries < self.config.max_retries => {
                        retries += 1;
                        self.count_retry(&failure);
                        pauses.next().await;
                    }
                    _ => return Err(failure.during(format!("claiming {} splits", assignment.splits.len()))),
                },
            }
        }
    }

    fn hold(&mut self, stored: &[Stored]) {
        for row in stored {
            self.held.insert(row.split.clone(), Held { epoch: row.epoch, position: row.position.clone() });
        }
    }

    /// Sends the interval until it is committed or cannot be.
    async fn flush(&mut self, job: &Job, moves: &mut [Move], work: &Work) -> Result<(), SinkError> {
        let mut pauses = Pauses::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut outages = Pauses::new(Duration::from_millis(50), self.config.reconnect_pause);
        let mut retries = 0;
        loop {
            let Some(session) = &mut self.session else {
                let outcome = self.reconnected(job, moves).await?;
                self.is_in_doubt = false;
                match outcome {
                    Outcome::Committed => return Ok(()),
                    Outcome::NotCommitted => continue,
                }
            };
            self.is_in_doubt = true;
            let (failure, is_data) = match commit::flush(session, &job.pipeline, moves, work).await {
                Ok(()) => {
                    self.is_in_doubt = false;
                    return Ok(());
                }
                Err(Unflushed::PositionsDiffer) => {
                    self.is_in_doubt = false;
                    return Err(self.explain(job, moves).await);
                }
                Err(Unflushed::Data(failure)) => (failure, true),
                Err(Unflushed::Failed(failure)) => (failure, false),
            };
            // Only the server's own word for the failure of a statement says that the transaction failed.
            self.is_in_doubt = failure.code.is_none() || failure.class == ErrorClass::Reconnect;
            match failure.class {
                ErrorClass::Retry if retries < self.config.max_retries => {
                    retries += 1;
                    self.count_retry(&failure);
                    debug!(code = failure.code, retries, "flush is tried again");
                    pauses.next().await;
                }
                ErrorClass::Reconnect => {
                    self.count_retry(&failure);
                    self.lost(&failure);
                    outages.next().await;
                }
                ErrorClass::BadRecord if is_data => {
                    if let Some(error) = self.find_bad_record(failure).await? {
                        return Err(error);
                    }
                    // Every prefix could be written just now: what it clashed with is gone.
                    retries += 1;
                    if retries > self.config.max_retries {
                        return Err(SinkError::new(
                            ErrorClass::Retry,
                            format!(
                                "a flush into {} failed again and again, but its rows pass alone",
                                self.config.table
                            ),
                        ));
                    }
                }
                _ => {
                    let table = &self.config.table;
                    return Err(
                        failure.during(format!("writing {} rows into {table}", work.written + work.deleted))
                    );
                }
            }
        }
    }

    /// Makes an error of positions that are not where this sink left them.
    async fn explain(&mut self, job: &Job, moves: &mut [Move]) -> SinkError {
        let arrays = claim::SplitArrays::of(moves.iter().map(|moved| &moved.split));
        let rows = match &self.session {
            Some(session) => claim::read(session, &job.pipeline, &arrays).await,
            None => Ok(Vec::new()),
        };
        let judged = match rows {
            Ok(rows) => reconnect::judge(moves, &rows),
            // The claim on the new connection sees the same rows, and judges them.
            Err(failure) if failure.class == ErrorClass::Reconnect => {
                self.lost(&failure);
                self.reconnected(job, moves).await
            }
            Err(failure) => {
                return failure.during("reading positions that are not where this sink left them");
            }
        };
        judged.err().unwrap_or_else(|| {
            SinkError::new(ErrorClass::Retry, "positions differed for a moment and are as expected again")
        })
    }

    /// Finds the first change, in the order of writing, that cannot be written together with those before it.
    ///
    /// Halves the interval: each probe writes the first changes as a commit would, and rolls back. At most
    /// `⌈log2 n⌉ + 1` probes. Returns `None` if all changes pass now.
    async fn find_bad_record(&mut self, first: Failure) -> Result<Option<SinkError>, SinkError> {
        let (mut good, mut bad) = (0, self.interval.changes.len());
        let mut reason = first;
        let mut is_confirmed = false;
        while bad - good > 1 || !is_confirmed {
            // The last one left is probed, too: the first failure was that of a later state of the same key, or of
            // another record.
            let count = if bad - good > 1 { good + (bad - good) / 2 } else { bad };
            match self.probe(count).await? {
                None if count == self.interval.changes.len() => return Ok(None),
                None => {
                    good = count;
                    is_confirmed = false;
                }
                Some(failure) => {
                    bad = count;
                    reason = failure;
                    is_confirmed = true;
                }
            }
            if good == bad {
                return Ok(None);
            }
        }
        let coordinates = self.interval.coordinates(&self.interval.changes[bad - 1]);
        let code = reason.code.as_deref().unwrap_or("unknown");
        let message = format!("{} refuses it, SQLSTATE {code}{}", self.config.table, reason.cause.place());
        Ok(Some(SinkError::bad_record(coordinates, message).caused_by(*reason.cause)))
    }

    /// Tries to write the first `count` changes; returns what makes them bad, if anything.
    async fn probe(&mut self, count: usize) -> Result<Option<Failure>, SinkError> {
        let job = self.job()?;
        let Some(target) = &self.target else { return Ok(None) };
        let work = build(&self.interval, count, target, &mut self.sets, self.config.rows_per_statement);
        let mut pauses = Pauses::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut retries = 0;
        loop {
            self.stats.probes += 1;
            let Some(session) = &mut self.session else {
                self.connected(&job).await?;
                continue;
            };
            let Err(failure) = commit::probe(session, &work).await else {
                self.recovered();
                return Ok(None);
            };
            match failure.class {
                ErrorClass::BadRecord => {
                    self.recovered();
                    return Ok(Some(failure));
                }
                ErrorClass::Reconnect => {
                    self.count_retry(&failure);
                    self.lost(&failure);
                }
                ErrorClass::Retry if retries < self.config.max_retries => {
                    retries += 1;
                    self.count_retry(&failure);
                    pauses.next().await;
                }
                _ => {
                    return Err(failure.during(format!("looking for a bad record for {}", self.config.table)));
                }
            }
        }
    }
}

impl Sink<Keyed> for PostgresSink {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        let job = Job { application_name: format!("levada/{}/{}", ctx.job, ctx.subtask), pipeline: ctx.job };
        let target = self.open_target(&job).await?;
        self.sets = ColumnSets::new(&target.key);
        self.target = Some(target);
        self.job = Some(job);
        Ok(())
    }

    async fn write(&mut self, batch: Batch<Keyed>) -> Result<(), SinkError> {
        let Some(target) = &self.target else {
            return Err(SinkError::new(ErrorClass::Fatal, "the sink is not open"));
        };
        write::write(&mut self.interval, &mut self.mappings, &mut self.sets, target, &batch, &mut self.stats)
    }

    async fn close(&mut self) {
        self.interval.clear();
        self.held.clear();
        self.session = None;
        self.health.send_replace(Health::Closed);
    }
}

impl AtomicSink<Keyed> for PostgresSink {
    async fn claim(&mut self, assignment: &Assignment) -> Result<Positions, SinkError> {
        let job = self.job()?;
        fail_point!("pg::claim::before");
        if self.is_in_doubt {
            self.session = None;
        }
        let stored = Box::pin(self.claim_splits(&job, assignment)).await?;
        self.hold(&stored);
        self.is_in_doubt = false;
        fail_point!("pg::claim::after");
        let positions: Positions = assignment
            .splits
            .iter()
            .filter_map(|split| Some((split.clone(), self.held.get(split)?.position.clone())))
            .collect();
        info!(pipeline = job.pipeline, splits = positions.len(), "splits claimed");
        Ok(positions)
    }

    async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
        let job = self.job()?;
        if self.is_in_doubt {
            return Err(SinkError::new(
                ErrorClass::Fatal,
                "an earlier commit was interrupted and its outcome is unknown; claim the splits again first",
            ));
        }
        let Some(target) = &self.target else {
            return Err(SinkError::new(ErrorClass::Fatal, "the sink is not open"));
        };
        let mut moves = self.moves(positions)?;
        let count = self.interval.changes.len();
        if moves.is_empty() {
            if count > 0 {
                // Without a position that moves there is nothing to tell a repeated commit by.
                return Err(SinkError::new(
                    ErrorClass::Fatal,
                    format!("{count} changes to commit, but no position moved"),
                ));
            }
            let committed = Committed { ignored: self.interval.ignored, ..Committed::default() };
            self.clear_interval();
            return Ok(committed);
        }
        let work = build(&self.interval, count, target, &mut self.sets, self.config.rows_per_statement);
        Box::pin(self.flush(&job, &mut moves, &work)).await?;
        for moved in moves {
            if let Some(held) = self.held.get_mut(&moved.split) {
                held.position = moved.to;
            }
        }
        let committed = Committed {
            written: work.written,
            deleted: work.deleted,
            coalesced: work.coalesced,
            ignored: self.interval.ignored,
            ..Committed::default()
        };
        self.stats.flushes += 1;
        self.stats.rows += work.written + work.deleted;
        self.clear_interval();
        Ok(committed)
    }

    fn discard(&mut self) {
        self.clear_interval();
    }

    fn release(&mut self, splits: &[SplitId]) {
        for split in splits {
            self.held.remove(split);
        }
    }

    fn pending(&self) -> Pending {
        Pending {
            rows: self.interval.changes.len() as u64 + self.interval.ignored,
            bytes: self.interval.bytes(),
        }
    }
}

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

pub(crate) mod backoff;
mod bad_record;
pub(crate) mod catalog;
mod claim;
mod collapse;
pub(crate) mod commit;
pub(crate) mod config;
mod connect;
pub(crate) mod encode;
pub(crate) mod error;
pub(crate) mod failpoint;
#[cfg(any(feature = "write-ahead", feature = "idempotent"))]
pub(crate) mod flush;
pub(crate) mod layout;
mod open;
mod reconnect;
pub(crate) mod session;
pub(crate) mod sql;
pub(crate) mod statement;
pub(crate) mod stats;
pub(crate) mod write;
pub(crate) mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use levada_core::{
    Assignment, AtomicSink, Batch, Committed, ErrorClass, Keyed, Pending, Positions, Sink, SinkContext,
    SinkError, SplitId, WriteOrder,
};
use tokio::sync::watch;
use tracing::{debug, info};

use backoff::Pauses;
use claim::{Claim, Held, RunNumber, Stored, Unclaimed};
use commit::{Move, Moves, Unflushed};
use failpoint::{Points, fail_point};
use layout::Layout;
use reconnect::Outcome;
use statement::Work;
use write::Place;
use writer::{Outage, Writer};

pub use config::{ColumnOptions, EpochUnit, PostgresSinkConfig, Tombstone, WriteMode};
#[cfg(feature = "failpoints")]
pub use failpoint::FAIL_POINTS;
pub use stats::{Health, Stats};

/// The table of positions.
const POSITIONS: Layout = Layout {
    what: "positions",
    find: sql::FIND_POSITIONS,
    tables: sql::POSITIONS_TABLES,
    read_version: sql::READ_VERSION,
    versioned_in: "levada.meta",
    version: sql::POSITIONS_VERSION,
    privileges: None,
};

/// Returns the statements that make the table of positions, for a database in which the sink may create nothing.
pub fn ddl() -> String {
    POSITIONS.ddl()
}

/// Names the connections of a subtask.
pub(crate) fn application_name(ctx: &SinkContext) -> String {
    format!("levada/{}/{}", ctx.job, ctx.subtask)
}

/// Walks through a batch's changes with their places.
pub(crate) fn places(batch: &Batch<Keyed>) -> impl Iterator<Item = (Place<'_>, &Keyed)> {
    batch.records().iter().map(|record| {
        let place = Place { split: batch.split(&record.origin), offset: record.origin.offset };
        (place, &record.item)
    })
}

/// Writes changes into one table, exactly once.
///
/// The order of calls is that of [`AtomicSink`]: `open`, `claim`, then `write` and `commit` again and again, `close`.
pub struct PostgresSink {
    writer: Writer,
    /// Under which positions are stored, once it is known.
    pipeline: Option<String>,
    held: BTreeMap<SplitId, Held>,
    /// Whether splits were claimed: what is claimed later was given to this sink, and is taken from whoever has it.
    has_claimed: bool,
    /// Whether a commit was sent and its outcome not seen: its future was dropped, or the connection was lost and
    /// could not be made again.
    is_in_doubt: bool,
}

/// Shows numbers and names, no value and no password.
impl std::fmt::Debug for PostgresSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresSink")
            .field("config", &self.writer.config)
            .field("pipeline", &self.pipeline)
            .field("health", &*self.writer.health.borrow())
            .field("pending", &AtomicSink::pending(self))
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl PostgresSink {
    /// Makes a sink; nothing is connected before `open`.
    pub fn new(config: PostgresSinkConfig) -> Self {
        Self {
            writer: Writer::new(config, Outage::Wait),
            pipeline: None,
            held: BTreeMap::new(),
            has_claimed: false,
            is_in_doubt: false,
        }
    }

    /// Returns what was counted so far.
    pub fn stats(&self) -> &Stats {
        &self.writer.stats
    }

    /// Follows whether the server can be reached, also while a commit waits for it.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.writer.health.subscribe()
    }

    fn pipeline(&self) -> Result<String, SinkError> {
        self.pipeline.clone().ok_or_else(|| SinkError::new(ErrorClass::Fatal, "the sink is not open"))
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
    async fn claim_splits(
        &mut self,
        pipeline: &str,
        assignment: &Assignment,
    ) -> Result<Vec<Stored>, SinkError> {
        let mut attempts = Vec::new();
        let mut pauses = Pauses::new(Duration::from_millis(50), self.writer.config.reconnect_pause);
        let mut retries = 0;
        let mut is_new = self.is_in_doubt;
        let is_first = !self.has_claimed && !assignment.splits.is_empty();
        // Held by whoever draws, until the claim that stores the number is committed: the others claim under it.
        let shared = Arc::clone(&self.writer.config.run);
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
            is_new |= self.writer.connected().await?;
            let mut splits: BTreeSet<SplitId> = assignment.splits.iter().cloned().collect();
            if is_new {
                // Whatever an earlier connection may still be doing ends here for everything we hold.
                splits.extend(self.held.keys().cloned());
            }
            let writer = &mut self.writer;
            let Some(session) = &mut writer.session else { continue };
            attempts.push(session.backend);
            let claim = Claim {
                pipeline,
                owner: &writer.config.owner,
                streams: &assignment.streams,
                splits,
                run: number,
                held: &self.held,
                attempts: &attempts,
            };
            let (result, terminated) =
                claim::claim(session, &writer.config, &writer.application_name, &claim).await;
            writer.stats.terminated += terminated;
            match result {
                Ok(claimed) => {
                    if let Some(run) = &mut run {
                        **run = claimed.run;
                    }
                    self.has_claimed |= is_first;
                    self.writer.recovered();
                    return Ok(claimed.stored);
                }
                Err(Unclaimed::Refused(error)) => return Err(error),
                Err(Unclaimed::Failed(failure)) => match failure.class {
                    ErrorClass::Reconnect => {
                        self.writer.count_retry(&failure);
                        self.writer.lost(&failure);
                        pauses.next().await;
                    }
                    ErrorClass::Retry if retries < self.writer.config.max_retries => {
                        retries += 1;
                        self.writer.count_retry(&failure);
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
    async fn flush(&mut self, pipeline: &str, moves: &mut [Move], work: &Work) -> Result<(), SinkError> {
        let mut pauses = Pauses::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut outages = Pauses::new(Duration::from_millis(50), self.writer.config.reconnect_pause);
        let mut retries = 0;
        loop {
            let Some(session) = &mut self.writer.session else {
                let outcome = self.reconnected(pipeline, moves).await?;
                self.is_in_doubt = false;
                match outcome {
                    Outcome::Committed => return Ok(()),
                    Outcome::NotCommitted => continue,
                }
            };
            self.is_in_doubt = true;
            let flushed = {
                let moves = Moves::new(pipeline, moves);
                commit::flush(session, &[moves.lead()], work, Points::POSITIONS).await
            };
            let (failure, is_data) = match flushed {
                Ok(()) => {
                    self.is_in_doubt = false;
                    return Ok(());
                }
                // A position is not where this owner left it, or not his.
                Err(Unflushed::Lead(failure)) if failure.is("22012") => {
                    self.is_in_doubt = false;
                    return Err(self.explain(pipeline, moves).await);
                }
                Err(Unflushed::Data(failure)) => (failure, true),
                Err(Unflushed::Lead(failure) | Unflushed::Failed(failure)) => (failure, false),
            };
            // Only the server's own word for the failure of a statement says that the transaction failed.
            self.is_in_doubt = failure.code.is_none() || failure.class == ErrorClass::Reconnect;
            match failure.class {
                ErrorClass::Retry if retries < self.writer.config.max_retries => {
                    retries += 1;
                    self.writer.count_retry(&failure);
                    debug!(code = failure.code, retries, "flush is tried again");
                    pauses.next().await;
                }
                ErrorClass::Reconnect => {
                    self.writer.count_retry(&failure);
                    self.writer.lost(&failure);
                    outages.next().await;
                }
                ErrorClass::BadRecord if is_data => {
                    if let Some(error) = self.writer.find_bad_record(failure).await? {
                        return Err(error);
                    }
                    // Every prefix could be written just now: what it clashed with is gone.
                    retries += 1;
                    if retries > self.writer.config.max_retries {
                        return Err(self.writer.flickering());
                    }
                }
                _ => return Err(self.writer.gave_up(failure, work)),
            }
        }
    }

    /// Makes an error of positions that are not where this sink left them.
    async fn explain(&mut self, pipeline: &str, moves: &mut [Move]) -> SinkError {
        let arrays = claim::SplitArrays::of(moves.iter().map(|moved| &moved.split));
        let rows = match &self.writer.session {
            Some(session) => claim::read(session, pipeline, &arrays).await,
            None => Ok(Vec::new()),
        };
        let judged = match rows {
            Ok(rows) => reconnect::judge(moves, &rows),
            // The claim on the new connection sees the same rows, and judges them.
            Err(failure) if failure.class == ErrorClass::Reconnect => {
                self.writer.lost(&failure);
                self.reconnected(pipeline, moves).await
            }
            Err(failure) => {
                return failure.during("reading positions that are not where this sink left them");
            }
        };
        judged.err().unwrap_or_else(|| {
            SinkError::new(ErrorClass::Retry, "positions differed for a moment and are as expected again")
        })
    }
}

impl Sink<Keyed> for PostgresSink {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.writer.open(application_name(&ctx), Some(&POSITIONS)).await?;
        self.pipeline = Some(ctx.job);
        Ok(())
    }

    async fn write(&mut self, batch: Batch<Keyed>) -> Result<(), SinkError> {
        self.writer.write(places(&batch))
    }

    async fn close(&mut self) {
        self.held.clear();
        self.writer.close();
    }
}

impl AtomicSink<Keyed> for PostgresSink {
    async fn claim(&mut self, assignment: &Assignment) -> Result<Positions, SinkError> {
        let pipeline = self.pipeline()?;
        fail_point!("pg::claim::before");
        if self.is_in_doubt {
            self.writer.session = None;
        }
        let stored = Box::pin(self.claim_splits(&pipeline, assignment)).await?;
        self.hold(&stored);
        self.is_in_doubt = false;
        fail_point!("pg::claim::after");
        let positions: Positions = assignment
            .splits
            .iter()
            .filter_map(|split| Some((split.clone(), self.held.get(split)?.position.clone())))
            .collect();
        info!(pipeline, splits = positions.len(), "splits claimed");
        Ok(positions)
    }

    async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
        let pipeline = self.pipeline()?;
        if self.is_in_doubt {
            return Err(SinkError::new(
                ErrorClass::Fatal,
                "an earlier commit was interrupted and its outcome is unknown; claim the splits again first",
            ));
        }
        let mut moves = self.moves(positions)?;
        let count = self.writer.interval.changes.len();
        if moves.is_empty() {
            if count > 0 {
                // Without a position that moves there is nothing to tell a repeated commit by.
                return Err(SinkError::new(
                    ErrorClass::Fatal,
                    format!("{count} changes to commit, but no position moved"),
                ));
            }
            let committed = Committed { ignored: self.writer.interval.ignored, ..Committed::default() };
            self.writer.clear_interval();
            return Ok(committed);
        }
        let work = self.writer.work(count)?;
        Box::pin(self.flush(&pipeline, &mut moves, &work)).await?;
        for moved in moves {
            if let Some(held) = self.held.get_mut(&moved.split) {
                held.position = moved.to;
            }
        }
        let committed = Committed {
            written: work.written,
            deleted: work.deleted,
            coalesced: work.coalesced,
            ignored: self.writer.interval.ignored,
            ..Committed::default()
        };
        self.writer.count_flush(&work);
        self.writer.clear_interval();
        Ok(committed)
    }

    fn discard(&mut self) {
        self.writer.clear_interval();
    }

    fn release(&mut self, splits: &[SplitId]) {
        for split in splits {
            self.held.remove(split);
        }
    }

    fn pending(&self) -> Pending {
        self.writer.interval.pending()
    }

    fn write_order(&self) -> WriteOrder {
        self.writer.config.mode.write_order()
    }
}

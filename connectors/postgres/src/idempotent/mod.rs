//! An idempotent sink: upserts by a key that the record determines, so that a repetition changes nothing.

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, ErrorClass, Keyed, SinkContext, SinkError};
use tokio::sync::watch;

use crate::sink::failpoint::{Points, points};
use crate::sink::flush::Flushed;
use crate::sink::writer::{Outage, Writer};
use crate::sink::{application_name, places};
use crate::{Health, PostgresSinkConfig, Stats, WriteMode};

/// Every fail point, in the order in which a flush passes them.
#[cfg(feature = "failpoints")]
pub const FAIL_POINTS: &[&str] = &[
    "pgupsert::flush::before_begin",
    "pgupsert::flush::after_data",
    "pgupsert::flush::before_commit",
    "pgupsert::flush::after_commit",
];

const FLUSH: Points = points! {
    before_begin: "pgupsert::flush::before_begin",
    // There is nothing in front of the data.
    after_leads: "pgupsert::flush::after_leads",
    after_data: "pgupsert::flush::after_data",
    before_commit: "pgupsert::flush::before_commit",
    after_commit: "pgupsert::flush::after_commit",
};

/// Writes changes into one table by `insert … on conflict`, at least once: the table converges, as long as a record always
/// has the same key.
///
/// ```no_run
/// use levada_postgres::quote::TableName;
/// use levada_postgres::{PostgresSinkConfig, PostgresUpsert, WriteMode};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = TableName::new("delays")?;
/// let config = PostgresSinkConfig::from_url("postgres://app@db.internal/flights", table, WriteMode::Upsert)?
///     .key(["carrier", "flight_date"]);
/// let make = move |_subtask: u32| PostgresUpsert::new(config.clone()); // for `Flow::idempotent_sink("delays", make)`
/// # let _ = make(0);
/// # Ok(())
/// # }
/// ```
///
/// After a failure everything since the last checkpoint is written again: readers see older values of a key until the
/// replay has passed its newest change. There is no fence: what a process that was stopped and taken over wakes up with is
/// written, and stays until the next change of its key. Where either matters, take
/// [`PostgresWriteAhead`](crate::write_ahead::PostgresWriteAhead) or [`PostgresSink`](crate::PostgresSink).
pub struct PostgresUpsert {
    writer: Writer,
    rows_per_flush: u64,
    bytes_per_flush: u64,
}

/// Shows numbers and names, no value and no password.
impl std::fmt::Debug for PostgresUpsert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresUpsert")
            .field("config", &self.writer.config)
            .field("health", &*self.writer.health.borrow())
            .field("pending", &self.writer.interval.pending())
            .finish_non_exhaustive()
    }
}

impl PostgresUpsert {
    /// Makes a sink; nothing is connected before `open`. It flushes at a checkpoint, and before it when 10,000 changes or
    /// 16 MiB have come together.
    pub fn new(config: PostgresSinkConfig) -> Self {
        Self { writer: Writer::new(config, Outage::Wait), rows_per_flush: 10_000, bytes_per_flush: 16 << 20 }
    }

    /// Sets how many changes are gathered at most before they are sent.
    #[must_use]
    pub fn rows_per_flush(mut self, rows: u64) -> Self {
        self.rows_per_flush = rows;
        self
    }

    /// Returns what was counted so far.
    pub fn stats(&self) -> &Stats {
        &self.writer.stats
    }

    /// Follows whether the server can be reached, also while a flush waits for it.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.writer.health.subscribe()
    }
}

impl IdempotentSink<Keyed> for PostgresUpsert {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        if self.writer.config.mode != WriteMode::Upsert {
            let table = &self.writer.config.table;
            let message = format!("an idempotent sink into {table} needs the mode upsert: inserts repeat");
            return Err(SinkError::new(ErrorClass::Fatal, message));
        }
        self.writer.open(application_name(&ctx), None).await
    }

    async fn upsert(&mut self, batch: Batch<Keyed>, _: &WriteContext) -> Result<(), SinkError> {
        self.writer.write(places(&batch))?;
        let pending = self.writer.interval.pending();
        if pending.rows >= self.rows_per_flush || pending.bytes >= self.bytes_per_flush {
            IdempotentSink::flush(self).await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        let count = self.writer.interval.changes.len();
        if count > 0 {
            let work = self.writer.work(count)?;
            match Box::pin(self.writer.flush(&[], &work, FLUSH)).await? {
                Flushed::Done => {}
                Flushed::Refused(failure) => return Err(self.writer.gave_up(failure, &work)),
            }
        }
        self.writer.clear_interval();
        Ok(())
    }

    async fn close(&mut self) {
        self.writer.close();
    }
}

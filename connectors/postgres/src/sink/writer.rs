//! The writing half: a connection, the target as the catalog describes it, and changes encoded for it. What a commit rests
//! on, positions, a marker or a key, is added by those who drive it.

use levada_core::{ErrorClass, Keyed, SinkError};
use tokio::sync::watch;

use super::catalog::Target;
use super::config::PostgresSinkConfig;
use super::error::{Failure, fatal};
use super::session::Session;
use super::statement::{Work, build};
use super::stats::{Health, Stats};
use super::write::{self, ColumnSets, Interval, Mappings, Place};

/// Column sets kept from one interval to the next. Rows whose sets of fields vary without end would grow them without
/// end.
const MAX_COLUMN_SETS: usize = 4096;

/// What to do while the server is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outage {
    /// Try to connect until it is back.
    Wait,
    /// Say so after one attempt: whoever drives the sink comes again.
    #[cfg_attr(not(feature = "write-ahead"), allow(dead_code, reason = "of sinks that are called again"))]
    Report,
}

/// Encodes changes and sends them into one table.
pub(crate) struct Writer {
    pub(crate) config: PostgresSinkConfig,
    pub(crate) outage: Outage,
    /// The name of its connections; empty until it is opened.
    pub(crate) application_name: String,
    pub(crate) session: Option<Session>,
    pub(crate) target: Option<Target>,
    sets: ColumnSets,
    mappings: Mappings,
    pub(crate) interval: Interval,
    pub(crate) stats: Stats,
    pub(crate) health: watch::Sender<Health>,
}

impl Writer {
    pub(crate) fn new(config: PostgresSinkConfig, outage: Outage) -> Self {
        Self {
            config,
            outage,
            application_name: String::new(),
            session: None,
            target: None,
            sets: ColumnSets::new(&[]),
            mappings: Mappings::default(),
            interval: Interval::default(),
            stats: Stats::default(),
            health: watch::Sender::new(Health::Closed),
        }
    }

    /// Takes the target that was read.
    pub(super) fn aim(&mut self, target: Target) {
        self.sets = ColumnSets::new(&target.key);
        self.mappings = Mappings::default();
        self.target = Some(target);
    }

    /// Encodes records. All of them, or, with an error, none.
    pub(crate) fn write<'a>(
        &mut self,
        records: impl Iterator<Item = (Place<'a>, &'a Keyed)>,
    ) -> Result<(), SinkError> {
        let Some(target) = &self.target else { return Err(fatal("the sink is not open")) };
        write::write(&mut self.interval, &mut self.mappings, &mut self.sets, target, records, &mut self.stats)
    }

    /// Makes the statements that apply the first `count` changes.
    pub(crate) fn work(&mut self, count: usize) -> Result<Work, SinkError> {
        let Some(target) = &self.target else { return Err(fatal("the sink is not open")) };
        Ok(build(&self.interval, count, target, &mut self.sets, self.config.rows_per_statement))
    }

    /// Empties the interval, and forgets column sets, which nothing refers to then, if there are too many.
    pub(crate) fn clear_interval(&mut self) {
        self.interval.clear();
        if self.sets.len() > MAX_COLUMN_SETS {
            self.sets = ColumnSets::new(self.target.as_ref().map_or(&[], |target| &target.key));
            self.mappings = Mappings::default();
        }
    }

    pub(crate) fn close(&mut self) {
        self.interval.clear();
        self.session = None;
        self.health.send_replace(Health::Closed);
    }

    pub(crate) fn count_retry(&mut self, failure: &Failure) {
        let code = failure.code.as_deref().unwrap_or("connection").to_owned();
        *self.stats.retries.entry(code).or_default() += 1;
    }

    pub(crate) fn count_flush(&mut self, work: &Work) {
        self.stats.flushes += 1;
        self.stats.rows += work.written + work.deleted;
    }

    /// Makes an error of a failed attempt that nothing here can mend.
    pub(crate) fn gave_up(&self, failure: Failure, work: &Work) -> SinkError {
        failure.during(format!("writing {} rows into {}", work.written + work.deleted, self.config.table))
    }

    /// Makes the error of a flush that fails while each of its prefixes passes.
    pub(crate) fn flickering(&self) -> SinkError {
        let table = &self.config.table;
        SinkError::new(
            ErrorClass::Retry,
            format!("a flush into {table} failed again and again, but its rows pass alone"),
        )
    }
}

//! Markers: rows that say which segments are in the data, written by the transaction that puts them there.

use std::sync::{Arc, Mutex, PoisonError};

use levada_core::template::Marker;
use levada_core::{CheckpointId, ErrorClass, SinkError};
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use super::failpoint;
use super::sql;
use crate::sink::commit::Lead;
use crate::sink::error::Failure;
use crate::sink::layout::{Layout, Privileges};

/// The tables of markers and fences.
pub(super) const MARKERS: Layout = Layout {
    what: "markers",
    find: sql::FIND_MARKERS,
    tables: sql::MARKERS_TABLES,
    read_version: sql::READ_VERSION,
    versioned_in: "levada.markers_meta",
    version: sql::MARKERS_VERSION,
    privileges: Some(Privileges { ask: sql::ASK_PRIVILEGES, grant: sql::GRANT_PRIVILEGES }),
};

/// Returns the statements that make the tables of markers and fences, for a database in which nothing may be created.
pub fn ddl() -> String {
    MARKERS.ddl()
}

/// The table `levada.markers`, for the sink that writes into it in its own transactions. Clones belong together: a sink's
/// and its [committer's](super::PostgresCommitter), which raises the fence that the sink looks at.
///
/// ```no_run
/// use levada_core::SinkError;
/// use levada_core::template::Segment;
/// use levada_postgres::write_ahead::MarkerTable;
///
/// async fn send(
///     markers: &MarkerTable,
///     client: &mut tokio_postgres::Client,
///     segment: &Segment<u64>,
/// ) -> Result<bool, Box<dyn std::error::Error>> {
///     let transaction = client.transaction().await?;
///     if !markers.write(&transaction, &segment.marker).await? {
///         return Ok(true); // it is there already; dropping the transaction rolls it back
///     }
///     for number in &segment.records {
///         transaction.execute("insert into numbers values ($1)", &[&(*number as i64)]).await?;
///     }
///     transaction.commit().await?;
///     Ok(true)
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct MarkerTable {
    /// The first checkpoint of this opening, once the fence was raised for it.
    first: Arc<Mutex<Option<CheckpointId>>>,
}

impl MarkerTable {
    /// Names the table; nothing is connected.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn set_first(&self, first: CheckpointId) {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(first);
    }

    fn first(&self) -> Option<CheckpointId> {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a segment's marker in the transaction that writes its records: before them, so that nothing is sent in vain.
    ///
    /// `false` means that the segment was committed before: roll back, and take it as sent. If somebody is writing the same
    /// marker just now, this waits for his transaction, within the connection's `lock_timeout`.
    ///
    /// # Errors
    /// [`ErrorClass::Fenced`] when a later opening of the sink has taken over. Classed by SQLSTATE otherwise. Roll back in
    /// each case.
    pub async fn write(&self, transaction: &Transaction<'_>, marker: &Marker) -> Result<bool, SinkError> {
        let row = self.row(marker);
        if let Some(fence) = row.fence_lead() {
            let checked = transaction.query(fence.sql, &fence.parameters).await.map_err(Failure::from);
            checked.map_err(|failure| match failure.is(DIVISION_BY_ZERO) {
                true => fenced(marker).caused_by(*failure.cause),
                false => failure.during(format!("looking at the fence for segment {marker}")),
            })?;
        }
        let written = transaction.execute(sql::WRITE_MARKER_ONCE, &row.parameters()).await;
        let written = written.map_err(Failure::from);
        Ok(written.map_err(|failure| failure.during(format!("writing the marker of segment {marker}")))? > 0)
    }

    pub(super) fn row<'a>(&self, marker: &'a Marker) -> MarkerRow<'a> {
        let first = self.first().filter(|_| failpoint::has_fence());
        MarkerRow {
            job: &marker.job,
            uid: &marker.uid,
            subtask: marker.subtask.cast_signed(),
            attempt: marker.checkpoint.attempt.cast_signed(),
            sequence: marker.checkpoint.sequence.cast_signed(),
            first: first.map(|first| (first.attempt.cast_signed(), first.sequence.cast_signed())),
        }
    }
}

/// What [`sql::CHECK_FENCE`] fails with.
pub(super) const DIVISION_BY_ZERO: &str = "22012";

/// What [`sql::WRITE_MARKER`] fails with when the marker is there.
pub(super) const UNIQUE_VIOLATION: &str = "23505";

pub(super) fn fenced(marker: &Marker) -> SinkError {
    let Marker { job, uid, .. } = marker;
    let message = format!(
        "segment {marker} is not this process's any more: a later opening of sink {uid:?} of job {job:?} has taken over, \
         its owner is in levada.fences"
    );
    SinkError::new(ErrorClass::Fenced, message)
}

/// A marker as parameters.
#[derive(Debug)]
pub(super) struct MarkerRow<'a> {
    job: &'a str,
    uid: &'a str,
    subtask: i32,
    attempt: i64,
    sequence: i64,
    first: Option<(i64, i64)>,
}

impl MarkerRow<'_> {
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.job, &self.uid, &self.subtask, &self.attempt, &self.sequence]
    }

    /// The comparison with the fence, if one was raised.
    pub(super) fn fence_lead(&self) -> Option<Lead<'_>> {
        let (attempt, sequence) = self.first.as_ref()?;
        let parameters: Vec<&(dyn ToSql + Sync)> = vec![&self.job, &self.uid, attempt, sequence];
        Some(Lead { sql: sql::CHECK_FENCE, parameters })
    }

    /// What stands in front of a segment's data.
    pub(super) fn leads(&self) -> Vec<Lead<'_>> {
        let mut leads = Vec::from_iter(self.fence_lead());
        if failpoint::has_marker() {
            leads.push(Lead { sql: sql::WRITE_MARKER, parameters: self.parameters().to_vec() });
        }
        leads
    }
}

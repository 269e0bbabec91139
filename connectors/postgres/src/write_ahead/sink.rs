//! Segments of changes into one table, each with its marker in one transaction.

use levada_core::batch::{Coordinates, Located};
use levada_core::template::{Segment, WriteAheadSink};
use levada_core::{Keyed, SinkContext, SinkError, SplitId, WriteOrder};
use tokio::sync::watch;

use super::committer::PostgresCommitter;
use super::failpoint::SEND;
use super::marker::{DIVISION_BY_ZERO, MARKERS, MarkerTable, UNIQUE_VIOLATION, fenced};
use crate::sink::application_name;
use crate::sink::flush::Flushed;
use crate::sink::write::Place;
use crate::sink::writer::{Outage, Writer};
use crate::{Health, PostgresSinkConfig, Stats};

/// A record of a segment.
pub trait SegmentRecord: Send + Sync {
    /// Returns the change.
    fn change(&self) -> &Keyed;

    /// Returns where the record comes from, if it has kept that; else errors name its place in the segment, counted from
    /// zero.
    fn coordinates(&self) -> Option<&Coordinates> {
        None
    }
}

impl SegmentRecord for Keyed {
    fn change(&self) -> &Keyed {
        self
    }
}

impl SegmentRecord for Located<Keyed> {
    fn change(&self) -> &Keyed {
        &self.item
    }

    fn coordinates(&self) -> Option<&Coordinates> {
        Some(&self.coordinates)
    }
}

/// Writes whole segments into one table, exactly once: the marker is in the data's transaction.
///
/// It does not wait for a server that is away: it says so, and the segment comes again with the next notification. What
/// became of a transaction whose answer was lost is told by the marker.
pub struct PostgresWriteAhead {
    writer: Writer,
    markers: MarkerTable,
    /// Whether a send was dropped in the middle: its connection may be in a transaction.
    is_interrupted: bool,
}

/// Shows numbers and names, no value and no password.
impl std::fmt::Debug for PostgresWriteAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresWriteAhead")
            .field("config", &self.writer.config)
            .field("health", &*self.writer.health.borrow())
            .finish_non_exhaustive()
    }
}

impl PostgresWriteAhead {
    /// Makes a sink and the committer that goes with it; nothing is connected before they are opened.
    pub fn with_committer(config: PostgresSinkConfig) -> (Self, PostgresCommitter) {
        let markers = MarkerTable::new();
        let committer = PostgresCommitter::of_sink(&config, markers.clone());
        (Self { writer: Writer::new(config, Outage::Report), markers, is_interrupted: false }, committer)
    }

    /// Returns what was counted so far.
    pub fn stats(&self) -> &Stats {
        &self.writer.stats
    }

    /// Follows whether the server can be reached.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.writer.health.subscribe()
    }

    async fn send_segment<R: SegmentRecord>(&mut self, segment: &Segment<R>) -> Result<(), SinkError> {
        let marker = &segment.marker;
        let place_of_segment =
            SplitId::new(format!("{}/{}/{}", marker.job, marker.uid, marker.checkpoint), marker.subtask);
        let records = (0..).zip(&segment.records).map(|(number, record)| {
            let place = match record.coordinates() {
                Some(Coordinates { split, offset }) => Place { split, offset: *offset },
                None => Place { split: &place_of_segment, offset: number },
            };
            (place, record.change())
        });
        self.writer.write(records)?;
        let work = self.writer.work(self.writer.interval.changes.len())?;
        let row = self.markers.row(marker);
        match Box::pin(self.writer.flush(&row.leads(), &work, SEND)).await? {
            Flushed::Done => Ok(()),
            Flushed::Refused(failure) if failure.is(UNIQUE_VIOLATION) => {
                tracing::info!(%marker, "this segment was committed before, its marker says");
                Ok(())
            }
            Flushed::Refused(failure) if failure.is(DIVISION_BY_ZERO) => {
                Err(fenced(marker).caused_by(*failure.cause))
            }
            Flushed::Refused(failure) => {
                Err(failure.during(format!("writing the marker of segment {marker}")))
            }
        }
    }
}

impl<R: SegmentRecord> WriteAheadSink<R> for PostgresWriteAhead {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.writer.open(application_name(&ctx), Some(&MARKERS)).await
    }

    async fn send(&mut self, segment: &Segment<R>) -> Result<bool, SinkError> {
        if std::mem::replace(&mut self.is_interrupted, true) {
            self.writer.session = None;
            self.writer.clear_interval();
        }
        let sent = self.send_segment(segment).await;
        self.writer.clear_interval();
        self.is_interrupted = false;
        sent.map(|()| true)
    }

    fn write_order(&self) -> WriteOrder {
        self.writer.config.mode.write_order()
    }

    async fn close(&mut self) {
        self.writer.close();
    }
}

//! The parts of the pipeline file about event time.

use std::time::Duration;

use super::fields::{Field, Section};
use super::postgres::{UNITS, Unit};

/// Where a record's event time comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTimePart {
    /// Where it is looked for.
    pub from: TimeFrom,
    /// What becomes of a record without one.
    pub without: WithoutTime,
}

impl Default for EventTimePart {
    fn default() -> Self {
        Self { from: TimeFrom::Record, without: WithoutTime::Fail }
    }
}

/// Where a record's event time is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeFrom {
    /// Kafka's own timestamp of the record.
    Record,
    /// A field of the row, its key columns included.
    Field(TimeField),
}

/// A field that holds a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeField {
    /// Its name. A dot is part of the name.
    pub name: String,
    /// What a number counts; without one, a number is no time.
    pub unit: Option<Unit>,
    /// Whether a time without an offset is UTC; else it is none.
    pub assume_utc: bool,
}

/// What becomes of a record without an event time: the field is absent, null or of a wrong kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutTime {
    /// The pipeline stops and names the record.
    Fail,
    /// Kafka's own timestamp counts in its place.
    TakeRecord,
}

/// What makes watermarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkPart {
    /// How much older than the newest record of its partition a record may be.
    pub bound: Duration,
    /// The time between two watermarks.
    pub every: Duration,
    /// How long a partition must be at its end before it can be idle; `None` means that it never is.
    pub idle_after: Option<Duration>,
    /// How far a partition may be ahead of the slowest one of this process.
    pub max_drift: Option<Duration>,
}

pub(super) fn event_time(field: &Field<'_>) -> Option<EventTimePart> {
    #[derive(Clone, Copy, PartialEq)]
    enum From {
        Record,
        Field,
    }
    let section = field.section()?;
    let origins = [("record", From::Record), ("field", From::Field)];
    let from = section.optional("from").map_or(Some(From::Record), |field| field.choice(&origins));
    let of_field = time_field(&section, from == Some(From::Field));
    let policies = [("fail", WithoutTime::Fail), ("record", WithoutTime::TakeRecord)];
    let without_field = section.optional("without");
    let without = without_field.as_ref().map_or(Some(WithoutTime::Fail), |field| field.choice(&policies));
    section.finish();
    match from? {
        From::Field => Some(EventTimePart { from: TimeFrom::Field(of_field?), without: without? }),
        From::Record => {
            if let (Some(field), Some(WithoutTime::TakeRecord)) = (without_field, without) {
                field.error("\"record\" needs \"from: field\": the record's own timestamp is all there is");
            }
            Some(EventTimePart { from: TimeFrom::Record, without: without? })
        }
    }
}

/// Reads what belongs to a field, and says of each that it does where there is none.
fn time_field(section: &Section<'_>, is_wanted: bool) -> Option<TimeField> {
    let name_field = match is_wanted {
        true => section.required("field", "the field that holds the time"),
        false => section.optional("field"),
    };
    let (unit_field, utc_field) = (section.optional("unit"), section.optional("assume_utc"));
    if !is_wanted {
        for field in [&name_field, &unit_field, &utc_field].into_iter().flatten() {
            field.error("goes with \"from: field\" only");
        }
        return None;
    }
    let name = name_field.and_then(|field| field.name());
    let unit = unit_field.map(|field| field.choice(&UNITS));
    let assume_utc = utc_field.map_or(Some(false), |field| field.flag());
    let unit = match unit {
        Some(unit) => Some(unit?),
        None => None,
    };
    Some(TimeField { name: name?, unit, assume_utc: assume_utc? })
}

pub(super) fn watermark(field: &Field<'_>) -> Option<WatermarkPart> {
    const EVERY: Duration = Duration::from_millis(200);
    let section = field.section()?;
    let bound = section
        .required("bound", "how much older than the newest record of its partition a record may be")
        .and_then(|field| field.duration());
    let every = section.optional("every").map_or(Some(EVERY), |field| some_time(&field));
    let idle_after = section.optional("idle_after").map(|field| some_time(&field));
    let drift_field = section.optional("max_drift");
    let max_drift = drift_field.as_ref().map(Field::duration);
    if let (Some(field), None) = (&drift_field, &idle_after) {
        field.error(
            "needs \"idle_after\": a partition without records would keep all others waiting for ever",
        );
    }
    section.finish();
    Some(WatermarkPart {
        bound: bound?,
        every: every?,
        idle_after: idle_after.flatten(),
        max_drift: max_drift.flatten(),
    })
}

/// Reads a duration that is more than nothing.
pub(super) fn some_time(field: &Field<'_>) -> Option<Duration> {
    let duration = field.duration()?;
    if duration.is_zero() {
        field.error("must be more than nothing");
        return None;
    }
    Some(duration)
}

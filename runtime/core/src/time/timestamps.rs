//! Gives records their timestamps.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::batch::{Origin, TimestampKind};
use crate::clock::Timestamp;

type Field<T> = Arc<dyn Fn(&T) -> Option<Timestamp> + Send + Sync>;

/// Where the timestamp of a record comes from. [TIM-03]
#[non_exhaustive]
pub enum TimestampFrom<T> {
    /// The source gave it: in Kafka the record's own, whoever set it; in a source function the one that it emitted with.
    Origin,
    /// A function finds it in the record, usually in a field.
    Field(Field<T>),
}

impl<T> TimestampFrom<T> {
    /// Takes it from the record by `field`.
    pub fn field(field: impl Fn(&T) -> Option<Timestamp> + Send + Sync + 'static) -> Self {
        Self::Field(Arc::new(field))
    }
}

impl<T> Clone for TimestampFrom<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Origin => Self::Origin,
            Self::Field(field) => Self::Field(Arc::clone(field)),
        }
    }
}

impl<T> fmt::Debug for TimestampFrom<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Origin => "Origin",
            Self::Field(_) => "Field",
        })
    }
}

/// What becomes of a record without a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WithoutTimestamp {
    /// The job ends and names the record.
    #[default]
    Fail,
    /// The source's timestamp is taken in its place; where that is missing too, the job ends.
    TakeOrigin,
    /// The record is refused, and goes where refused records go.
    Refuse,
}

/// A record has no timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingTimestamp {
    /// Whether the policy refuses the record. Otherwise the job ends.
    pub is_refused: bool,
}

impl fmt::Display for MissingTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the record has no timestamp")
    }
}

impl Error for MissingTimestamp {}

/// How many records had no timestamp where one was looked for, and what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MissingTimestamps {
    /// Those that took the source's in its place.
    pub taken_from_origin: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Those that ended the job.
    pub failed: u64,
}

/// Gives timestamps to the records of one subtask, and counts those that have none.
#[derive(Debug)]
pub struct TimestampAssigner<T> {
    from: TimestampFrom<T>,
    otherwise: WithoutTimestamp,
    missing: MissingTimestamps,
}

impl<T> TimestampAssigner<T> {
    /// Takes timestamps from `from`, and does as `otherwise` says where there is none.
    pub fn new(from: TimestampFrom<T>, otherwise: WithoutTimestamp) -> Self {
        Self { from, otherwise, missing: MissingTimestamps::default() }
    }

    /// Returns the timestamp of a record.
    ///
    /// # Errors
    /// The record has none, and the policy does not take another in its place.
    pub fn assign(&mut self, origin: &Origin, item: &T) -> Result<Timestamp, MissingTimestamp> {
        let of_origin = (origin.timestamp_kind != TimestampKind::None).then_some(origin.timestamp);
        let found = match &self.from {
            TimestampFrom::Origin => of_origin,
            TimestampFrom::Field(field) => field(item),
        };
        match found {
            Some(timestamp) => Ok(timestamp),
            None => self.without(of_origin),
        }
    }

    /// Returns how many records had no timestamp so far.
    pub fn missing(&self) -> MissingTimestamps {
        self.missing
    }

    fn without(&mut self, of_origin: Option<Timestamp>) -> Result<Timestamp, MissingTimestamp> {
        match (self.otherwise, of_origin) {
            (WithoutTimestamp::TakeOrigin, Some(timestamp)) => {
                self.missing.taken_from_origin += 1;
                Ok(timestamp)
            }
            (WithoutTimestamp::Refuse, _) => {
                self.missing.refused += 1;
                Err(MissingTimestamp { is_refused: true })
            }
            (WithoutTimestamp::Fail | WithoutTimestamp::TakeOrigin, _) => {
                self.missing.failed += 1;
                Err(MissingTimestamp { is_refused: false })
            }
        }
    }
}

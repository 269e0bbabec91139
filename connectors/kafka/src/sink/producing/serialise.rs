//! How a record becomes messages.

use levada_core::batch::{Coordinates, HeaderIter};
use levada_core::{Batch, BoxError, Record, Timestamp};

use super::message::{Message, Outgoing};

/// A record in its batch: what was made of it, and what was read.
#[derive(Debug)]
pub struct InBatch<'b, T> {
    batch: &'b Batch<T>,
    record: &'b Record<T>,
}

impl<T> Clone for InBatch<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for InBatch<'_, T> {}

impl<'b, T> InBatch<'b, T> {
    /// Puts a record of `batch` beside it.
    pub fn new(batch: &'b Batch<T>, record: &'b Record<T>) -> Self {
        Self { batch, record }
    }

    /// Returns what the steps have made of it.
    pub fn item(&self) -> &'b T {
        &self.record.item
    }

    /// Returns the key as it was read; `None` is null.
    pub fn key(&self) -> Option<&'b [u8]> {
        self.batch.key(&self.record.origin)
    }

    /// Returns the value as it was read; `None` is a tombstone.
    pub fn value(&self) -> Option<&'b [u8]> {
        self.batch.value(&self.record.origin)
    }

    /// Walks through the headers as they were read.
    pub fn headers(&self) -> HeaderIter<'b> {
        self.batch.headers(&self.record.origin)
    }

    /// Returns the record's timestamp, if it has one.
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.record.timestamp()
    }

    /// Names the record's place.
    pub fn coordinates(&self) -> Coordinates {
        self.batch.coordinates(&self.record.origin)
    }
}

/// Turns a record into messages. Closures `FnMut(InBatch<'_, T>, &mut Outgoing) -> Result<(), BoxError>` do, too.
pub trait Serialise<T>: Send + 'static {
    /// Pushes the record's messages: mostly one, or none to skip it, or several, each for a topic of its own choice.
    ///
    /// # Errors
    /// The record cannot be written: the sink names its coordinates. What was pushed is dropped.
    fn serialise(&mut self, record: InBatch<'_, T>, out: &mut Outgoing) -> Result<(), BoxError>;
}

impl<T, F> Serialise<T> for F
where
    F: FnMut(InBatch<'_, T>, &mut Outgoing) -> Result<(), BoxError> + Send + 'static,
{
    fn serialise(&mut self, record: InBatch<'_, T>, out: &mut Outgoing) -> Result<(), BoxError> {
        self(record, out)
    }
}

/// Writes records to one topic as they were read: key, value, headers and timestamp, whatever the steps have made of them.
#[derive(Debug, Clone)]
pub struct AsRead {
    topic: String,
}

impl AsRead {
    /// Writes to `topic`.
    pub fn to(topic: impl Into<String>) -> Self {
        Self { topic: topic.into() }
    }
}

impl<T> Serialise<T> for AsRead {
    fn serialise(&mut self, record: InBatch<'_, T>, out: &mut Outgoing) -> Result<(), BoxError> {
        let mut message = Message::to(&self.topic).key_opt(record.key()).value_opt(record.value());
        for (name, value) in record.headers() {
            let name = std::str::from_utf8(name).map_err(|_| "the name of a header is no UTF-8")?;
            message = message.header(name, value);
        }
        if let Some(timestamp) = record.timestamp() {
            message = message.timestamp(timestamp);
        }
        out.push(&message);
        Ok(())
    }
}

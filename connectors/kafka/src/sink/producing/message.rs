//! Messages, as a serialiser makes them.

use levada_core::Timestamp;

/// A message to write, borrowed from wherever its parts stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'m> {
    pub(super) topic: &'m str,
    pub(super) key: Option<&'m [u8]>,
    pub(super) value: Option<&'m [u8]>,
    pub(super) headers: Vec<(&'m str, Option<&'m [u8]>)>,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) partition: Option<u32>,
}

impl<'m> Message<'m> {
    /// Makes a message for `topic` with a null key, a null value (a tombstone), no headers and the time of its sending.
    pub fn to(topic: &'m str) -> Self {
        Self { topic, key: None, value: None, headers: Vec::new(), timestamp: None, partition: None }
    }

    /// Sets the key; an empty one is not null.
    #[must_use]
    pub fn key(self, key: &'m [u8]) -> Self {
        self.key_opt(Some(key))
    }

    /// Sets the key; `None` is null.
    #[must_use]
    pub fn key_opt(mut self, key: Option<&'m [u8]>) -> Self {
        self.key = key;
        self
    }

    /// Sets the value; an empty one is no tombstone.
    #[must_use]
    pub fn value(self, value: &'m [u8]) -> Self {
        self.value_opt(Some(value))
    }

    /// Sets the value; `None` is a tombstone.
    #[must_use]
    pub fn value_opt(mut self, value: Option<&'m [u8]>) -> Self {
        self.value = value;
        self
    }

    /// Appends a header, whose value may be null. Names may repeat; the order is kept.
    #[must_use]
    pub fn header(mut self, name: &'m str, value: Option<&'m [u8]>) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets the timestamp: in milliseconds after 1970 began. Zero and less are refused, because the client takes zero for
    /// *now*, and brokers take nothing below.
    #[must_use]
    pub fn timestamp(mut self, timestamp: Timestamp) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// Names the partition; without it, the sink's [partitioner](super::Partitioner) chooses by the key.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Returns the size of key, value and headers in bytes.
    pub fn bytes(&self) -> usize {
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        let headers = self.headers.iter().map(|(name, value)| name.len() + length(*value)).sum::<usize>();
        length(self.key) + length(self.value) + headers
    }

    /// Says why the client cannot send this as it is.
    pub(super) fn unsendable(&self) -> Option<&'static str> {
        if self.topic.is_empty() || self.topic.contains('\0') {
            return Some("no topic can have this name");
        }
        if self.timestamp.is_some_and(|at| at.0 <= 0) {
            return Some("its timestamp is zero, which the client takes for now, or before 1970");
        }
        if self.partition.is_some_and(|partition| i32::try_from(partition).is_err()) {
            return Some("no partition has this number");
        }
        None
    }
}

/// The messages that a serialiser has made of one record. Its memory is used again for the next one.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    drafts: Vec<Draft>,
    headers: Vec<(Part, Option<Part>)>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
}

#[derive(Debug)]
struct Draft {
    topic: Part,
    key: Option<Part>,
    value: Option<Part>,
    /// Where its headers stand.
    headers: Part,
    timestamp: Option<Timestamp>,
    partition: Option<u32>,
}

impl Outgoing {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a copy of a message.
    pub fn push(&mut self, message: &Message<'_>) {
        let draft = Draft {
            topic: self.copy(message.topic.as_bytes()),
            key: message.key.map(|key| self.copy(key)),
            value: message.value.map(|value| self.copy(value)),
            headers: self.copy_headers(&message.headers),
            timestamp: message.timestamp,
            partition: message.partition,
        };
        self.drafts.push(draft);
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.drafts.len()
    }

    /// Tells whether there is no message: the record is skipped.
    pub fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Walks through the messages in order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        self.drafts.iter().map(|draft| self.message(draft))
    }

    /// Drops the messages and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.drafts.clear();
        self.headers.clear();
    }

    fn message(&self, draft: &Draft) -> Message<'_> {
        let headers = self.headers[draft.headers.start..draft.headers.end].iter();
        Message {
            topic: self.text(draft.topic),
            key: draft.key.map(|part| self.part(part)),
            value: draft.value.map(|part| self.part(part)),
            headers: headers
                .map(|(name, value)| (self.text(*name), value.map(|part| self.part(part))))
                .collect(),
            timestamp: draft.timestamp,
            partition: draft.partition,
        }
    }

    fn copy(&mut self, part: &[u8]) -> Part {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(part);
        Part { start, end: self.bytes.len() }
    }

    fn copy_headers(&mut self, headers: &[(&str, Option<&[u8]>)]) -> Part {
        let start = self.headers.len();
        for (name, value) in headers {
            let name = self.copy(name.as_bytes());
            let value = value.map(|value| self.copy(value));
            self.headers.push((name, value));
        }
        Part { start, end: self.headers.len() }
    }

    fn part(&self, part: Part) -> &[u8] {
        &self.bytes[part.start..part.end]
    }

    /// Only whole strings were copied in as text.
    fn text(&self, part: Part) -> &str {
        std::str::from_utf8(self.part(part)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were_pushed() {
        let messages = [
            Message::to("delays").key(b"k").value(b"").header("h", None).header("h", Some(b"")),
            Message::to("planes").key(b"").timestamp(Timestamp(7)).partition(3).header("", Some(b"x")),
            Message::to("delays"),
        ];
        let mut out = Outgoing::new();
        out.push(&Message::to("of the record before"));
        out.clear();
        messages.iter().for_each(|message| out.push(message));
        assert_eq!(out.messages().collect::<Vec<_>>(), messages);
        assert_eq!(messages.each_ref().map(Message::bytes), [3, 1, 0]);
    }

    /// The client takes a timestamp of zero for none, and would write another time in silence.
    #[test]
    fn timestamp_of_zero_cannot_be_sent() {
        assert!(Message::to("t").timestamp(Timestamp(0)).unsendable().is_some());
        assert!(Message::to("t").timestamp(Timestamp(1)).unsendable().is_none());
    }
}

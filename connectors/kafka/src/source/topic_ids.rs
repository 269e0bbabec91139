//! Whether topics are still those whose positions were told.
//!
//! A topic that was deleted and made anew would be read on at the old offset, where other records stand. The client has no
//! event for it, but a line of its log, which comes in the queue of the events, before anything of the new topic: the client
//! fetches by topic id, and writes the line before it takes the new id over.

use std::collections::BTreeMap;

use super::error::ReadError;

/// What an id is as long as none is known.
const ZERO: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// The ids that topics had when their starts were told. Without those of brokers that know none (before 2.8).
#[derive(Debug, Default)]
pub(super) struct TopicIds(BTreeMap<String, String>);

impl TopicIds {
    pub(super) fn set(&mut self, topic: &str, id: &str) {
        self.0.insert(topic.to_owned(), id.to_owned());
    }

    /// Looks at a line of the client's log, whether or not anything of the topic is read now: what is added later would be read
    /// at positions of the topic that is gone.
    ///
    /// # Errors
    /// The line tells that a topic has another id now.
    pub(super) fn check(&self, line: &str) -> Result<(), ReadError> {
        let Some((topic, is)) = id_in(line) else { return Ok(()) };
        match self.0.get(topic) {
            Some(was) if was != is => {
                let [was, is] = [was, is].map(as_kafka_prints);
                Err(ReadError::TopicAnew { topic: topic.to_owned(), was, is })
            }
            _ => Ok(()),
        }
    }
}

/// Reads the line by which the client tells a topic's id, be it the first that it learns or another one: name and id.
fn id_in(line: &str) -> Option<(&str, &str)> {
    let (before, ids) = line.split_once(" changed id from ")?;
    let (_, topic) = before.rsplit_once("Topic ")?;
    let (_, is) = ids.trim_end().split_once(" to ")?;
    (is != ZERO).then_some((topic, is))
}

/// Writes an id as Kafka's own tools do, so that whoever is told it can look for it: in base64 for URLs, and not as the
/// client writes it.
pub(super) fn as_kafka_prints(id: &str) -> String {
    id.replace('+', "-").replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [SRC-07] the two ids in the refusal of a topic that was made anew are those that `kafka-topics --describe` shows.
    #[test]
    fn topic_id_reads_as_in_kafkas_own_tools() {
        assert_eq!(as_kafka_prints("tXxPC7QjQ+SXiHh/3GXnrw"), "tXxPC7QjQ-SXiHh_3GXnrw");
    }

    /// [SRC-07] the first id that the client learns counts as well: the topic may have been made anew just before.
    #[test]
    fn another_id_than_the_one_told_is_refused() {
        let mut ids = TopicIds::default();
        ids.set("t", "tXxPC7QjQ+SXiHh/3GXnrw");
        let line = |topic, was, is| format!("[thrd:main]: Topic {topic} changed id from {was} to {is}");
        let new = "uXxPC7QjQ+SXiHh/3GXnrw";
        assert!(ids.check(&line("t", ZERO, "tXxPC7QjQ+SXiHh/3GXnrw")).is_ok());
        assert!(ids.check(&line("t", "tXxPC7QjQ+SXiHh/3GXnrw", ZERO)).is_ok());
        assert!(ids.check(&line("other", ZERO, new)).is_ok());
        assert!(ids.check("Topic t [0] Leader 1 Epoch 0").is_ok());
        for was in [ZERO, "tXxPC7QjQ+SXiHh/3GXnrw"] {
            let message = ids.check(&line("t", was, new)).expect_err("made anew").to_string();
            assert!(message.contains("tXxPC7QjQ-SXiHh_3GXnrw") && message.contains("uXxPC7QjQ-SXiHh_3GXnrw"));
        }
    }
}

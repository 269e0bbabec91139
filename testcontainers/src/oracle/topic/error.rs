//! Why a topic's contents are not known.

use std::time::Duration;

use super::Isolation;
use crate::Error;

/// A failure to read a topic to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// One of Kafka's tools could not be run, or failed: the topic does not exist, the broker is away.
    #[error("cannot read topic {topic} at {bootstrap}")]
    Tool {
        /// The topic.
        topic: String,
        /// The broker's address.
        bootstrap: String,
        /// What the tool said.
        source: Error,
    },
    /// A tool's answer is not what was asked for, and is not guessed at.
    #[error("an answer of {tool} about topic {topic} is not understood ({reason}): {text}")]
    Answer {
        /// The topic.
        topic: String,
        /// The class of the tool.
        tool: &'static str,
        /// What is wrong with it.
        reason: &'static str,
        /// The beginning of the line or of the answer.
        text: String,
    },
    /// The end was not reached in time, and no open transaction is the reason.
    #[error("{isolation} reached {} of {end} in partition {partition} of topic {topic} within {after:?}",
        position.map_or_else(|| "nothing".to_owned(), |position| position.to_string()))]
    EndNotReached {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The isolation level that came no further.
        isolation: Isolation,
        /// The next offset to read; `None` if it is not known.
        position: Option<i64>,
        /// The offset after the last one of the partition.
        end: i64,
        /// How long was read.
        after: Duration,
    },
}

/// Returns the beginning of a text, for a message.
pub(super) fn beginning(text: &str) -> String {
    text.chars().take(300).collect()
}

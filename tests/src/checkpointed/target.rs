//! What a job writes to.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a job writes to: the right way, or in one of the ways that a crash loop must find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The transactional file sink.
    Files,
    /// The same, but a transaction is published when it is only to be prepared.
    FilesPublishedEarly,
    /// The same, but what an earlier process has left prepared is forgotten.
    FilesLeftPending,
    /// A write-ahead sink that appends to files, with the committer of files.
    Appended,
    /// The same, but a segment counts as sent before it is.
    AppendedMarkedFirst,
    /// The same, but nobody remembers what was sent.
    AppendedNeverKnown,
    /// The write-ahead sink of Postgres, which writes the markers with the rows; with the database's URL.
    Rows(String),
    /// The same, but the markers are written afterwards.
    RowsMarkedApart(String),
    /// The transactional Kafka sink, into a topic, with the timeout of its transactions.
    Topic(String, Duration),
    /// The same, but its ids are initialised at a start before anything else.
    TopicInitialisedFirst(String),
    /// A sink whose transactions share an epoch.
    TopicOfOneEpoch(String),
}

/// The word that names each target on a command line; others have an equals sign and an address behind it.
const WORDS: [(&str, Target); 6] = [
    ("files", Target::Files),
    ("files-published-early", Target::FilesPublishedEarly),
    ("files-left-pending", Target::FilesLeftPending),
    ("appended", Target::Appended),
    ("appended-marked-first", Target::AppendedMarkedFirst),
    ("appended-never-known", Target::AppendedNeverKnown),
];
const ROWS: &str = "rows";
const ROWS_MARKED_APART: &str = "rows-marked-apart";
const TOPIC: &str = "topic";
const TOPIC_INITIALISED_FIRST: &str = "topic-initialised-first";
const TOPIC_OF_ONE_EPOCH: &str = "topic-of-one-epoch";

/// Reads `NAME,MILLISECONDS`.
fn topic(address: &str) -> Option<Target> {
    let (name, milliseconds) = address.rsplit_once(',')?;
    Some(Target::Topic(name.to_owned(), Duration::from_millis(milliseconds.parse().ok()?)))
}

impl FromStr for Target {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word.split_once('=') {
            Some((ROWS, url)) => return Ok(Target::Rows(url.to_owned())),
            Some((ROWS_MARKED_APART, url)) => return Ok(Target::RowsMarkedApart(url.to_owned())),
            Some((TOPIC, address)) => {
                return topic(address).ok_or_else(|| format!("{address:?} is no topic"));
            }
            Some((TOPIC_INITIALISED_FIRST, name)) => {
                return Ok(Target::TopicInitialisedFirst(name.to_owned()));
            }
            Some((TOPIC_OF_ONE_EPOCH, name)) => return Ok(Target::TopicOfOneEpoch(name.to_owned())),
            _ => {}
        }
        let found = WORDS.into_iter().find(|(name, _)| *name == word);
        found.map(|(_, target)| target).ok_or_else(|| format!("{word:?} is no target"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Rows(url) => write!(f, "{ROWS}={url}"),
            Target::RowsMarkedApart(url) => write!(f, "{ROWS_MARKED_APART}={url}"),
            Target::Topic(name, timeout) => write!(f, "{TOPIC}={name},{}", timeout.as_millis()),
            Target::TopicInitialisedFirst(name) => write!(f, "{TOPIC_INITIALISED_FIRST}={name}"),
            Target::TopicOfOneEpoch(name) => write!(f, "{TOPIC_OF_ONE_EPOCH}={name}"),
            plain => {
                let found = WORDS.iter().find(|(_, target)| target == plain);
                f.write_str(found.map_or("unnamed", |(name, _)| name))
            }
        }
    }
}

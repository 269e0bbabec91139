//! The reading: rounds of the console consumer until the ends are reached.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::progress::Progress;
use super::session::Session;
use super::transactions::oldest_open;
use super::{Isolation, OpenEnd, ReadError, TopicContents, group, offsets};

/// Long beside a reading, which takes some seconds, and up to a minute on a machine with ten times its work.
const PATIENCE: Duration = Duration::from_secs(180);

/// Reads a whole topic at both isolation levels, up to what is written when the reading starts.
///
/// It costs three to six starts of a JVM, some seconds: once at the end of a test, not in a loop.
///
/// # Errors
///
/// As [`TopicReader::read`].
///
/// ```no_run
/// use levada_testcontainers::{Kafka, oracle::{self, Payload}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kafka = Kafka::shared()?;
/// // ... the program under test writes to the topic ...
/// let contents = oracle::topic(kafka.bootstrap(), "orders")?;
/// println!("{contents}");
/// let sent = (0..1000).map(|n| Some(Payload::from(n.to_string())));
/// oracle::exactly_once(sent, contents.committed_values())?;
/// # Ok(())
/// # }
/// ```
pub fn topic(bootstrap: &str, topic: &str) -> Result<TopicContents, ReadError> {
    TopicReader::new(bootstrap).read(topic)
}

/// A way to read topics: the address, the client's properties and the patience.
#[derive(Clone, Debug)]
pub struct TopicReader {
    bootstrap: String,
    client_properties: Option<PathBuf>,
    patience: Duration,
}

impl TopicReader {
    /// Creates a reader for the broker at an address, with a patience of three minutes.
    #[must_use]
    pub fn new(bootstrap: &str) -> TopicReader {
        TopicReader { bootstrap: bootstrap.to_owned(), client_properties: None, patience: PATIENCE }
    }

    /// Sets a file with the client's properties, in Java's format: how to get past TLS and SASL.
    #[must_use]
    pub fn client_properties(mut self, file: impl Into<PathBuf>) -> TopicReader {
        self.client_properties = Some(file.into());
        self
    }

    /// Sets how long is read in vain, before the reading fails. A round under way is not broken off.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> TopicReader {
        self.patience = patience;
        self
    }

    /// Reads a whole topic at both isolation levels, up to what is written when the reading starts.
    ///
    /// A partition is read to its end when the reader's group has come to it, past markers of transactions and holes; or,
    /// with `read_committed`, to the first record of an open transaction, which is told in [`TopicContents::open`]. The
    /// groups are the reader's own, and are deleted.
    ///
    /// # Errors
    ///
    /// [`ReadError`]: the topic or the broker is not there, an answer is not understood, or an end is not reached in time.
    /// The last is also what a hole of compaction right before an open transaction leads to: nothing shows that nothing is
    /// missing there.
    pub fn read(&self, topic: &str) -> Result<TopicContents, ReadError> {
        let file = self.client_properties.as_deref().map(|path| path.display().to_string());
        let session = Session { bootstrap: &self.bootstrap, topic, client_properties: file.as_deref() };
        let ends = offsets::ends(&session)?;
        let mut both = [Progress::new(Isolation::Committed), Progress::new(Isolation::Uncommitted)];
        let read = self.rounds(&session, &ends, &mut both);
        // Also after a failure: the groups are ours.
        let groups: Vec<&str> =
            both.iter().filter(|progress| progress.has_group()).map(Progress::group).collect();
        let deleted = if groups.is_empty() { Ok(()) } else { group::delete(&session, &groups) };
        read?;
        deleted?;
        let [committed, uncommitted] = both;
        let (committed, open) = committed.into_records();
        let (uncommitted, _) = uncommitted.into_records();
        Ok(TopicContents { topic: topic.to_owned(), committed, uncommitted, ends, open })
    }

    /// Reads in rounds until both isolation levels are through.
    fn rounds(
        &self,
        session: &Session<'_>,
        ends: &BTreeMap<i32, i64>,
        both: &mut [Progress; 2],
    ) -> Result<(), ReadError> {
        let started = Instant::now();
        loop {
            let mut unfinished: Vec<&mut Progress> =
                both.iter_mut().filter(|progress| !progress.is_through(ends)).collect();
            let Some(first) = unfinished.first() else { return Ok(()) };
            if started.elapsed() >= self.patience {
                return Err(self.end_not_reached(session, ends, first));
            }
            read_at_once(session, ends, &mut unfinished)?;
            unfinished.retain(|progress| !progress.is_through(ends));
            ask_positions(session, &mut unfinished)?;
            for progress in unfinished {
                find_open_ends(session, ends, progress)?;
            }
        }
    }

    fn end_not_reached(
        &self,
        session: &Session<'_>,
        ends: &BTreeMap<i32, i64>,
        progress: &Progress,
    ) -> ReadError {
        let (partition, position, end) = progress.unfinished(ends).next().unwrap_or_default();
        ReadError::EndNotReached {
            topic: session.topic.to_owned(),
            partition,
            isolation: progress.isolation(),
            position,
            end,
            after: self.patience,
        }
    }
}

/// Runs a round of each console consumer, all at the same time: most of a round is a JVM that starts, and a wait.
fn read_at_once(
    session: &Session<'_>,
    ends: &BTreeMap<i32, i64>,
    unfinished: &mut [&mut Progress],
) -> Result<(), ReadError> {
    std::thread::scope(|scope| {
        let mut rounds = Vec::new();
        for progress in unfinished.iter_mut() {
            rounds.push(scope.spawn(|| progress.read(session, ends)));
        }
        let mut result = Ok(());
        for round in rounds {
            let read = round.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(read);
        }
        result
    })
}

/// Learns how far the groups are: markers and holes have no record that would tell.
fn ask_positions(session: &Session<'_>, unfinished: &mut [&mut Progress]) -> Result<(), ReadError> {
    let groups: Vec<&str> = unfinished.iter().map(|progress| progress.group()).collect();
    if groups.is_empty() {
        return Ok(());
    }
    for ((group, partition), position) in group::positions(session, &groups)? {
        for progress in unfinished.iter_mut().filter(|progress| progress.group() == group) {
            progress.reach(partition, position);
        }
    }
    Ok(())
}

/// Finds the partitions that an open transaction holds up: `read_committed` has come to its first record.
fn find_open_ends(
    session: &Session<'_>,
    ends: &BTreeMap<i32, i64>,
    progress: &mut Progress,
) -> Result<(), ReadError> {
    if progress.isolation() == Isolation::Uncommitted {
        return Ok(());
    }
    let held_up: Vec<(i32, Option<i64>, i64)> = progress.unfinished(ends).collect();
    for (partition, position, end) in held_up {
        let Some(position) = position else { continue };
        let open = oldest_open(session, partition)?;
        if let Some(open) = open.filter(|open| open.first_offset <= position) {
            progress.stop(OpenEnd { partition, position, end, producer_id: open.producer_id });
        }
    }
    Ok(())
}

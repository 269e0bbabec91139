//! How far one isolation level has read, and its next round.

use std::collections::BTreeMap;
use std::time::Duration;

use super::line::formatter_properties;
use super::session::Session;
use super::{Isolation, OpenEnd, ReadError, Record};
use crate::unique_name;

const TOOL: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";

/// How long the console consumer waits for a record at first. It ends a round and not the reading: joining the group may
/// take longer on a busy machine, so a round that came no further doubles it. A topic without markers and holes is read
/// without any wait.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// What one isolation level has read, with a consumer group of its own.
#[derive(Debug)]
pub(super) struct Progress {
    isolation: Isolation,
    group: String,
    /// The text that stands for null: nobody's key or value.
    null: String,
    /// By partition and offset: a round whose positions were not committed is read again.
    records: BTreeMap<(i32, i64), Record>,
    /// The next offset to read, by partition.
    positions: BTreeMap<i32, i64>,
    /// The partitions that come no further.
    open: Vec<OpenEnd>,
    wait: Duration,
    /// Whether a console consumer ran, and may have made the group.
    has_group: bool,
}

impl Progress {
    pub(super) fn new(isolation: Isolation) -> Progress {
        Progress {
            isolation,
            group: unique_name("levada_oracle"),
            null: unique_name("null"),
            records: BTreeMap::new(),
            positions: BTreeMap::new(),
            open: Vec::new(),
            wait: FIRST_WAIT,
            has_group: false,
        }
    }

    pub(super) fn isolation(&self) -> Isolation {
        self.isolation
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    pub(super) fn has_group(&self) -> bool {
        self.has_group
    }

    /// Returns the partitions that are neither at their end nor held up for good: partition, position, end.
    pub(super) fn unfinished(
        &self,
        ends: &BTreeMap<i32, i64>,
    ) -> impl Iterator<Item = (i32, Option<i64>, i64)> {
        let stopped = |partition| self.open.iter().any(|open| open.partition == partition);
        ends.iter()
            .map(|(partition, end)| (*partition, self.positions.get(partition).copied(), *end))
            .filter(move |(partition, position, end)| position.unwrap_or(0) < *end && !stopped(*partition))
    }

    pub(super) fn is_through(&self, ends: &BTreeMap<i32, i64>) -> bool {
        self.unfinished(ends).next().is_none()
    }

    /// Notes that everything before an offset has been read.
    pub(super) fn reach(&mut self, partition: i32, offset: i64) {
        let position = self.positions.entry(partition).or_insert(offset);
        *position = offset.max(*position);
    }

    /// Notes that a partition comes no further.
    pub(super) fn stop(&mut self, open: OpenEnd) {
        self.open.push(open);
    }

    /// Reads what the group has not read yet.
    pub(super) fn read(&mut self, session: &Session<'_>, ends: &BTreeMap<i32, i64>) -> Result<(), ReadError> {
        let before = self.positions.clone();
        let arguments = self.arguments(session.topic, ends);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.has_group = true;
        let text = session.text(TOOL, session.run(TOOL, &arguments)?)?;
        self.take(&text, ends).map_err(|(reason, line)| session.answer(TOOL, reason, &line))?;
        if self.positions == before {
            self.wait *= 2;
        }
        Ok(())
    }

    fn arguments(&self, topic: &str, ends: &BTreeMap<i32, i64>) -> Vec<String> {
        // No more records than that are before the ends: a topic that is still written to does not hold the consumer, and
        // one without markers and holes is left without a wait.
        let left: i64 = self.unfinished(ends).map(|(_, position, end)| end - position.unwrap_or(0)).sum();
        let left = left.min(i64::from(i32::MAX)).to_string();
        let wait = self.wait.as_millis().to_string();
        let mut arguments: Vec<String> = [
            ["--topic", topic],
            ["--group", &self.group],
            ["--isolation-level", self.isolation.level()],
            ["--timeout-ms", &wait],
            ["--max-messages", &left],
            // Positions are committed when the consumer is closed, which is how the end is known.
            ["--command-property", "enable.auto.commit=true"],
            ["--command-property", "allow.auto.create.topics=false"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
        arguments.push("--from-beginning".to_owned());
        for property in formatter_properties(&self.null) {
            arguments.extend(["--formatter-property".to_owned(), property]);
        }
        arguments
    }

    /// Takes what the console consumer printed; the error is what is wrong, and where.
    fn take(&mut self, text: &str, ends: &BTreeMap<i32, i64>) -> Result<(), (&'static str, String)> {
        if !text.is_empty() && !text.ends_with('\n') {
            return Err(("its last line has no end", text.lines().last().unwrap_or_default().to_owned()));
        }
        for line in text.split_terminator('\n') {
            let record = Record::parse(line, &self.null).ok_or(("not a record", line.to_owned()))?;
            let Some(end) = ends.get(&record.partition) else {
                return Err(("a partition that was not there before", line.to_owned()));
            };
            self.reach(record.partition, record.offset + 1);
            if record.offset >= *end {
                continue;
            }
            let again = self.records.insert((record.partition, record.offset), record.clone());
            if again.is_some_and(|before| before != record) {
                return Err(("an offset has two records", line.to_owned()));
            }
        }
        Ok(())
    }

    /// Returns the records by partition and offset, and the partitions that came no further.
    pub(super) fn into_records(self) -> (Vec<Record>, Vec<OpenEnd>) {
        (self.records.into_values().collect(), self.open)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Isolation, OpenEnd, Progress};

    const A: &str = "CreateTime:5\tPartition:0\tOffset:0\t\ta\n";
    const B: &str = "CreateTime:5\tPartition:0\tOffset:2\t\tb\n";

    fn ends() -> BTreeMap<i32, i64> {
        BTreeMap::from([(0, 3), (1, 0), (2, 4)])
    }

    #[test]
    fn a_partition_is_through_at_its_end_or_when_it_is_held_up() {
        let mut progress = Progress::new(Isolation::Committed);
        let unfinished = |progress: &Progress| progress.unfinished(&ends()).collect::<Vec<_>>();
        assert_eq!(unfinished(&progress), [(0, None, 3), (2, None, 4)]);
        progress.take(&[A, B].concat(), &ends()).unwrap();
        progress.reach(2, 1);
        progress.reach(2, 0);
        assert_eq!(unfinished(&progress), [(2, Some(1), 4)]);
        progress.stop(OpenEnd { partition: 2, position: 1, end: 4, producer_id: 1 });
        assert!(progress.is_through(&ends()));
    }

    #[test]
    fn a_record_read_again_is_the_same_record_and_another_one_is_refused() {
        let mut progress = Progress::new(Isolation::Committed);
        progress.take(A, &ends()).unwrap();
        progress.take(&[A, B].concat(), &ends()).unwrap();
        assert_eq!(progress.records.len(), 2);
        progress.take(&A.replace("\ta\n", "\tc\n"), &ends()).unwrap_err();
    }

    #[test]
    fn records_written_after_the_start_are_left_out() {
        let mut progress = Progress::new(Isolation::Committed);
        let later = A.replace("Offset:0", "Offset:3");
        progress.take(&[B, &later].concat(), &ends()).unwrap();
        assert_eq!(progress.records.len(), 1);
        progress.take(&A.replace("Partition:0", "Partition:3"), &ends()).unwrap_err();
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let mut progress = Progress::new(Isolation::Committed);
        for text in ["a warning\n", "\n", &A[..A.len() - 1]] {
            progress.take(text, &ends()).unwrap_err();
        }
    }
}

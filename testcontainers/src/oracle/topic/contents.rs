//! The records of a topic at both isolation levels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use super::super::listing::{SHOWN, write_rest};
use super::{Payload, Record};

/// What a topic held when its reading started; made by [`topic()`](super::topic).
///
/// `Display` prints the records of both isolation levels by partition, the first ten of each list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicContents {
    /// The topic.
    pub topic: String,
    /// The records that `read_committed` shows, by partition and offset.
    pub committed: Vec<Record>,
    /// The records that `read_uncommitted` shows, by partition and offset.
    pub uncommitted: Vec<Record>,
    /// The offset after the last one of each partition, records of open transactions and markers included.
    pub ends: BTreeMap<i32, i64>,
    /// The partitions in which `read_committed` stopped before the end.
    pub open: Vec<OpenEnd>,
}

/// A partition in which `read_committed` stopped before the end, because a transaction is open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenEnd {
    /// The partition.
    pub partition: i32,
    /// The offset that `read_committed` came to.
    pub position: i64,
    /// The offset after the last one of the partition.
    pub end: i64,
    /// The id of the producer whose transaction is open: the one that started first.
    pub producer_id: i64,
}

impl Display for OpenEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let OpenEnd { partition, position, end, producer_id } = self;
        write!(
            f,
            "partition {partition} stopped before the end: at {position} of {end}, \
             behind the open transaction of producer {producer_id}"
        )
    }
}

impl TopicContents {
    /// Returns the values that `read_committed` shows, null as `None`.
    pub fn committed_values(&self) -> impl Iterator<Item = Option<Payload>> {
        self.committed.iter().map(|record| record.value.clone())
    }

    /// Returns the values that `read_uncommitted` shows, null as `None`.
    pub fn uncommitted_values(&self) -> impl Iterator<Item = Option<Payload>> {
        self.uncommitted.iter().map(|record| record.value.clone())
    }

    /// Returns the records of aborted transactions: only `read_uncommitted` shows them, and `read_committed` came past them.
    #[must_use]
    pub fn aborted(&self) -> Vec<&Record> {
        self.hidden().into_iter().filter(|record| !self.is_undecided(record)).collect()
    }

    /// Returns the records behind the start of an open transaction, each of which may yet be committed.
    #[must_use]
    pub fn undecided(&self) -> Vec<&Record> {
        self.hidden().into_iter().filter(|record| self.is_undecided(record)).collect()
    }

    /// Returns the records that only `read_uncommitted` shows.
    fn hidden(&self) -> Vec<&Record> {
        let place = |record: &Record| (record.partition, record.offset);
        let committed: BTreeSet<_> = self.committed.iter().map(place).collect();
        self.uncommitted.iter().filter(|record| !committed.contains(&place(record))).collect()
    }

    fn is_undecided(&self, record: &Record) -> bool {
        let at = |open: &OpenEnd| open.partition == record.partition && open.position <= record.offset;
        self.open.iter().any(at)
    }
}

impl Display for TopicContents {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let TopicContents { topic, committed, uncommitted, ends, open } = self;
        write!(
            f,
            "topic {topic}: {} partitions, {} records read_committed, {} read_uncommitted",
            ends.len(),
            committed.len(),
            uncommitted.len()
        )?;
        let (aborted, undecided) = (self.aborted(), self.undecided());
        let committed: Vec<&Record> = committed.iter().collect();
        for (partition, end) in ends {
            write!(f, "\npartition {partition}, end {end}")?;
            if let Some(open) = open.iter().find(|open| open.partition == *partition) {
                write!(f, "\n  {open}")?;
            }
            write_records(f, "committed", *partition, &committed)?;
            write_records(f, "aborted", *partition, &aborted)?;
            write_records(f, "undecided", *partition, &undecided)?;
        }
        Ok(())
    }
}

fn write_records(f: &mut Formatter<'_>, title: &str, partition: i32, records: &[&Record]) -> fmt::Result {
    let records: Vec<_> = records.iter().filter(|record| record.partition == partition).collect();
    if records.is_empty() {
        return Ok(());
    }
    write!(f, "\n  {title}: {}", records.len())?;
    for record in records.iter().take(SHOWN) {
        write!(f, "\n    {record}")?;
    }
    write_rest(f, "\n    ", records.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Record, Timestamp};
    use super::{OpenEnd, TopicContents};

    fn record(partition: i32, offset: i64) -> Record {
        let value = Some(format!("v{offset}").into());
        Record { partition, offset, timestamp: Timestamp::Create(7), key: None, value }
    }

    #[test]
    fn what_only_read_uncommitted_shows_is_aborted_unless_a_transaction_is_open_before_it() {
        let contents = TopicContents {
            topic: "t".to_owned(),
            committed: vec![record(0, 0), record(1, 0)],
            uncommitted: vec![record(0, 0), record(0, 1), record(0, 3), record(1, 0), record(1, 3)],
            ends: BTreeMap::from([(0, 4), (1, 5)]),
            open: vec![OpenEnd { partition: 0, position: 3, end: 4, producer_id: 9 }],
        };
        assert_eq!(contents.aborted(), [&record(0, 1), &record(1, 3)]);
        assert_eq!(contents.undecided(), [&record(0, 3)]);
        assert_eq!(
            contents.to_string(),
            "topic t: 2 partitions, 2 records read_committed, 5 read_uncommitted\
             \npartition 0, end 4\
             \n  partition 0 stopped before the end: at 3 of 4, behind the open transaction of producer 9\
             \n  committed: 1\n    0 at 7 key null value \"v0\"\
             \n  aborted: 1\n    1 at 7 key null value \"v1\"\
             \n  undecided: 1\n    3 at 7 key null value \"v3\"\
             \npartition 1, end 5\
             \n  committed: 1\n    0 at 7 key null value \"v0\"\
             \n  aborted: 1\n    3 at 7 key null value \"v3\""
        );
    }
}

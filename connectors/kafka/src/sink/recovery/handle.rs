//! What is stored of a transaction, and all that its commit needs.

use std::fmt;
use std::time::Duration;

use levada_core::{CheckpointId, StateError, Storable, Timestamp};

use super::describe::Partitions;
use super::stored::{Reader, Writer};

/// Names one transaction of the sink, for a commit from any process.
///
/// A coordinator ends a transaction by id, producer id and epoch. Each transaction has an epoch for itself, so the three
/// name it and no other.
#[derive(Clone, PartialEq, Eq)]
pub struct TransactionHandle {
    /// Its transactional id.
    pub transactional_id: String,
    /// The producer id under which it was written.
    pub producer_id: i64,
    /// The epoch of that producer: this transaction's alone.
    pub epoch: i16,
    /// When its first partition was added, by the broker's clock. Known once it is pre-committed: `None` before, and such a
    /// transaction is never committed.
    pub start: Option<Timestamp>,
    /// How long behind `start` the broker drops it, in whole milliseconds.
    pub timeout: Duration,
    /// The checkpoint that it was begun for.
    pub checkpoint: CheckpointId,
    /// The attempt that wrote it.
    pub attempt: u64,
    /// The subtask that wrote it.
    pub subtask: u32,
    /// The partitions that have records of it.
    pub partitions: Partitions,
    /// How many records the brokers have acknowledged.
    pub records: u64,
    /// The cluster that it is in.
    pub cluster_id: String,
}

impl TransactionHandle {
    /// Returns the handle as bytes that tell their version, for whoever has no place for it beside them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Self::VERSION.to_be_bytes().to_vec();
        self.store(&mut bytes);
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) returned, in this version or an earlier one.
    ///
    /// # Errors
    /// The bytes are cut or damaged, or of a later version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        let Some((version, stored)) = bytes.split_first_chunk() else {
            return Err(StateError::new("a stored transaction handle is cut or damaged"));
        };
        Self::load(u16::from_be_bytes(*version), stored)
    }
}

/// Prints what a person needs to find the transaction and what is in it:
/// `levada.flights.out.a3.s0.t1 (producer 7, epoch 0, checkpoint 3-17) with 120 records in flights[0, 1]`.
impl fmt::Display for TransactionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transactional_id, producer_id, epoch, checkpoint, records, .. } = self;
        write!(f, "{transactional_id} (producer {producer_id}, epoch {epoch}, checkpoint {checkpoint}) ")?;
        write!(f, "with {records} records in")?;
        for (place, (topic, partitions)) in self.partitions.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let numbers = partitions.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
            write!(f, "{comma} {topic}[{numbers}]")?;
        }
        if self.partitions.is_empty() { f.write_str(" no partition") } else { Ok(()) }
    }
}

// The engine names a transaction in its messages by what this prints.
impl fmt::Debug for TransactionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, timeout, attempt, subtask, cluster_id, .. } = self;
        write!(f, "{self} of cluster {cluster_id}, ")?;
        write!(f, "written by subtask {subtask} of attempt {attempt}, start {start:?}, timeout {timeout:?}")
    }
}

/// Version 1, numbers with their big end first, a text as its length in 4 bytes and itself:
///
/// ```text
/// transactional_id:text producer_id:i64 epoch:i16
/// has_start:u8 start:i64 timeout_ms:u64
/// checkpoint_attempt:u64 checkpoint_sequence:u64 attempt:u64 subtask:u32
/// topics:u32 { topic:text partitions:u32 { partition:i32 }* }*
/// records:u64 cluster_id:text
/// crc32:u32   of everything before it
/// ```
impl Storable for TransactionHandle {
    const VERSION: u16 = 1;

    fn store(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.text(&self.transactional_id);
        writer.bytes(&self.producer_id.to_be_bytes());
        writer.bytes(&self.epoch.to_be_bytes());
        writer.bytes(&[u8::from(self.start.is_some())]);
        writer.bytes(&self.start.map_or(0, |start| start.0).to_be_bytes());
        writer.u64(u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX));
        writer.u64(self.checkpoint.attempt);
        writer.u64(self.checkpoint.sequence);
        writer.u64(self.attempt);
        writer.u32(self.subtask);
        writer.count(self.partitions.len());
        for (topic, partitions) in &self.partitions {
            writer.text(topic);
            writer.count(partitions.len());
            partitions.iter().for_each(|partition| writer.bytes(&partition.to_be_bytes()));
        }
        writer.u64(self.records);
        writer.text(&self.cluster_id);
        writer.finish();
    }

    fn load(version: u16, bytes: &[u8]) -> Result<Self, StateError> {
        if version != Self::VERSION {
            let message = format!("a transaction handle of version {version}; up to 1 is understood");
            return Err(StateError::new(message));
        }
        let damaged = || StateError::new("a stored transaction handle is cut or damaged");
        let mut reader = Reader::checked(bytes).ok_or_else(damaged)?;
        let handle = loaded(&mut reader).ok_or_else(damaged)?;
        if reader.is_at_end() { Ok(handle) } else { Err(damaged()) }
    }
}

fn loaded(reader: &mut Reader<'_>) -> Option<TransactionHandle> {
    let transactional_id = reader.text()?;
    let producer_id = i64::from_be_bytes(reader.array()?);
    let epoch = i16::from_be_bytes(reader.array()?);
    let start = match (reader.array()?, i64::from_be_bytes(reader.array()?)) {
        ([0], _) => None,
        ([1], start) => Some(Timestamp(start)),
        _ => return None,
    };
    let timeout = Duration::from_millis(reader.u64()?);
    let checkpoint = CheckpointId::new(reader.u64()?, reader.u64()?);
    let (attempt, subtask) = (reader.u64()?, reader.u32()?);
    let partitions = partitions(reader)?;
    let (records, cluster_id) = (reader.u64()?, reader.text()?);
    // Kafka gives neither out: −1 says that there is none.
    let is_named = !transactional_id.is_empty() && producer_id >= 0 && epoch >= 0;
    is_named.then_some(TransactionHandle {
        transactional_id,
        producer_id,
        epoch,
        start,
        timeout,
        checkpoint,
        attempt,
        subtask,
        partitions,
        records,
        cluster_id,
    })
}

fn partitions(reader: &mut Reader<'_>) -> Option<Partitions> {
    let mut partitions = Partitions::new();
    for _ in 0..reader.u32()? {
        let of_topic = partitions.entry(reader.text()?).or_default();
        for _ in 0..reader.u32()? {
            of_topic.insert(i32::from_be_bytes(reader.array()?));
        }
    }
    Some(partitions)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn handle() -> TransactionHandle {
        TransactionHandle {
            transactional_id: "levada.flights.out.a3.s2.t1".to_owned(),
            producer_id: 4001,
            epoch: 5,
            start: Some(Timestamp(1_764_000_000_123)),
            timeout: Duration::from_secs(900),
            checkpoint: CheckpointId::new(3, 17),
            attempt: 3,
            subtask: 2,
            partitions: [("delays".to_owned(), [0].into()), ("flights".to_owned(), [0, 7].into())].into(),
            records: 120,
            cluster_id: "q1Sh-9_ISia_zwGINzRvyQ".to_owned(),
        }
    }

    fn stored(handle: &TransactionHandle) -> Vec<u8> {
        let mut stored = Vec::new();
        handle.store(&mut stored);
        stored
    }

    /// [KSK-08] [TPL-19] what an earlier version has stored is read for ever.
    #[test]
    fn handle_is_stored_as_the_golden_file_says() {
        let golden = include_bytes!("../../../tests/golden/transaction_handle.v1");
        assert_eq!(stored(&handle()), golden);
        assert_eq!(TransactionHandle::load(1, golden), Ok(handle()));
    }

    /// [KSK-08] [TPL-19]
    #[test]
    fn handle_that_is_cut_or_longer_or_of_a_later_version_is_refused() {
        let stored = stored(&handle());
        for length in 0..stored.len() {
            assert!(TransactionHandle::load(1, &stored[..length]).is_err(), "{length} bytes");
        }
        assert!(TransactionHandle::load(1, &[&stored[..], &[0]].concat()).is_err());
        let later = TransactionHandle::load(2, &stored).expect_err("later");
        assert!(later.to_string().contains("version 2"));
    }

    /// [KSK-28]
    #[test]
    fn handle_as_bytes_tells_its_version() {
        assert_eq!(TransactionHandle::from_bytes(&handle().to_bytes()), Ok(handle()));
        let whole = handle().to_bytes();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(TransactionHandle::from_bytes(&damaged).is_err(), "bit {bit}");
        }
        assert!(TransactionHandle::from_bytes(&[1]).is_err());
    }

    /// [KSK-08] a handle with one wrong bit could name another transaction.
    #[test]
    fn handle_with_any_bit_turned_over_is_refused() {
        let whole = stored(&handle());
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(TransactionHandle::load(1, &damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn handle_without_a_producer_is_refused() {
        for nameless in [
            TransactionHandle { producer_id: -1, ..handle() },
            TransactionHandle { epoch: -1, ..handle() },
            TransactionHandle { transactional_id: String::new(), ..handle() },
        ] {
            assert!(TransactionHandle::load(1, &stored(&nameless)).is_err(), "{nameless:?}");
        }
    }

    /// [KSK-13] the message of a stop says which partitions and how many records.
    #[test]
    fn handle_prints_its_partitions_and_records() {
        let printed = handle().to_string();
        assert!(printed.ends_with("with 120 records in delays[0], flights[0, 7]"), "{printed}");
        assert!(format!("{:?}", handle()).contains(&printed));
    }

    proptest! {
        /// [KSK-08]
        #[test]
        fn handle_is_read_back_as_it_was(
            id in ".{1,40}", producer_id in 0..i64::MAX, epoch in 0..i16::MAX, start: Option<i64>,
            timeout_ms: u64, checkpoint: (u64, u64), subtask: u32, records: u64,
            topics in prop::collection::btree_map("[a-z.]{1,9}", prop::collection::btree_set(0..i32::MAX, 0..4), 0..4),
        ) {
            let original = TransactionHandle {
                transactional_id: id, producer_id, epoch, start: start.map(Timestamp),
                timeout: Duration::from_millis(timeout_ms), checkpoint: CheckpointId::new(checkpoint.0, checkpoint.1),
                subtask, partitions: topics, records, ..handle()
            };
            prop_assert_eq!(TransactionHandle::load(1, &stored(&original)), Ok(original));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes: Vec<u8>) {
            let _ = TransactionHandle::load(1, &bytes);
            // And with a sum that is right.
            let sum = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&sum.to_be_bytes());
            let _ = TransactionHandle::load(1, &bytes);
        }
    }
}

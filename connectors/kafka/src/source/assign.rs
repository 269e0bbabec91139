//! Which subtask owns which partition, when the partitions are dealt out by us.

/// Returns the partitions of `topic` that belong to `subtask` of `parallelism`, in order.
///
/// Each topic is spread evenly, and topics start at different subtasks: `start = hash(topic) mod parallelism`, and the
/// owner of a partition is `(start + partition) mod parallelism`. The hash is 32-bit FNV-1a over the topic's bytes; it
/// is part of the contract, because every process that reads the topic must come to the same answer.
///
/// A `parallelism` of zero owns nothing.
///
/// ```
/// use levada_kafka::owned_splits;
/// let all: Vec<_> = (0..3).flat_map(|subtask| owned_splits("flights", 8, subtask, 3)).collect();
/// assert_eq!(all.len(), 8);
/// ```
pub fn owned_splits(topic: &str, partitions: u32, subtask: u32, parallelism: u32) -> Vec<u32> {
    if parallelism == 0 {
        return Vec::new();
    }
    let start = u64::from(fnv1a(topic.as_bytes()) % parallelism);
    let owner = |partition: u32| (start + u64::from(partition)) % u64::from(parallelism);
    (0..partitions).filter(|&partition| owner(partition) == u64::from(subtask)).collect()
}

/// 32-bit FNV-1a: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }

    /// [SRC-03] [SRC-21]
    #[test]
    fn every_partition_has_one_owner_and_shares_differ_by_one_at_most() {
        for parallelism in 1..9 {
            for partitions in 0..20 {
                let shares: Vec<_> = (0..parallelism)
                    .map(|subtask| owned_splits("flights", partitions, subtask, parallelism))
                    .collect();
                let all: BTreeSet<u32> = shares.iter().flatten().copied().collect();
                let total: usize = shares.iter().map(Vec::len).sum();
                assert_eq!((all.len(), total), (partitions as usize, partitions as usize));
                let sizes = shares.iter().map(Vec::len);
                assert!(sizes.clone().max() <= sizes.min().map(|least| least + 1));
            }
        }
    }

    /// [SRC-03] rotated by topic: many topics of one partition do not all land on subtask 0.
    #[test]
    fn topics_start_at_different_subtasks() {
        let owners: BTreeSet<u32> = (0..100)
            .flat_map(|number| {
                (0..4).filter(move |&s| !owned_splits(&format!("topic-{number}"), 1, s, 4).is_empty())
            })
            .collect();
        assert_eq!(owners, BTreeSet::from([0, 1, 2, 3]));
    }
}

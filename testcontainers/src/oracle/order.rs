//! Whether the records of each key were found in the order in which they were sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display, Formatter};

use super::listing::write_listing;

/// Judges whether the sequences of each key were found in rising order.
///
/// A sequence found again is no disorder, because a replay repeats a run of records: only a sequence that comes for the
/// first time after a later one is. [`Order::without_repeats`] complains about both. For the order within a partition, take
/// the pair of partition and key as the key.
///
/// # Errors
///
/// [`Disorder`], with the first swap of each key.
///
/// ```
/// use levada_testcontainers::oracle::in_order;
///
/// in_order([("a", 1), ("b", 7), ("a", 2), ("a", 1), ("a", 2), ("a", 3)]).unwrap();
/// let disorder = in_order([("a", 1), ("a", 3), ("a", 2)]).unwrap_err();
/// assert_eq!((disorder.swaps()[0].earlier, disorder.swaps()[0].later), (2, 3));
/// ```
pub fn in_order<K: Ord + Clone, S: Ord + Clone>(
    records: impl IntoIterator<Item = (K, S)>,
) -> Result<(), Disorder<K, S>> {
    let mut order = Order::new();
    order.found(records);
    order.in_order()
}

/// The order of records that are found in pieces; judged at any moment.
#[derive(Clone, Debug)]
pub struct Order<K, S> {
    keys: BTreeMap<K, Seen<S>>,
    /// The number of records so far.
    records: u64,
}

/// What was seen of one key.
#[derive(Clone, Debug)]
struct Seen<S> {
    /// The sequences, with how often each was found. Kept whole: a repeat is told from a swap by them.
    times: BTreeMap<S, u64>,
    /// The first swap, as the earlier and the later sequence and the place of the earlier one.
    swap: Option<(S, S, u64)>,
    /// The sequences found more than once.
    repeated: BTreeSet<S>,
}

impl<S> Default for Seen<S> {
    fn default() -> Self {
        Seen { times: BTreeMap::new(), swap: None, repeated: BTreeSet::new() }
    }
}

impl<S: Ord + Clone> Seen<S> {
    fn find(&mut self, sequence: S, place: u64) {
        if let Some(times) = self.times.get_mut(&sequence) {
            *times += 1;
            self.repeated.insert(sequence);
            return;
        }
        if self.swap.is_none()
            && let Some((last, _)) = self.times.last_key_value()
            && sequence < *last
        {
            self.swap = Some((sequence.clone(), last.clone(), place));
        }
        self.times.insert(sequence, 1);
    }
}

impl<K, S> Default for Order<K, S> {
    fn default() -> Self {
        Order { keys: BTreeMap::new(), records: 0 }
    }
}

impl<K: Ord + Clone, S: Ord + Clone> Order<K, S> {
    /// Creates the order of nothing.
    #[must_use]
    pub fn new() -> Order<K, S> {
        Order::default()
    }

    /// Adds records, each with its key and its sequence, in the order in which they were found.
    pub fn found(&mut self, records: impl IntoIterator<Item = (K, S)>) {
        for (key, sequence) in records {
            self.keys.entry(key).or_default().find(sequence, self.records);
            self.records += 1;
        }
    }

    /// Judges as [`in_order`] does.
    ///
    /// # Errors
    ///
    /// As [`in_order`].
    pub fn in_order(&self) -> Result<(), Disorder<K, S>> {
        let disorder = Disorder { swaps: self.swaps(), repeats: Vec::new(), records: self.records };
        if disorder.swaps.is_empty() { Ok(()) } else { Err(disorder) }
    }

    /// Judges whether the sequences of each key rise, and none was found twice.
    ///
    /// # Errors
    ///
    /// [`Disorder`], with the first swap of each key, and every repeat.
    pub fn without_repeats(&self) -> Result<(), Disorder<K, S>> {
        let disorder = Disorder { swaps: self.swaps(), repeats: self.repeats(), records: self.records };
        if disorder.swaps.is_empty() && disorder.repeats.is_empty() { Ok(()) } else { Err(disorder) }
    }

    fn swaps(&self) -> Vec<Swap<K, S>> {
        let swap = |(key, seen): (&K, &Seen<S>)| {
            let (earlier, later, place) = seen.swap.clone()?;
            Some(Swap { key: key.clone(), earlier, later, place })
        };
        self.keys.iter().filter_map(swap).collect()
    }

    fn repeats(&self) -> Vec<Repeat<K, S>> {
        let mut repeats = Vec::new();
        for (key, seen) in &self.keys {
            for sequence in &seen.repeated {
                let times = seen.times.get(sequence).copied().unwrap_or_default();
                repeats.push(Repeat { key: key.clone(), sequence: sequence.clone(), times });
            }
        }
        repeats
    }
}

/// A sequence found for the first time after a later one of the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swap<K, S> {
    /// The key.
    pub key: K,
    /// The sequence that came too late.
    pub earlier: S,
    /// The highest sequence found before it.
    pub later: S,
    /// How many records, of any key, were found before the one that came too late.
    pub place: u64,
}

/// A sequence found more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repeat<K, S> {
    /// The key.
    pub key: K,
    /// The sequence.
    pub sequence: S,
    /// How often it was found.
    pub times: u64,
}

/// Records out of order. Its `Debug` is its `Display`, which shows the first ten of each list.
#[derive(Clone, PartialEq, Eq)]
pub struct Disorder<K, S> {
    swaps: Vec<Swap<K, S>>,
    repeats: Vec<Repeat<K, S>>,
    records: u64,
}

impl<K, S> Disorder<K, S> {
    /// Returns the first swap of each key that has one, by key.
    #[must_use]
    pub fn swaps(&self) -> &[Swap<K, S>] {
        &self.swaps
    }

    /// Returns the repeated sequences, by key; empty unless [`Order::without_repeats`] judged.
    #[must_use]
    pub fn repeats(&self) -> &[Repeat<K, S>] {
        &self.repeats
    }
}

impl<K: Debug, S: Debug> Display for Disorder<K, S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (swaps, repeats) = (self.swaps.len(), self.repeats.len());
        write!(
            f,
            "not in order: {swaps} keys with a swap, {repeats} repeated sequences ({} records)",
            self.records
        )?;
        write_listing(f, "swapped", &self.swaps, |swap, f| {
            let Swap { key, earlier, later, place } = swap;
            write!(f, "key {key:?} has {earlier:?} after {later:?} at place {place}")
        })?;
        write_listing(f, "repeated", &self.repeats, |repeat, f| {
            write!(f, "key {:?} has {:?} {} times", repeat.key, repeat.sequence, repeat.times)
        })
    }
}

impl<K: Debug, S: Debug> Debug for Disorder<K, S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl<K: Debug, S: Debug> std::error::Error for Disorder<K, S> {}

#[cfg(test)]
mod tests {
    use super::{Order, in_order};

    /// [TST-10]
    #[test]
    fn keys_do_not_order_each_other() {
        in_order([("a", 1), ("b", 9), ("a", 2), ("b", 10)]).unwrap();
        in_order([("a", 5), ("b", 1)]).unwrap();
        in_order::<&str, u8>([]).unwrap();
    }

    /// [TST-10]
    #[test]
    fn the_first_swap_of_each_key_is_told() {
        let found = [("a", 1), ("a", 4), ("b", 2), ("a", 3), ("b", 1), ("a", 2), ("c", 1)];
        let disorder = in_order(found).unwrap_err();
        let told: Vec<_> = disorder.swaps().iter().map(|s| (s.key, s.earlier, s.later, s.place)).collect();
        assert_eq!(told, [("a", 3, 4, 3), ("b", 1, 2, 4)]);
        assert_eq!(
            disorder.to_string(),
            "not in order: 2 keys with a swap, 0 repeated sequences (7 records)\
             \n  swapped: key \"a\" has 3 after 4 at place 3; key \"b\" has 1 after 2 at place 4"
        );
    }

    /// [TST-10]
    #[test]
    fn a_replay_is_no_swap_but_is_told_when_asked() {
        let mut order = Order::new();
        order.found([("a", 1), ("a", 2), ("a", 3)]);
        order.without_repeats().unwrap();
        order.found([("a", 2), ("a", 3), ("a", 2), ("a", 4)]);
        order.in_order().unwrap();
        let disorder = order.without_repeats().unwrap_err();
        let told: Vec<_> = disorder.repeats().iter().map(|r| (r.key, r.sequence, r.times)).collect();
        assert_eq!(told, [("a", 2, 3), ("a", 3, 2)]);
        assert!(disorder.swaps().is_empty());
    }

    /// [TST-10]
    #[test]
    fn a_record_skipped_before_a_replay_is_a_swap() {
        let disorder = in_order([("a", 1), ("a", 3), ("a", 1), ("a", 2), ("a", 3)]).unwrap_err();
        assert_eq!((disorder.swaps()[0].earlier, disorder.swaps()[0].later), (2, 3));
    }

    /// [TST-10]
    #[test]
    fn the_order_within_a_partition_is_that_of_a_pair_as_key() {
        let found = [(0, "a", 2), (1, "a", 1)];
        in_order(found.map(|(_, key, sequence)| (key, sequence))).unwrap_err();
        in_order(found.map(|(partition, key, sequence)| ((partition, key), sequence))).unwrap();
    }
}

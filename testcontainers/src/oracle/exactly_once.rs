//! How often each value was found, against how often it was sent.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display, Formatter};

use super::listing::write_listing;

/// Judges whether every value was found as often as it was sent, and nothing else was found.
///
/// A value that was sent twice must be found twice. Nothing sent and nothing found is in order: a test that wants to see
/// something happen looks at the number of values too.
///
/// # Errors
///
/// [`Verdict`], with what is missing, doubled or unexpected.
///
/// ```
/// use levada_testcontainers::oracle::exactly_once;
///
/// exactly_once(["a", "b"], ["b", "a"]).unwrap();
/// let verdict = exactly_once(["a", "b"], ["b", "b", "c"]).unwrap_err();
/// assert_eq!(verdict.missing()[0].value, "a");
/// assert_eq!((verdict.doubled()[0].value, verdict.doubled()[0].found), ("b", 2));
/// assert_eq!(verdict.unexpected()[0].value, "c");
/// ```
pub fn exactly_once<T: Ord + Clone>(
    sent: impl IntoIterator<Item = T>,
    found: impl IntoIterator<Item = T>,
) -> Result<(), Verdict<T>> {
    counted(sent, found).exactly_once()
}

/// Judges whether every value was found at least as often as it was sent, and none that was not sent.
///
/// # Errors
///
/// [`Verdict`], with what is missing or unexpected; what is doubled is listed beside it.
///
/// ```
/// use levada_testcontainers::oracle::at_least_once;
///
/// at_least_once(["a", "b"], ["b", "a", "b"]).unwrap();
/// at_least_once(["a", "b"], ["b", "b"]).unwrap_err();
/// ```
pub fn at_least_once<T: Ord + Clone>(
    sent: impl IntoIterator<Item = T>,
    found: impl IntoIterator<Item = T>,
) -> Result<(), Verdict<T>> {
    counted(sent, found).at_least_once()
}

fn counted<T: Ord>(sent: impl IntoIterator<Item = T>, found: impl IntoIterator<Item = T>) -> Counts<T> {
    let mut counts = Counts::new();
    counts.sent(sent);
    counts.found(found);
    counts
}

/// Counts of values that are sent and found in pieces, in any order; judged at any moment.
///
/// ```
/// use levada_testcontainers::oracle::Counts;
///
/// let mut counts = Counts::new();
/// counts.sent(1..=3);
/// counts.found([1, 2]);
/// assert_eq!(counts.exactly_once().unwrap_err().missing()[0].value, 3);
/// counts.found([3]);
/// counts.exactly_once().unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Counts<T> {
    values: BTreeMap<T, Times>,
}

/// How often one value was seen on each side.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    sent: u64,
    found: u64,
}

impl<T> Default for Counts<T> {
    fn default() -> Self {
        Counts { values: BTreeMap::new() }
    }
}

impl<T: Ord> Counts<T> {
    /// Creates counts of nothing.
    #[must_use]
    pub fn new() -> Counts<T> {
        Counts::default()
    }

    /// Adds values that were sent.
    pub fn sent(&mut self, values: impl IntoIterator<Item = T>) {
        for value in values {
            self.values.entry(value).or_default().sent += 1;
        }
    }

    /// Adds values that were found.
    pub fn found(&mut self, values: impl IntoIterator<Item = T>) {
        self.found_times(values.into_iter().map(|value| (value, 1)));
    }

    /// Adds values with how often each was found, as a `GROUP BY` tells them.
    pub fn found_times(&mut self, values: impl IntoIterator<Item = (T, u64)>) {
        for (value, times) in values {
            self.values.entry(value).or_default().found += times;
        }
    }

    /// Returns how many values were found, each as often as it was.
    #[must_use]
    pub fn total_found(&self) -> u64 {
        self.values.values().map(|times| times.found).sum()
    }
}

impl<T: Ord + Clone> Counts<T> {
    /// Judges as [`exactly_once`] does.
    ///
    /// # Errors
    ///
    /// As [`exactly_once`].
    pub fn exactly_once(&self) -> Result<(), Verdict<T>> {
        let verdict = self.verdict("exactly once");
        let clean = verdict.missing.is_empty() && verdict.doubled.is_empty() && verdict.unexpected.is_empty();
        if clean { Ok(()) } else { Err(verdict) }
    }

    /// Judges as [`at_least_once`] does.
    ///
    /// # Errors
    ///
    /// As [`at_least_once`].
    pub fn at_least_once(&self) -> Result<(), Verdict<T>> {
        let verdict = self.verdict("at least once");
        let clean = verdict.missing.is_empty() && verdict.unexpected.is_empty();
        if clean { Ok(()) } else { Err(verdict) }
    }

    fn verdict(&self, promise: &'static str) -> Verdict<T> {
        let mut verdict = Verdict {
            promise,
            missing: Vec::new(),
            doubled: Vec::new(),
            unexpected: Vec::new(),
            sent: 0,
            found: 0,
        };
        for (value, &Times { sent, found }) in &self.values {
            verdict.sent += sent;
            verdict.found += found;
            let list = match (sent, found) {
                (0, 1..) => &mut verdict.unexpected,
                _ if found < sent => &mut verdict.missing,
                _ if found > sent => &mut verdict.doubled,
                _ => continue,
            };
            list.push(Miscount { value: value.clone(), sent, found });
        }
        verdict
    }
}

/// A value that was not found as often as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Miscount<T> {
    /// The value.
    pub value: T,
    /// How often it was sent.
    pub sent: u64,
    /// How often it was found.
    pub found: u64,
}

/// What was lost, doubled or made up. Its `Debug` is its `Display`, which shows the first ten of each list.
#[derive(Clone, PartialEq, Eq)]
pub struct Verdict<T> {
    /// What was promised, in words.
    promise: &'static str,
    missing: Vec<Miscount<T>>,
    doubled: Vec<Miscount<T>>,
    unexpected: Vec<Miscount<T>>,
    sent: u64,
    found: u64,
}

impl<T> Verdict<T> {
    /// Returns the values found less often than they were sent, in their order.
    #[must_use]
    pub fn missing(&self) -> &[Miscount<T>] {
        &self.missing
    }

    /// Returns the values found more often than they were sent, in their order.
    #[must_use]
    pub fn doubled(&self) -> &[Miscount<T>] {
        &self.doubled
    }

    /// Returns the values found that were never sent, in their order.
    #[must_use]
    pub fn unexpected(&self) -> &[Miscount<T>] {
        &self.unexpected
    }
}

impl<T: Debug> Display for Verdict<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not {}: {} missing, {} doubled, {} unexpected ({} sent, {} found)",
            self.promise,
            self.missing.len(),
            self.doubled.len(),
            self.unexpected.len(),
            self.sent,
            self.found
        )?;
        write_listing(f, "missing", &self.missing, write_miscount)?;
        write_listing(f, "doubled", &self.doubled, write_miscount)?;
        write_listing(f, "unexpected", &self.unexpected, write_miscount)
    }
}

/// Writes a value with its counts, unless they go without saying.
fn write_miscount<T: Debug>(miscount: &Miscount<T>, f: &mut Formatter<'_>) -> fmt::Result {
    let Miscount { value, sent, found } = miscount;
    match (sent, found) {
        (1, 0) | (0, 1) => write!(f, "{value:?}"),
        (0 | 1, _) => write!(f, "{value:?} found {found} times"),
        _ => write!(f, "{value:?} sent {sent} times, found {found}"),
    }
}

impl<T: Debug> Debug for Verdict<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl<T: Debug> std::error::Error for Verdict<T> {}

#[cfg(test)]
mod tests {
    use super::{Counts, at_least_once, exactly_once};

    /// [TST-10]
    #[test]
    fn every_value_as_often_as_sent_is_in_order_whatever_the_order() {
        exactly_once(["a", "b", "a"], ["a", "a", "b"]).unwrap();
        exactly_once::<u64>([], []).unwrap();
    }

    /// [TST-10]
    #[test]
    fn lost_doubled_and_made_up_values_are_told_apart() {
        let verdict = exactly_once([1, 2, 3, 3, 4, 4], [2, 2, 2, 3, 4, 4, 4, 9]).unwrap_err();
        let told = |list: &[super::Miscount<i32>]| {
            list.iter().map(|m| (m.value, m.sent, m.found)).collect::<Vec<_>>()
        };
        assert_eq!(told(verdict.missing()), [(1, 1, 0), (3, 2, 1)]);
        assert_eq!(told(verdict.doubled()), [(2, 1, 3), (4, 2, 3)]);
        assert_eq!(told(verdict.unexpected()), [(9, 0, 1)]);
        assert_eq!(
            verdict.to_string(),
            "not exactly once: 2 missing, 2 doubled, 1 unexpected (6 sent, 8 found)\
             \n  missing: 1; 3 sent 2 times, found 1\
             \n  doubled: 2 found 3 times; 4 sent 2 times, found 3\
             \n  unexpected: 9"
        );
    }

    #[test]
    fn a_message_shows_ten_of_a_list_and_the_number_of_the_others() {
        let message = exactly_once(0..13, []).unwrap_err().to_string();
        assert!(message.ends_with("missing: 0; 1; 2; 3; 4; 5; 6; 7; 8; 9; and 3 more"), "{message}");
        let message = exactly_once(0..10, []).unwrap_err().to_string();
        assert!(message.ends_with("8; 9"), "{message}");
    }

    #[test]
    fn a_failing_unwrap_says_what_the_verdict_says() {
        let verdict = exactly_once(["lost"], []).unwrap_err();
        assert_eq!(format!("{verdict:?}"), verdict.to_string());
    }

    /// [TST-10]
    #[test]
    fn at_least_once_forgives_doubled_values_only() {
        at_least_once([1, 2], [2, 2, 1]).unwrap();
        assert_eq!(at_least_once([1, 2], [2, 2]).unwrap_err().missing().len(), 1);
        assert_eq!(at_least_once([1], [1, 5]).unwrap_err().unexpected().len(), 1);
        assert!(at_least_once([1], [5]).unwrap_err().to_string().starts_with("not at least once: "));
    }

    /// [TST-10]
    #[test]
    fn values_counted_in_pieces_are_judged_as_in_one() {
        let mut counts = Counts::new();
        counts.found(["b"]);
        counts.sent(["a", "b"]);
        assert_eq!(counts.exactly_once().unwrap_err().missing()[0].value, "a");
        counts.found_times([("a", 1)]);
        counts.exactly_once().unwrap();
        counts.found_times([("a", 2), ("c", 0)]);
        let verdict = counts.exactly_once().unwrap_err();
        assert_eq!(verdict.doubled()[0].found, 3);
        assert!(verdict.unexpected().is_empty(), "nothing was found of c");
        assert_eq!(counts.total_found(), 4);
    }
}

//! How values spread, in little memory.

/// Buckets of one octave: a value is known to within a fifth.
const PER_OCTAVE: f64 = 4.0;
/// The last bucket takes whatever is larger: 2⁴⁰ times the unit.
const BUCKETS: usize = 161;

/// How values spread: counted in buckets whose bounds grow by 2^¼, from one on.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    count: u64,
    sum: f64,
    largest: f64,
    buckets: Vec<u64>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { count: 0, sum: 0.0, largest: 0.0, buckets: vec![0; BUCKETS] }
    }
}

impl Distribution {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.largest = self.largest.max(value);
        self.buckets[bucket(value)] += 1;
    }

    /// Returns how many values there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns the largest one; zero before the first.
    pub fn largest(&self) -> f64 {
        self.largest
    }

    /// Returns a value that the part `q` of all values, from 0 to 1, does not exceed, and at most a fifth too high; `None`
    /// before the first value.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (q.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        self.cumulative().find(|(_, below)| *below >= rank).map(|(bound, _)| bound.min(self.largest))
    }

    /// Walks through the buckets: each with its upper bound, and how many values are not above that.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.buckets.iter().enumerate().scan(0, |below, (number, count)| {
            *below += count;
            Some((bound(number), *below))
        })
    }
}

/// The first bucket takes what is not above one.
fn bucket(value: f64) -> usize {
    let number = (value.max(1.0).log2() * PER_OCTAVE).ceil() as usize;
    number.min(BUCKETS - 1)
}

fn bound(bucket: usize) -> f64 {
    if bucket == BUCKETS - 1 { f64::INFINITY } else { (bucket as f64 / PER_OCTAVE).exp2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [KSK-27] a part of it.
    #[test]
    fn quantile_is_not_below_the_value_and_at_most_a_fifth_above() {
        let mut all = Distribution::default();
        (1..=1000).for_each(|value| all.add(f64::from(value)));
        for (q, exact) in [(0.5, 500.0), (0.99, 990.0), (0.001, 1.0), (1.0, 1000.0)] {
            let told = all.quantile(q).expect("values");
            assert!(told >= exact && told <= exact * 1.2, "{q}: {told}");
        }
        assert_eq!((all.count(), all.sum(), all.largest()), (1000, 500_500.0, 1000.0));
    }

    #[test]
    fn what_is_beyond_all_bounds_is_counted() {
        let mut all = Distribution::default();
        assert_eq!(all.quantile(0.5), None);
        all.add(0.0);
        all.add(1e300);
        assert_eq!((all.quantile(0.5), all.quantile(1.0)), (Some(1.0), Some(1e300)));
        assert_eq!(all.cumulative().last(), Some((f64::INFINITY, 2)));
    }
}

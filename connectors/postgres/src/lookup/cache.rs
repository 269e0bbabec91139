//! Answers that are kept.
//!
//! An answer is put in only by the query that is registered for its key at the moment when it comes. Whoever makes a key
//! invalid takes that registration away as well, so an answer that was on its way is given and not kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use hashbrown::DefaultHashBuilder;
use levada_core::arena::Text;
use levada_core::{Clock, Row, Timestamp, Value};
use smallvec::SmallVec;

use super::config::{CacheBound, CacheConfig};
use super::stats::Counters;

pub(crate) type Rows = Arc<[Row]>;

/// A key. Short ones stand where they are compared: each step to another place of the memory takes as long as all the rest.
type Name = SmallVec<[u8; 24]>;

#[derive(Debug, Clone)]
struct Entry {
    rows: Rows,
    written: Timestamp,
    /// When it was given last, if that counts.
    given: Option<Arc<AtomicI64>>,
}

#[derive(Debug)]
pub(crate) struct Cache {
    entries: moka::sync::Cache<Name, Entry, DefaultHashBuilder>,
    config: CacheConfig,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
}

impl Cache {
    pub(crate) fn new(config: CacheConfig, clock: Arc<dyn Clock>, counters: Arc<Counters>) -> Self {
        let builder = moka::sync::Cache::builder();
        let builder = match config.bound {
            CacheBound::Rows(rows) => {
                builder.max_capacity(rows).weigher(|_, entry: &Entry| clamped(entry.rows.len().max(1)))
            }
            CacheBound::Bytes(bytes) => builder.max_capacity(bytes).weigher(|key: &Name, entry: &Entry| {
                clamped(OVERHEAD + key.len() + entry.rows.iter().map(row_bytes).sum::<usize>())
            }),
        };
        let entries = builder.build_with_hasher(DefaultHashBuilder::default());
        Self { entries, config, clock, counters }
    }

    /// Returns what is known of a key, and counts it.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Rows> {
        let now = self.clock.now();
        let entry = self.entries.get(key).filter(|entry| self.counts(entry, now));
        let Some(entry) = entry else {
            self.counters.misses.fetch_add(1, Relaxed);
            return None;
        };
        if let Some(given) = &entry.given {
            given.store(now.0, Relaxed);
        }
        self.counters.hit(now.since(entry.written), entry.rows.is_empty());
        Some(entry.rows)
    }

    /// Tells whether an entry's time is not over. What is over is thrown out by the next answer, or for want of room.
    fn counts(&self, entry: &Entry, now: Timestamp) -> bool {
        let written = now.since(entry.written);
        let given = || entry.given.as_ref().map(|given| now.since(Timestamp(given.load(Relaxed))));
        self.config.after_write.is_none_or(|limit| written < limit)
            && self.config.after_access.is_none_or(|limit| given().is_none_or(|given| given < limit))
            && (!entry.rows.is_empty() || self.config.missing.is_some_and(|limit| written < limit))
    }

    /// Keeps an answer that was asked for at `asked`.
    pub(crate) fn put(&self, key: &[u8], rows: &Rows, asked: Timestamp) {
        if rows.is_empty() && self.config.missing.is_none() {
            // An earlier row must not outlive the news that it is gone.
            self.entries.invalidate(key);
            return;
        }
        let given = self.config.after_access.map(|_| Arc::new(AtomicI64::new(asked.0)));
        let entry = Entry { rows: Arc::clone(rows), written: asked, given };
        self.entries.insert(Name::from_slice(key), entry);
    }

    pub(crate) fn forget(&self, key: &[u8]) {
        self.entries.invalidate(key);
    }

    pub(crate) fn clear(&self) {
        self.entries.invalidate_all();
    }

    /// Returns how many keys are kept and what they weigh, by the bound's measure.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.entries.run_pending_tasks();
        (self.entries.entry_count(), self.entries.weighted_size())
    }
}

/// What an entry takes beside its bytes, about.
const OVERHEAD: usize = 128;

fn clamped(weight: usize) -> u32 {
    u32::try_from(weight).unwrap_or(u32::MAX)
}

fn row_bytes(row: &Row) -> usize {
    size_of::<Row>() + row.values().iter().map(value_bytes).sum::<usize>()
}

fn value_bytes(value: &Value) -> usize {
    let owned = |text: &Text| 64 + text.as_bytes().len();
    let inside = match value {
        Value::Number(text) | Value::Text(text) => owned(text),
        Value::Bytes(bytes) => 64 + bytes.as_bytes().len(),
        Value::List(values) => values.iter().map(value_bytes).sum(),
        Value::Map(entries) => entries.iter().map(|(key, value)| value_bytes(key) + value_bytes(value)).sum(),
        Value::Row(row) => row_bytes(row),
        _ => 0,
    };
    size_of::<Value>() + inside
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use levada_core::Shape;

    use super::*;

    #[derive(Debug, Default)]
    struct Hand(AtomicI64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Relaxed))
        }
    }

    fn cache(config: CacheConfig) -> (Cache, Arc<Hand>, Arc<Counters>) {
        let (hand, counters) = (Arc::new(Hand::default()), Arc::new(Counters::default()));
        (Cache::new(config, Arc::<Hand>::clone(&hand), Arc::clone(&counters)), hand, counters)
    }

    fn rows(count: usize) -> Rows {
        let row = Row::new(Shape::new(["a"]), vec![Value::Text("x".repeat(1000).into())]);
        vec![row; count].into()
    }

    /// [LKP-05] the two limits, and which of them reading moves.
    #[test]
    fn answer_ends_after_writing_and_after_access() {
        let after = Duration::from_millis(100);
        let (by_write, hand, _) = cache(CacheConfig::new(CacheBound::Rows(9)).after_write(after));
        by_write.put(b"a", &rows(1), Timestamp(0));
        hand.0.store(99, Relaxed);
        assert!(by_write.get(b"a").is_some());
        hand.0.store(100, Relaxed);
        assert!(by_write.get(b"a").is_none(), "reading does not make it younger");

        let (by_access, hand, counters) = cache(CacheConfig::new(CacheBound::Rows(9)).after_access(after));
        by_access.put(b"a", &rows(1), Timestamp(0));
        for now in [99, 198, 297] {
            hand.0.store(now, Relaxed);
            assert!(by_access.get(b"a").is_some(), "{now}");
        }
        hand.0.store(397, Relaxed);
        assert!(by_access.get(b"a").is_none());
        let stats = counters.snapshot();
        assert_eq!((stats.hits, stats.misses), (3, 1));
        assert_eq!(
            (stats.oldest_hit, stats.hit_age),
            (Duration::from_millis(297), Duration::from_millis(594))
        );
    }

    /// [LKP-05] a miss has its own limit, and none is kept unless asked for.
    #[test]
    fn missing_rows_are_kept_only_if_asked_for() {
        let config = CacheConfig::new(CacheBound::Rows(9)).after_write(Duration::from_secs(9));
        let (off, _, _) = cache(config);
        off.put(b"a", &rows(1), Timestamp(0));
        off.put(b"a", &rows(0), Timestamp(0));
        assert!(off.get(b"a").is_none(), "neither the miss nor the row before it");

        let (on, hand, counters) = cache(config.missing(Duration::from_millis(50)));
        on.put(b"a", &rows(0), Timestamp(0));
        hand.0.store(49, Relaxed);
        assert_eq!(on.get(b"a").map(|rows| rows.len()), Some(0));
        hand.0.store(50, Relaxed);
        assert!(on.get(b"a").is_none());
        assert_eq!(counters.snapshot().negative_hits, 1);
    }

    /// [LKP-05]
    #[test]
    fn bound_holds_for_rows_and_for_bytes() {
        let (by_rows, _, _) = cache(CacheConfig::new(CacheBound::Rows(10)));
        let (by_bytes, _, _) = cache(CacheConfig::new(CacheBound::Bytes(20_000)));
        for number in 0..100 {
            by_rows.put(format!("k{number}").as_bytes(), &rows(3), Timestamp(0));
            by_bytes.put(format!("k{number}").as_bytes(), &rows(3), Timestamp(0));
        }
        let (keys, weight) = by_rows.size();
        assert!(keys > 0 && keys <= 3 && weight <= 10, "{keys} keys, {weight} rows");
        let (keys, weight) = by_bytes.size();
        assert!(keys > 0 && keys <= 6 && weight <= 20_000, "{keys} keys, {weight} bytes");
    }
}

//! What a lookup has done so far, as plain numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one lookup since it was opened, over all its clones.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct LookupStats {
            $($(#[$doc])* pub $name: u64,)*
            /// The age of the oldest cached answer that was given.
            pub oldest_hit: Duration,
            /// The ages of all cached answers that were given, added up: divided by `hits`, their mean.
            pub hit_age: Duration,
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            oldest_hit_ms: AtomicU64,
            hit_age_ms: AtomicU64,
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> LookupStats {
                LookupStats {
                    $($name: self.$name.load(Relaxed),)*
                    oldest_hit: Duration::from_millis(self.oldest_hit_ms.load(Relaxed)),
                    hit_age: Duration::from_millis(self.hit_age_ms.load(Relaxed)),
                }
            }
        }
    };
}

counters! {
    /// Keys asked for.
    keys,
    /// Keys with a NULL part, which match nothing and are not sent.
    null_keys,
    /// Keys answered by the cache.
    hits,
    /// Of these, keys known to have no row.
    negative_hits,
    /// Keys that the cache did not know; nothing without a cache.
    misses,
    /// Keys that joined a query that was under way for the same key.
    coalesced,
    /// Keys with a row, where the server was asked.
    found,
    /// Keys without a row, where the server was asked.
    not_found,
    /// Queries sent.
    queries,
    /// Queries sent again, because their connection was lost or another call's cancel hit them.
    resent,
    /// Calls given up, because their time was over or nobody waited any more.
    given_up,
    /// Queries cancelled on the server.
    cancelled,
    /// Answers that came too late and were dropped.
    late,
    /// Connections that were closed because they owed an answer for too long.
    closed,
    /// Connections made.
    connected,
    /// Keys that were made invalid, each by itself.
    invalidated,
    /// How often everything was made invalid.
    cleared,
    /// How often the whole table was read.
    loads,
    /// How often reading the whole table failed.
    failed_loads,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Relaxed);
    }

    pub(crate) fn hit(&self, age: Duration, is_negative: bool) {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.hits.fetch_add(1, Relaxed);
        if is_negative {
            self.negative_hits.fetch_add(1, Relaxed);
        }
        self.hit_age_ms.fetch_add(age, Relaxed);
        // Mostly there was an older one, and a look is cheaper than a write.
        if self.oldest_hit_ms.load(Relaxed) < age {
            self.oldest_hit_ms.fetch_max(age, Relaxed);
        }
    }
}

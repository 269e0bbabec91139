//! How the lookups of a pipeline stand, and that as metrics.

use levada_core::async_io::CallMetrics;
use levada_engine::async_io::StageCalls;
use levada_postgres::lookup::LookupStats;

use super::family::{Family, Number, Sample};
use super::metrics::escaped;
use super::names;

use crate::enrich::{Opened, stage_name};

/// A lookup of a running pipeline, to be looked at.
#[derive(Debug, Clone)]
pub struct ObservedLookup {
    /// The step's name.
    pub name: String,
    /// The lookup, once it is open.
    pub opened: Opened,
}

/// How a lookup stands. Counts are since the start, over all subtasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The step's name.
    pub name: String,
    /// What the step has counted.
    pub calls: CallMetrics,
    /// What the lookup has counted; nothing before it is open.
    pub stats: LookupStats,
    /// How many keys are kept.
    pub kept: u64,
}

impl ObservedLookup {
    pub(super) fn observe(&self, stages: &[StageCalls]) -> Lookup {
        let uid = stage_name(&self.name);
        let mut calls = CallMetrics::default();
        for stage in stages.iter().filter(|stage| stage.uid == uid) {
            calls.add_counts(&stage.metrics);
            calls.in_flight += stage.metrics.in_flight;
            calls.in_queue += stage.metrics.in_queue;
            calls.waiting += stage.metrics.waiting;
        }
        let opened = self.opened.get();
        Lookup {
            name: self.name.clone(),
            calls,
            stats: opened.map(|lookup| lookup.stats()).unwrap_or_default(),
            kept: opened.map_or(0, |lookup| lookup.kept().0),
        }
    }
}

impl Lookup {
    /// Returns how many keys had no row.
    pub fn unmatched(&self) -> u64 {
        self.stats.not_found + self.stats.negative_hits + self.stats.null_keys
    }
}

pub(super) fn families(lookups: &[Lookup]) -> Vec<Family> {
    let each = |value: fn(&Lookup) -> Number| -> Vec<Sample> {
        lookups.iter().map(|lookup| Sample::of([("lookup", escaped(&lookup.name))], value(lookup))).collect()
    };
    vec![
        Family::gauge(
            names::LOOKUP_IN_FLIGHT,
            "Rows that wait for their answer",
            each(|of| of.calls.in_flight.into()),
        ),
        Family::gauge(
            names::LOOKUP_WAITING,
            "Rows that wait for room among those",
            each(|of| of.calls.waiting.into()),
        ),
        Family::gauge(names::LOOKUP_KEPT_KEYS, "Keys whose answer is kept", each(|of| of.kept.into())),
        Family::histogram(
            names::LOOKUP_CALL_SECONDS,
            "How long calls took that were answered, each attempt by itself",
            each(|of| of.calls.latency.into()),
        ),
        Family::histogram(
            names::LOOKUP_WAIT_SECONDS,
            "How long rows have waited for room",
            each(|of| of.calls.queue_wait.into()),
        ),
        Family::counter(names::LOOKUP_KEYS, "Keys asked for", each(|of| of.stats.keys.into())),
        Family::counter(names::LOOKUP_UNMATCHED_KEYS, "Keys without a row", each(|of| of.unmatched().into())),
        Family::counter(
            names::LOOKUP_CACHE_HITS,
            "Keys whose answer was kept",
            each(|of| of.stats.hits.into()),
        ),
        Family::counter(
            names::LOOKUP_CACHE_MISSES,
            "Keys whose answer was not kept",
            each(|of| of.stats.misses.into()),
        ),
        Family::counter(names::LOOKUP_QUERIES, "Queries sent", each(|of| of.stats.queries.into())),
        Family::counter(
            names::LOOKUP_RESENT_QUERIES,
            "Queries sent again, because their connection was lost",
            each(|of| of.stats.resent.into()),
        ),
        Family::counter(
            names::LOOKUP_TIMEOUTS,
            "Rows whose time was up",
            each(|of| of.calls.timeouts.into()),
        ),
        Family::counter(
            names::LOOKUP_RETRIES,
            "Rows that were looked up again",
            each(|of| of.calls.retries.into()),
        ),
        Family::counter(
            names::LOOKUP_LATE_ANSWERS,
            "Answers that came too late",
            each(|of| of.stats.late.into()),
        ),
    ]
}

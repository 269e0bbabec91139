//! One metric with its values.

use std::fmt;
use std::time::Duration;

use levada_core::async_io::Histogram;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

/// A metric: its name behind the prefix, what it means, and a value for each set of labels.
#[derive(Debug)]
pub(super) struct Family {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Vec<Sample>,
}

/// A value with its labels.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Number,
}

/// A value. Offsets and counts stay exact.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
    Many(Histogram),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Number::Whole(number)
    }
}

impl From<Histogram> for Number {
    fn from(durations: Histogram) -> Self {
        Number::Many(durations)
    }
}

impl From<Duration> for Number {
    fn from(duration: Duration) -> Self {
        Number::Real(duration.as_secs_f64())
    }
}

impl Sample {
    pub(super) fn alone(value: impl Into<Number>) -> Self {
        Self { labels: Vec::new(), value: value.into() }
    }

    pub(super) fn of<V: Into<String>, const N: usize>(
        labels: [(&'static str, V); N],
        value: impl Into<Number>,
    ) -> Self {
        Self::alone(value).and(labels)
    }

    /// Adds labels.
    pub(super) fn and<V: Into<String>, const N: usize>(mut self, labels: [(&'static str, V); N]) -> Self {
        self.labels.extend(labels.map(|(name, value)| (name, value.into())));
        self
    }
}

impl Family {
    pub(super) fn gauge(
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) -> Self {
        Self { name, help, kind: MetricType::Gauge, samples: samples.into_iter().collect() }
    }

    /// Makes a counter; its values are served under the name with `_total` behind it.
    pub(super) fn counter(
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) -> Self {
        Self { name, help, kind: MetricType::Counter, samples: samples.into_iter().collect() }
    }

    /// Makes a histogram.
    pub(super) fn histogram(
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = Sample>,
    ) -> Self {
        Self { name, help, kind: MetricType::Histogram, samples: samples.into_iter().collect() }
    }

    /// Writes it down. A metric without values is named all the same, so that one can look it up.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, self.kind)?;
        for Sample { labels, value } in &self.samples {
            match labels.is_empty() {
                true => self.write(&mut metric, *value)?,
                false => self.write(&mut metric.encode_family(labels)?, *value)?,
            }
        }
        Ok(())
    }

    fn write(&self, metric: &mut MetricEncoder<'_>, value: Number) -> Result<(), fmt::Error> {
        const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
        match (self.kind, value) {
            (_, Number::Many(durations)) => {
                let bound = |bound: Option<Duration>| bound.map_or(f64::MAX, |bound| bound.as_secs_f64());
                let buckets: Vec<_> = durations.buckets().map(|(to, count)| (bound(to), count)).collect();
                let (sum, count) = (durations.sum().as_secs_f64(), durations.count());
                metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            }
            (MetricType::Counter, Number::Whole(value)) => metric.encode_counter(&value, NO_EXEMPLAR),
            (MetricType::Counter, Number::Real(value)) => metric.encode_counter(&value, NO_EXEMPLAR),
            (_, Number::Whole(value)) => metric.encode_gauge(&value),
            (_, Number::Real(value)) => metric.encode_gauge(&value),
        }
    }
}

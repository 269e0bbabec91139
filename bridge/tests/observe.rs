//! What is said of a running pipeline: the line of the log and the text for Prometheus, made of a value.

use std::sync::Arc;
use std::time::Duration;

use levada::observe::line::{Line, NAMED};
use levada::observe::{
    ClientStatistics, Lookup, Observation, Partition, Spent, Status, Subtask, SubtaskTime, metrics,
};
use levada_core::async_io::CallMetrics;
use levada_core::{Committed, SplitId, Tally, Timestamp};
use levada_engine::Balance;
use levada_postgres::lookup::LookupStats;

/// 2013-01-01T00:00:00Z
const NEW_YEAR: Timestamp = Timestamp(1_356_998_400_000);

fn partition(index: u32, lag: u64, status: Status) -> Partition {
    Partition {
        position: Some(10),
        high_watermark: Some(10 + lag),
        lag: Some(lag),
        status,
        ..Partition::unread(SplitId::new("flights", index))
    }
}

fn blocked() -> Status {
    let reason = "behind an open transaction, at 10 of 15".to_owned();
    Status::Blocked { cause: "open_transaction", reason }
}

fn observation(partitions: Vec<Partition>, subtasks: Vec<Subtask>) -> Observation {
    let mut balance = Balance::default();
    let tally = Tally { read: 9, skipped: 2, ..Tally::default() };
    balance.add(tally, Committed { written: 7, ..Committed::default() });
    let at = NEW_YEAR.saturating_add(Duration::from_secs(60));
    let lookups = Vec::new();
    Observation { pipeline: Arc::from("p"), at, balance, commits: 3, partitions, subtasks, lookups }
}

fn subtask(watermark: Option<Timestamp>, is_idle: bool, late: u64) -> Subtask {
    let time = SubtaskTime {
        watermark,
        is_idle,
        late,
        taken_from_record: 1,
        failed: 0,
        at_sink: None,
        late_at_sink: 0,
    };
    Subtask {
        time: Some(time),
        gaps: 4,
        lost: 5,
        offset_commits: 6,
        failed_offset_commits: 1,
        batches: 7,
        batch_wait: Duration::from_millis(250),
        longest_batch_wait: Duration::from_millis(125),
        client: ClientStatistics::of(r#"{"replyq": 1, "tx": 2, "tx_bytes": 3, "rx": 4, "rx_bytes": 5}"#),
        ..Subtask::default()
    }
}

/// [TIM-21] [SRC-33] in part: the log.
#[test]
fn a_line_says_how_each_partition_stands() {
    let mut first = partition(0, 5, Status::Active);
    (first.time_lag, first.watermark) = (Some(Duration::from_millis(3210)), Some(NEW_YEAR));
    let partitions = vec![first, partition(1, 0, Status::Idle), partition(2, 5, blocked())];
    let line =
        Line::of(&observation(partitions, vec![subtask(Some(NEW_YEAR), false, 8), subtask(None, true, 1)]));
    let expected = Line {
        late: Some(9),
        without_timestamp: Some(2),
        watermark: Some("2013-01-01T00:00:00.000Z".to_owned()),
        watermark_lag: Some("60.0s".to_owned()),
        lag: 10,
        lag_time: "3.2s".to_owned(),
        statuses: "1 active, 1 idle, 1 blocked".to_owned(),
        partitions: "flights-2 at 10 of 15, lag 5, blocked (behind an open transaction, at 10 of 15); \
                     flights-0 at 10 of 15, lag 5 and 3.2s, watermark 2013-01-01T00:00:00.000Z, active; \
                     flights-1 at 10 of 10, lag 0, idle"
            .to_owned(),
    };
    assert_eq!(line, expected);
}

/// One line stays readable, and names those that need a look: blocked ones, then the furthest behind.
#[test]
fn a_line_of_very_many_partitions_sums_up_and_names_the_worst() {
    let mut partitions: Vec<_> =
        (0..500).map(|index| partition(index, u64::from(index), Status::Active)).collect();
    partitions[7].status = blocked();
    let line = Line::of(&observation(partitions, Vec::new()));
    assert_eq!((line.lag, &*line.statuses), (499 * 500 / 2, "499 active, 1 blocked"));
    assert!(line.partitions.starts_with("flights-7 at 10 of 17, "), "{}", line.partitions);
    let named: Vec<_> = line.partitions.split("; ").collect();
    assert_eq!((named.len(), named[NAMED]), (NAMED + 1, "and 492 more"));
    assert!(named[1].starts_with("flights-499 "), "{}", line.partitions);
    assert!(line.partitions.len() < 1000, "{}", line.partitions);
    assert_eq!((line.watermark, line.late), (None, None), "nobody keeps time");
}

/// The pipeline's watermark: of those that are not idle; of all where all are; none while one that counts has none.
#[test]
fn watermark_of_the_pipeline_is_the_smallest_that_counts() {
    let later = NEW_YEAR.saturating_add(Duration::from_secs(1));
    let of = |subtasks| observation(Vec::new(), subtasks).watermark();
    assert_eq!(of(vec![subtask(Some(later), false, 0), subtask(Some(NEW_YEAR), false, 0)]), Some(NEW_YEAR));
    assert_eq!(of(vec![subtask(Some(later), false, 0), subtask(Some(NEW_YEAR), true, 0)]), Some(later));
    assert_eq!(of(vec![subtask(Some(later), true, 0), subtask(Some(NEW_YEAR), true, 0)]), Some(later));
    assert_eq!(of(vec![subtask(Some(later), false, 0), subtask(None, false, 0)]), None);
    assert_eq!(of(vec![Subtask::default()]), None);
}

/// [ASY-15] [LKP-05] what lookups do, with a histogram of how long their calls take.
#[test]
fn metrics_say_how_lookups_stand() {
    let mut calls = CallMetrics::default();
    (calls.in_flight, calls.timeouts, calls.retries) = (3, 1, 2);
    calls.latency.record(Duration::from_millis(3));
    calls.latency.record(Duration::from_secs(60));
    let mut stats = LookupStats::default();
    (stats.keys, stats.hits, stats.negative_hits, stats.not_found, stats.null_keys) = (100, 60, 7, 5, 2);
    let mut observed = observation(Vec::new(), Vec::new());
    observed.lookups = vec![Lookup { name: "plane".to_owned(), calls, stats, kept: 40 }];
    let text = metrics::text(observed).expect("text");
    for line in [
        "levada_lookup_in_flight{pipeline=\"p\",lookup=\"plane\"} 3",
        "levada_lookup_timeouts_total{pipeline=\"p\",lookup=\"plane\"} 1",
        "levada_lookup_retries_total{pipeline=\"p\",lookup=\"plane\"} 2",
        "levada_lookup_unmatched_keys_total{pipeline=\"p\",lookup=\"plane\"} 14",
        "levada_lookup_cache_hits_total{pipeline=\"p\",lookup=\"plane\"} 60",
        "levada_lookup_kept_keys{pipeline=\"p\",lookup=\"plane\"} 40",
        "levada_lookup_call_seconds_sum{pipeline=\"p\",lookup=\"plane\"} 60.003",
        "levada_lookup_call_seconds_count{pipeline=\"p\",lookup=\"plane\"} 2",
        "levada_lookup_call_seconds_bucket{pipeline=\"p\",le=\"0.005\",lookup=\"plane\"} 1",
        "levada_lookup_call_seconds_bucket{pipeline=\"p\",le=\"+Inf\",lookup=\"plane\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

/// [TIM-21] [SRC-33] in part: the metrics. Values are exact, a reason is one word, counts add up to the balance.
#[test]
fn metrics_say_what_was_observed() {
    let mut first = partition(0, 5, blocked());
    first.position = Some(9_007_199_254_740_993);
    first.watermark = Some(NEW_YEAR.saturating_add(Duration::from_millis(1)));
    first.spent = Some(Spent { idle: Duration::from_millis(1500), ..Spent::default() });
    let text =
        metrics::text(observation(vec![first], vec![subtask(Some(NEW_YEAR), false, 8)])).expect("text");
    for line in [
        "# TYPE levada_partition_position gauge",
        "levada_partition_position{pipeline=\"p\",topic=\"flights\",partition=\"0\"} 9007199254740993",
        "levada_partition_watermark_timestamp_seconds{pipeline=\"p\",topic=\"flights\",partition=\"0\"} 1356998400.001",
        "levada_partition_status{pipeline=\"p\",topic=\"flights\",partition=\"0\",status=\"blocked\",reason=\"open_transaction\"} 1",
        "levada_partition_spent_seconds{pipeline=\"p\",topic=\"flights\",partition=\"0\",state=\"idle\"} 1.5",
        "levada_read_records_total{pipeline=\"p\"} 9",
        "levada_committed_records_total{pipeline=\"p\",outcome=\"written\"} 7",
        "levada_committed_records_total{pipeline=\"p\",outcome=\"skipped\"} 2",
        "levada_source_late_records_total{pipeline=\"p\",subtask=\"0\"} 8",
        "levada_source_records_without_timestamp_total{pipeline=\"p\",subtask=\"0\",outcome=\"taken_from_record\"} 1",
        "levada_source_gaps_total{pipeline=\"p\",subtask=\"0\"} 4",
        "levada_source_lost_offsets_total{pipeline=\"p\",subtask=\"0\"} 5",
        "levada_source_offset_commits_total{pipeline=\"p\",subtask=\"0\",outcome=\"ok\"} 6",
        "levada_source_offset_commits_total{pipeline=\"p\",subtask=\"0\",outcome=\"failed\"} 1",
        "levada_source_batches_total{pipeline=\"p\",subtask=\"0\"} 7",
        "levada_source_batch_wait_seconds_total{pipeline=\"p\",subtask=\"0\"} 0.25",
        "levada_source_longest_batch_wait_seconds{pipeline=\"p\",subtask=\"0\"} 0.125",
        "levada_source_client_requests_total{pipeline=\"p\",subtask=\"0\"} 2",
        "levada_source_client_sent_bytes_total{pipeline=\"p\",subtask=\"0\"} 3",
        "levada_source_client_responses_total{pipeline=\"p\",subtask=\"0\"} 4",
        "levada_source_client_received_bytes_total{pipeline=\"p\",subtask=\"0\"} 5",
        "levada_source_client_queued_events{pipeline=\"p\",subtask=\"0\"} 1",
        "levada_watermark_lag_seconds{pipeline=\"p\"} 60.0",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line:?} in\n{text}");
    }
    let status = text.lines().filter(|line| line.starts_with("levada_partition_status{"));
    assert_eq!(status.count(), 1, "a partition does one thing at a time");
}

/// What is not known is left out, not told as nothing.
#[test]
fn unknown_values_are_left_out() {
    let unread = Partition::unread(SplitId::new("flights", 0));
    let text = metrics::text(observation(vec![unread], vec![Subtask::default()])).expect("text");
    for name in
        ["position", "high_watermark", "last_stable_offset", "lag_records", "watermark_timestamp_seconds"]
    {
        let sample = format!("levada_partition_{name}{{");
        assert!(!text.contains(&sample), "{sample} in\n{text}");
    }
    assert!(!text.contains("levada_watermark_timestamp_seconds{"), "{text}");
    assert!(!text.contains("levada_source_client_requests_total{"), "{text}");
}

#[test]
fn odd_names_are_escaped() {
    let odd = Observation { pipeline: Arc::from("a\"b\\c\nd"), ..observation(Vec::new(), Vec::new()) };
    let text = metrics::text(odd).expect("text");
    assert!(text.contains("levada_commits_total{pipeline=\"a\\\"b\\\\c\\nd\"} 3\n"), "{text}");
}

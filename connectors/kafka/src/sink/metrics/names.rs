//! What the figures are called in a monitoring system, behind its own prefix. Times are in seconds.

/// Gauge: transactions that are written to.
pub const OPEN: &str = "kafka_sink_transactions_open";
/// Gauge: transactions that are complete and wait for their checkpoint.
pub const PREPARED: &str = "kafka_sink_transactions_prepared";
/// Gauge: the age of the oldest transaction that is open or prepared.
pub const OLDEST_AGE: &str = "kafka_sink_transaction_oldest_age_seconds";
/// Gauge: the least that is left to an open or prepared transaction of its timeout; none where there is no timeout.
pub const TIME_LEFT: &str = "kafka_sink_transaction_time_left_seconds";
/// Counter: transactions that were begun.
pub const BEGUN: &str = "kafka_sink_transactions_begun";
/// Counter: transactions that were committed.
pub const COMMITTED: &str = "kafka_sink_transactions_committed";
/// Counter: transactions that were aborted by this process.
pub const ABORTED: &str = "kafka_sink_transactions_aborted";
/// Counter: transactions whose records are gone. Must stay at zero.
pub const LOST: &str = "kafka_sink_transactions_lost";
/// Counter: records of lost transactions. Must stay at zero.
pub const LOST_RECORDS: &str = "kafka_sink_records_lost";
/// Counter: commits and aborts that were tried again.
pub const RETRIES: &str = "kafka_sink_transaction_retries";
/// Counter: transactional ids of earlier attempts that were fenced.
pub const FENCED: &str = "kafka_sink_transactional_ids_fenced";
/// Counter: commit markers that the brokers have left out and the sink has written.
pub const MARKERS_WRITTEN: &str = "kafka_sink_markers_written";
/// Gauge: committed transactions that readers did not see in time and do not yet.
pub const UNSEEN: &str = "kafka_sink_transactions_unseen";
/// Histogram: from the call of a commit to the coordinator's answer.
pub const COMMIT_SECONDS: &str = "kafka_sink_commit_seconds";
/// Histogram: records of a transaction.
pub const RECORDS: &str = "kafka_sink_transaction_records";

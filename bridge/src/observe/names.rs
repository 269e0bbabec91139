//! What the metrics are called, behind `levada_`; counters are served with `_total` at the end.
//!
//! The table of `docs/operations.md` says what each is, and a test holds it against what a running pipeline serves.

pub(super) const BUILD_INFO: &str = "build_info";
pub(super) const READ_RECORDS: &str = "read_records";
pub(super) const COMMITTED_RECORDS: &str = "committed_records";
pub(super) const COMMITS: &str = "commits";
pub(super) const WATERMARK_TIMESTAMP_SECONDS: &str = "watermark_timestamp_seconds";
pub(super) const WATERMARK_LAG_SECONDS: &str = "watermark_lag_seconds";
pub(super) const PARTITION_POSITION: &str = "partition_position";
pub(super) const PARTITION_COMMITTED_POSITION: &str = "partition_committed_position";
pub(super) const PARTITION_HIGH_WATERMARK: &str = "partition_high_watermark";
pub(super) const PARTITION_LAST_STABLE_OFFSET: &str = "partition_last_stable_offset";
pub(super) const PARTITION_LAG_RECORDS: &str = "partition_lag_records";
pub(super) const PARTITION_STABLE_LAG_RECORDS: &str = "partition_stable_lag_records";
pub(super) const PARTITION_LAG_SECONDS: &str = "partition_lag_seconds";
pub(super) const PARTITION_BEHIND_TRANSACTION_SECONDS: &str = "partition_behind_transaction_seconds";
pub(super) const PARTITION_TRANSACTION_HANGS: &str = "partition_transaction_hangs";
pub(super) const PARTITION_WATERMARK_TIMESTAMP_SECONDS: &str = "partition_watermark_timestamp_seconds";
pub(super) const PARTITION_WATERMARK_LAG_SECONDS: &str = "partition_watermark_lag_seconds";
pub(super) const PARTITION_STATUS: &str = "partition_status";
pub(super) const PARTITION_SPENT_SECONDS: &str = "partition_spent_seconds";
pub(super) const PARTITION_RECORDS: &str = "partition_records";
pub(super) const PARTITION_BYTES: &str = "partition_bytes";
pub(super) const SOURCE_WATERMARK_TIMESTAMP_SECONDS: &str = "source_watermark_timestamp_seconds";
pub(super) const SOURCE_IS_IDLE: &str = "source_is_idle";
pub(super) const SOURCE_LATE_RECORDS: &str = "source_late_records";
pub(super) const SOURCE_RECORDS_WITHOUT_TIMESTAMP: &str = "source_records_without_timestamp";
pub(super) const SINK_WATERMARK_TIMESTAMP_SECONDS: &str = "sink_watermark_timestamp_seconds";
pub(super) const SINK_LATE_RECORDS: &str = "sink_late_records";
pub(super) const SOURCE_IS_CUT_OFF: &str = "source_is_cut_off";
pub(super) const SOURCE_IS_HELD_BACK: &str = "source_is_held_back";
pub(super) const SOURCE_PAUSES: &str = "source_pauses";
pub(super) const SOURCE_ERRORS: &str = "source_errors";
pub(super) const SOURCE_STALE_RECORDS: &str = "source_stale_records";
pub(super) const SOURCE_GAPS: &str = "source_gaps";
pub(super) const SOURCE_LOST_OFFSETS: &str = "source_lost_offsets";
pub(super) const SOURCE_OFFSET_COMMITS: &str = "source_offset_commits";
pub(super) const SOURCE_BATCHES: &str = "source_batches";
pub(super) const SOURCE_BATCH_WAIT_SECONDS: &str = "source_batch_wait_seconds";
pub(super) const SOURCE_LONGEST_BATCH_WAIT_SECONDS: &str = "source_longest_batch_wait_seconds";
pub(super) const SOURCE_CLIENT_REQUESTS: &str = "source_client_requests";
pub(super) const SOURCE_CLIENT_RESPONSES: &str = "source_client_responses";
pub(super) const SOURCE_CLIENT_SENT_BYTES: &str = "source_client_sent_bytes";
pub(super) const SOURCE_CLIENT_RECEIVED_BYTES: &str = "source_client_received_bytes";
pub(super) const SOURCE_CLIENT_QUEUED_EVENTS: &str = "source_client_queued_events";

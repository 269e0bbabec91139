//! What judges a test's outcome: whether records were lost, doubled, disordered or overtaken by a watermark.
//!
//! ```text
//! topic ──(console consumer)──> TopicContents ──┐
//!                                               ├─> exactly_once, at_least_once, in_order ──> Ok, or what is wrong
//! table ──(psql)──────────────> RowCounts ──────┘
//! events of a stream ────────────────────────────> WatermarkJudge ──────────────────────────> Ok, or what is wrong
//! ```
//!
//! The judges are functions over values. Only [`topic()`] and [`table()`] look at a server, both through the server's own
//! client: a mistake that writer and reader share would hide itself.
//!
//! What a judge finds is an error whose `Debug` is its `Display`, so that `unwrap` in a test explains itself.

mod exactly_once;
mod listing;
mod order;
mod table;
mod topic;
mod watermarks;

pub use exactly_once::{Counts, Miscount, Verdict, at_least_once, exactly_once};
pub use order::{Disorder, Order, Repeat, Swap, in_order};
pub use table::{Key, Psql, RowCounts, TableError, table};
pub use topic::{
    Isolation, OpenEnd, Payload, ReadError, Record, Timestamp, TopicContents, TopicReader, topic,
};
pub use watermarks::{Event, Judged, Misjudged, Violation, ViolationKind, WatermarkJudge, watermarks};

//! What a topic holds, read with Kafka's own console consumer at both isolation levels.
//!
//! ```text
//! GetOffsetShell ──> the ends: all that is written when the reading starts
//!       │
//!       v
//! ConsoleConsumer, read_committed   ─┐ once more, with the same group, until
//! ConsoleConsumer, read_uncommitted ─┤ each partition's end is reached, or the
//!       │                            │ transaction that holds it up is known
//!       v                            │
//! records, and how far the groups are: by the records' offsets, else ConsumerGroupCommand
//!       │
//!       v
//! TransactionsCommand: is a partition held up by an open transaction?
//! ```
//!
//! A partition's last record says little about its end: markers of transactions, aborted records and holes of compaction
//! come after it. The committed position of a group that has read them is behind them all.

mod contents;
mod error;
mod group;
mod line;
mod offsets;
mod payload;
mod progress;
mod read;
mod session;
mod transactions;

pub use contents::{OpenEnd, TopicContents};
pub use error::ReadError;
pub use line::{Record, Timestamp};
pub use payload::Payload;
pub use read::{TopicReader, topic};
pub use session::Isolation;

//! Jobs with checkpoints from Kafka: the program that crash loops kill, and the judges of what it has written.
//!
//! ```text
//!  feed ─▶ topic, 4 partitions ─▶ source ─▶ key_by ─▶ target ─▶ HOME/out    judged by `published`, `ledger`, `rows` or `visible`
//!  numbered values of each key      life of the program          HOME/store  checkpoints
//!                                                                HOME/markers
//! ```
//!
//! A value names its key and its number among the key's values, so a judge needs no second source of truth: of each key
//! the numbers 0, 1, 2, … must be there, in this order, up to what was fed.

mod appended;
mod coordinators;
mod due;
mod evidence;
mod feed;
mod job;
mod killing;
mod ledger;
mod lives;
mod markers;
mod published;
mod rows;
mod scene;
mod target;
mod told;
mod visible;
mod wrong;
mod wrong_kafka;

pub use appended::{AppendingSink, FAIL_POINTS as APPENDING_FAIL_POINTS};
pub use coordinators::Coordinators;
pub use feed::{Fed, Feed};
pub use job::job;
pub use killing::{found_out, killing, killing_up_to, points_of};
pub use ledger::Ledger;
pub use lives::{disturbances, life, parallelism, restarting_life};
pub use published::Published;
pub(crate) use published::{files_in, whole};
pub use rows::Rows;
pub use scene::Scene;
pub use target::Target;
pub use told::Told;
pub use visible::Visible;

/// What a judge finds: nothing, or what is wrong.
pub type Verdict = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Reads a line that the job has made: a key and a number, and what follows them is padding.
fn key_and_number(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split(' ');
    Some((words.next()?, words.next()?.parse().ok()?))
}

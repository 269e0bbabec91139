//! What a start decides about transactions that were pre-committed before it, as functions over values.
//!
//! This is *not* a client: nothing here sends a request. Whoever does asks the coordinator, the marker and the clock, hands
//! over the answers, and does what comes out.
//!
//! ```text
//!  handles of checkpoint n ──┐
//!  DescribeTransactions ─────┼─▶ outcome ─▶ fate, one for each handle ─┬─▶ the engine's verdict, over all sinks of a job
//!  marker, clock, cluster ───┘    what the coordinator says;           └─▶ plan: the same decision for a sink alone
//!                                 what it leaves open, the marker says
//!
//!  answer to EndTxn ─▶ answer ─▶ done, again, stop, or: ask as above ─▶ committed / aborted
//!  ids on the brokers ─▶ name ─▶ to_fence: whose are they, and may they be ended
//! ```
//!
//! **Why the coordinator alone is believed.** Each transaction has its (id, producer id, epoch) for itself, and nobody
//! initialises the id before the outcome is recorded. So the triple and the state tell what became of the transaction: the
//! broker's time-out and a fence raise the epoch by one, an abort by `EndTxn` leaves it. What does not fit is *forgotten*,
//! and the marker decides, which every transaction writes into itself; without one, a human does. There is no guess.
//!
//! **What the clock does.** It tells which transactions had better not be committed, because the broker may drop some of
//! them in between ([`Fate::Expiring`](levada_core::template::Fate::Expiring)). If it is wrong, the job stops where it need not have, or reads again what it could
//! have committed. It never makes anything visible twice, and loses nothing.

mod answer;
mod describe;
mod evidence;
mod fence;
mod handle;
mod marker;
mod name;
mod outcome;
mod plan;
mod prepared;
#[cfg(test)]
mod scene;
mod seen;
mod stored;

pub use answer::{AbortSettled, Answer, CommitSettled, answer, settled_abort, settled_commit};
pub use describe::{DescribedTransaction, Description, Partitions, TransactionState};
pub use evidence::{Evidence, Terms, fate};
pub use fence::to_fence;
pub use handle::TransactionHandle;
pub use marker::Marker;
pub use name::{NameError, SlotName, TransactionNaming};
pub use outcome::{Outcome, outcome};
pub use plan::{Plan, Standing, TornPolicy, plan, plan_by_fates};
pub use prepared::{NotPrepared, check_prepared};
pub(crate) use seen::{
    CommittedTransaction, Completion, LeftOut, OpenProducer, Place, Seen, Told, completion, seen,
};

//! Slots: transactional producers that are made ready before they are needed.
//!
//! ```text
//!          ┌──────────────────────────────── free ────────────────────────────────┐
//!          ▼                                                                      │
//!       Warming ──▶ Warm ── open ──▶ Open ── freeze ──▶ Frozen ── (committed or aborted, and that is recorded)
//!     new client     │                │ send                │
//!     init           │ epoch known,   └─ dropped ─▶ Left ◀──┘ dropped
//!     topics         │ nothing written               never initialised again by this process: whoever recovers decides
//! ```
//!
//! *One epoch, one transaction.* A coordinator ends "whatever is open under this id, producer id and epoch", so two
//! transactions of one epoch could be taken for each other, also by an answer that comes late. A client initialises its id only
//! once, so each transaction has a client of its own; the id is initialised again, by the next client, when the slot is free:
//! by then what it carried is decided for good. Making a slot ready takes some 60 ms on one broker, in the background.
//!
//! *Order.* A slot is frozen when all its reports are in, and only then is the next one written to: two clients never write to
//! a partition at the same time.

mod describe;
mod frozen;
mod mark;
mod open;
mod pool;
mod standing;
mod warm;

pub use describe::{Describe, ProducerIdentity};
pub use frozen::FrozenSlot;
pub(crate) use mark::Mark;
pub use open::{Freeze, OpenSlot};
pub use pool::Slots;
pub use standing::{SlotStanding, SlotState, Standings};

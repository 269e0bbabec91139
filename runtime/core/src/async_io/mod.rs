//! Calls to other systems from the middle of a stream: many in flight, their results back in the order that was asked for.
//!
//! Everything here is a value: what calls a function, and when, is up to an engine. Time comes in as an argument.
//!
//! * [`AsyncFunction`] is called with one input at a time, [`AsyncBatchFunction`] with many at once.
//! * [`CallError`] is classed, so that an engine can tell a bad record from a system that is away.

mod error;
mod function;

pub use error::CallError;
pub use function::{AsyncBatchFunction, AsyncFunction, Called};

//! Calls to other systems from the middle of a stream: many in flight, their results back in the order that was asked for.
//!
//! Everything here is a value: what calls a function, and when, is up to an engine. Time comes in as an argument.
//!
//! * [`AsyncFunction`] is called with one input at a time, [`AsyncBatchFunction`] with many at once.
//! * [`CallError`] is classed, so that an engine can tell a bad record from a system that is away.
//! * [`AsyncSettings`] say how; [`RetryStrategy`] when again.
//! * [`Queue`] holds inputs until their results may leave; [`Operator`] decides on calls, timeouts and retries around it.

mod error;
mod function;
mod metrics;
mod operator;
mod queue;
mod retry;
mod settings;

pub use error::CallError;
pub use function::{AsyncBatchFunction, AsyncFunction, Called};
pub use metrics::{CallMetrics, Histogram};
pub use operator::{Call, CallId, Operator, Outcome, Pending};
pub use queue::{Held, Left, Order, Place, Queue};
pub use retry::RetryStrategy;
pub use settings::{AsyncSettings, Batching, OnError, SettingsError};

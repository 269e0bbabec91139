//! [ASY] The calls of an async step, as values: queues, timeouts, retries, batches, and what a checkpoint holds.

#[path = "../time/dice.rs"]
mod dice;

mod batches;
mod calls;
mod histories;
mod model;
mod queue;
mod retries;
mod scene;

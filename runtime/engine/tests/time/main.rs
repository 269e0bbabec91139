//! Time in jobs: watermarks, idleness and drift, over sources that do what a test tells them, and a clock that it sets.
//!
//! Time of the runtime is paused, so it moves on only where every task waits: ticks come, and nobody waits for them.

mod atomic;
mod clock;
mod drift;
mod functions;
mod idleness;
mod late;
mod merging;
mod restarts;
mod scene;
mod scripted;
mod spent;
mod timestamps;
mod wakeups;
mod watermarks;

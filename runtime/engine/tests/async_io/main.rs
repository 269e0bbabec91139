//! [ASY] Async steps in jobs, over streams, and on threads.

mod atomic;
mod blocking;
mod checkpointed;
mod ends;
mod order;
mod restores;
mod scene;
mod stream;

#[path = "../atomic/scripted.rs"]
#[allow(dead_code, reason = "shared with the tests of atomic jobs")]
mod scripted;
#[path = "../atomic/table.rs"]
#[allow(dead_code, reason = "shared with the tests of atomic jobs")]
mod table;

//! Every recipe is started as its reader starts it, and what it prints and writes is looked at.

mod calls;
mod counting;
mod idempotent;
mod own;
mod program;
mod redis;
mod socket;
mod watermarking;
mod write_ahead;

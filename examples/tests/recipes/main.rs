//! Every recipe is started as its reader starts it, and what it prints and writes is looked at.

mod counting;
mod idempotent;
mod own;
mod program;
mod socket;
mod watermarking;
mod write_ahead;

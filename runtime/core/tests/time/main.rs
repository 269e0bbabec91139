//! Watermarks, idleness and drift: the rules with their numbers, and random histories against models that recompute
//! everything from scratch.

mod channel_merge;
mod dice;
mod drift;
mod generators;
mod source_batch;
mod source_time;
mod split_merge;
mod split_model;
mod split_state;
mod strategy;

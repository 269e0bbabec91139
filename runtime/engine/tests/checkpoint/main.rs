//! The decisions around checkpoints: alignment, the coordinator, restarts.

mod align;
mod histories;
mod scenarios;

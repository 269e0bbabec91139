//! Jobs with checkpoints, over scripted sources and a target in memory that outlives them.

mod flow;
mod manifests;
mod panics;
mod pieces;
mod recovery;
mod savepoints;
mod scene;
mod segments;
mod several;
mod signals;
mod starts;
mod states;
mod target;
mod timeouts;
mod writers;

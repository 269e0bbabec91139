//! The drivers of the sink templates, each with a sink that is scripted by the test and keeps a record of what it was
//! asked to do.

mod golden;
mod histories;
mod idempotent;
mod marker_file;
mod recovery;
mod scripted;
mod segments;
mod table;
mod transactions;
mod two_phase;
mod write_ahead;

//! The transactional sink.

pub mod recovery;

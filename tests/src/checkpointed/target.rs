//! What a job writes to.

use std::fmt;
use std::str::FromStr;

/// What a job writes to: the right way, or in one of the ways that a crash loop must find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The transactional file sink.
    Files,
    /// The same, but a transaction is published when it is only to be prepared.
    FilesPublishedEarly,
    /// The same, but what an earlier process has left prepared is forgotten.
    FilesLeftPending,
    /// A write-ahead sink that appends to files, with the committer of files.
    Appended,
    /// The same, but a segment counts as sent before it is.
    AppendedMarkedFirst,
    /// The same, but nobody remembers what was sent.
    AppendedNeverKnown,
}

/// The word that names each target on a command line.
const WORDS: [(&str, Target); 6] = [
    ("files", Target::Files),
    ("files-published-early", Target::FilesPublishedEarly),
    ("files-left-pending", Target::FilesLeftPending),
    ("appended", Target::Appended),
    ("appended-marked-first", Target::AppendedMarkedFirst),
    ("appended-never-known", Target::AppendedNeverKnown),
];

impl FromStr for Target {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = WORDS.into_iter().find(|(name, _)| *name == word);
        found.map(|(_, target)| target).ok_or_else(|| format!("{word:?} is no target"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = WORDS.iter().find(|(_, target)| target == self);
        f.write_str(found.map_or("unnamed", |(name, _)| name))
    }
}

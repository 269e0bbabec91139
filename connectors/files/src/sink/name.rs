//! The names of files: unique per job, sink, subtask and checkpoint, in the order of the commits.
//!
//! ```text
//!   flights.out.00000000000000000003-00000000000000000017-0000000002.jsonl
//!   job     uid attempt              sequence             subtask    suffix
//! ```
//!
//! Numbers have their full width, so the order of names is the order of `(attempt, sequence, subtask)`: a subtask's
//! records are in order when its files are read by name. What is no letter, digit, `_` or `-` in job and uid is written
//! `%2E`, so no job's names can be taken for another's.

use levada_core::CheckpointId;
use levada_core::template::TransactionName;

/// The longest name that Linux's file systems take, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Makes the names of one sink's files, and recognises them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Naming {
    prefix: String,
    suffix: String,
}

impl Naming {
    pub(crate) fn new(job: &str, uid: &str, suffix: &str) -> Self {
        Self { prefix: format!("{}.{}.", escaped(job), escaped(uid)), suffix: suffix.to_owned() }
    }

    pub(crate) fn file_of(&self, name: &TransactionName) -> String {
        let TransactionName { subtask, checkpoint } = name;
        let (attempt, sequence) = (checkpoint.attempt, checkpoint.sequence);
        format!("{}{attempt:020}-{sequence:020}-{subtask:010}{}", self.prefix, self.suffix)
    }

    /// Reads for which checkpoint a file was named, whatever its suffix; `None` when it is not of this job and sink.
    pub(crate) fn checkpoint_of(&self, file: &str) -> Option<CheckpointId> {
        let rest = file.strip_prefix(&self.prefix)?;
        let mut numbers = rest.get(..NUMBERS.iter().sum::<usize>() + 2)?.split('-');
        let mut next = |width| numbers.next().and_then(|text| number_of(text, width));
        let [attempt, sequence, subtask] = NUMBERS.map(&mut next);
        subtask?;
        numbers.next().is_none().then_some(CheckpointId::new(attempt?, sequence?))
    }

    /// Returns the length of its names, if they are too long for a file system, and the limit.
    pub(crate) fn too_long(&self) -> Option<(usize, usize)> {
        let length = self.prefix.len() + NUMBERS.iter().sum::<usize>() + 2 + self.suffix.len();
        (length > MAX_NAME_BYTES).then_some((length, MAX_NAME_BYTES))
    }
}

/// The widths of attempt, sequence and subtask: those of the largest `u64` and `u32`.
const NUMBERS: [usize; 3] = [20, 20, 10];

/// Reads a number that has its full width.
fn number_of(text: &str, width: usize) -> Option<u64> {
    let is_full = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    is_full.then(|| text.parse().ok()).flatten()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(attempt: u64, sequence: u64, subtask: u32) -> TransactionName {
        TransactionName { subtask, checkpoint: CheckpointId::new(attempt, sequence) }
    }

    #[test]
    fn a_name_tells_job_sink_checkpoint_and_subtask() {
        let naming = Naming::new("flights", "out", ".jsonl");
        let file = naming.file_of(&name(3, 17, 2));
        assert_eq!(file, "flights.out.00000000000000000003-00000000000000000017-0000000002.jsonl");
    }

    #[test]
    fn names_of_one_job_are_not_taken_for_anothers() {
        let dotted = Naming::new("a.b", "c", "");
        let plain = Naming::new("a", "b.c", "");
        let nested = Naming::new("../a", "b", "");
        let file = dotted.file_of(&name(1, 1, 0));
        assert_eq!(dotted.checkpoint_of(&file), Some(CheckpointId::new(1, 1)));
        assert_eq!(plain.checkpoint_of(&file), None);
        assert!(!nested.file_of(&name(1, 1, 0)).contains('/'));
    }

    #[test]
    fn what_only_begins_like_ours_is_not_ours() {
        let naming = Naming::new("a", "b", ".txt");
        let strangers = [
            "a.b.notes",
            "a.b.",
            "a.b.0-0-0",
            "a.bc.00000000000000000001-00000000000000000001-0000000000",
            "a.b.00000000000000000001-+0000000000000000001-0000000000",
            "a.b.99999999999999999999-00000000000000000001-0000000000",
        ];
        assert_eq!(strangers.map(|file| naming.checkpoint_of(file)), [None; 6]);
        let other_suffix = "a.b.00000000000000000001-00000000000000000002-0000000000.gz";
        assert_eq!(naming.checkpoint_of(other_suffix), Some(CheckpointId::new(1, 2)));
    }

    #[test]
    fn a_name_that_no_file_system_takes_is_noticed() {
        assert_eq!(Naming::new("job", "uid", "").too_long(), None);
        assert_eq!(Naming::new(&"ü".repeat(60), "uid", "").too_long(), Some((417, 255)));
    }

    proptest! {
        /// [TPL-16] names sort as their commits do.
        #[test]
        fn names_sort_in_the_order_of_checkpoints(a: (u64, u64, u32), b: (u64, u64, u32)) {
            let naming = Naming::new("job", "uid", ".txt");
            let file_of = |(attempt, sequence, subtask)| naming.file_of(&name(attempt, sequence, subtask));
            prop_assert_eq!(file_of(a).cmp(&file_of(b)), a.cmp(&b));
            prop_assert_eq!(naming.checkpoint_of(&file_of(a)), Some(CheckpointId::new(a.0, a.1)));
        }
    }
}

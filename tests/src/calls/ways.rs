//! The source: numbers without end, parted into ways, so that they can be dealt out to any number of subtasks.

use std::path::{Path, PathBuf};
use std::{fs, io};

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{
    CheckpointId, ErrorClass, ListState, SourceContext, SourceError, Spread, State, Timestamp,
};

/// How many ways there are: way w holds w, w + 12, w + 24, …
pub(super) const WAYS: u64 = 12;

/// Ways end at multiples of so many of their numbers.
const ROUND: u64 = 100;

/// A watermark follows so many numbers.
const NUMBERS: u64 = 32;

/// Makes an input of a size that the few that are in flight with the smallest capacity are too large to be stored inside of a
/// manifest.
const PADDING: usize = 600;

/// Counts on its ways, and goes on behind the last checkpoint.
#[derive(Debug)]
pub(super) struct Ways {
    next: Vec<u64>,
    /// Where the ends are noted, if there are to be some.
    ends: Option<PathBuf>,
    counted: u64,
}

impl Ways {
    pub(super) fn without_end() -> Self {
        Self { next: Vec::new(), ends: None, counted: 0 }
    }

    /// Counts each way up to an end, and notes it in the folder.
    pub(super) fn up_to_ends(folder: PathBuf) -> Self {
        Self { ends: Some(folder), ..Self::without_end() }
    }
}

/// Returns the end of a way: the first that is not before `next`. Where it is, a restart finds it again.
fn end_behind(next: u64) -> u64 {
    (next / WAYS).next_multiple_of(ROUND) * WAYS + next % WAYS
}

fn note(folder: &Path, next: u64) -> io::Result<()> {
    fs::write(folder.join((next % WAYS).to_string()), end_behind(next).to_string())
}

/// Returns the ends that were noted, by way.
pub(super) fn noted_ends(folder: &Path) -> io::Result<Vec<u64>> {
    let end = |way: u64| fs::read_to_string(folder.join(way.to_string()))?.parse().map_err(io::Error::other);
    (0..WAYS).map(end).collect()
}

impl SourceFunction for Ways {
    type Item = String;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        let is_own = |way: &u64| way % u64::from(ctx.parallelism) == u64::from(ctx.subtask);
        self.next = match restored.get("next") {
            Some(list) => list.values()?,
            None => (0..WAYS).filter(is_own).collect(),
        };
        if let Some(folder) = &self.ends {
            let noted = self.next.iter().try_for_each(|next| note(folder, *next));
            noted.map_err(|error| SourceError::new(ErrorClass::Fatal, error.to_string()))?;
        }
        Ok(())
    }

    /// One at a time: whatever is in a channel in front of a barrier is stored, too.
    async fn next(&mut self, out: &mut Emit<'_, String>) -> Result<Next, SourceError> {
        let has_end = self.ends.is_some();
        let is_due = |next: &&mut u64| !has_end || **next < end_behind(**next);
        let Some(next) = self.next.iter_mut().filter(is_due).min() else { return Ok(Next::End) };
        out.record_at(format!("{next} {:.<PADDING$}", ""), Timestamp(*next as i64));
        *next += WAYS;
        self.counted += 1;
        // The smallest number goes first, so all that follow are at least as large as the smallest that is next.
        if let Some(next) = self.next.iter().min().filter(|_| self.counted.is_multiple_of(NUMBERS)) {
            out.watermark(Timestamp(*next as i64 - 1));
        }
        Ok(Next::More)
    }

    fn snapshot(&mut self, _: CheckpointId) -> State {
        State::new().with("next", ListState::of(Spread::Split, self.next.iter().copied()))
    }
}

/// Reads the number of an input.
pub(super) fn number_of(input: &str) -> Option<u64> {
    input.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ROUND, WAYS, end_behind};

    #[test]
    fn way_ends_where_a_restart_finds_the_same_end() {
        assert_eq!(end_behind(5), 5, "nothing of it was counted");
        assert_eq!(end_behind(5 + WAYS), 5 + WAYS * ROUND);
        assert_eq!(end_behind(5 + WAYS * ROUND), 5 + WAYS * ROUND);
    }
}

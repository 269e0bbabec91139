//! Of each key the numbers 0, 1, 2, …, each once, in this order.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::{Verdict, key_and_number};

/// The number that is due, by key.
#[derive(Debug, Default)]
pub(super) struct Due(BTreeMap<String, u64>);

impl Due {
    /// Takes the next line, which was found at `place`.
    pub(super) fn take(&mut self, line: &str, place: &dyn Display) -> Verdict {
        let (key, number) = key_and_number(line).ok_or_else(|| format!("a strange line: {line:?}"))?;
        let due = self.0.entry(key.to_owned()).or_default();
        match number.cmp(due) {
            std::cmp::Ordering::Equal => {
                *due += 1;
                Ok(())
            }
            std::cmp::Ordering::Less => Err(format!("{key} {number} is doubled, in {place}").into()),
            std::cmp::Ordering::Greater => Err(format!("{key} {due} is lost or late, before {place}").into()),
        }
    }

    /// Returns how many lines were taken, by key.
    pub(super) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.0
    }

    /// Returns how many lines were taken.
    pub(super) fn lines(&self) -> u64 {
        self.0.values().sum()
    }
}

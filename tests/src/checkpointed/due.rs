//! Of each key the numbers 0, 1, 2, …, each once, in this order.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Display, Formatter};

use super::{Verdict, key_and_number};

/// A number that is not the one that is due.
#[derive(Debug)]
pub(super) struct NotDue {
    pub(super) key: String,
    pub(super) due: u64,
    found: u64,
    place: String,
}

impl Display for NotDue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { key, due, found, place } = self;
        match found < due {
            true => write!(f, "{key} {found} is doubled, in {place}"),
            false => write!(f, "{key} {due} is lost or late, before {place}"),
        }
    }
}

impl Error for NotDue {}

/// The number that is due, by key.
#[derive(Debug, Default)]
pub(super) struct Due(BTreeMap<String, u64>);

impl Due {
    /// Takes the next line, which was found at `place`.
    pub(super) fn take(&mut self, line: &str, place: &dyn Display) -> Verdict {
        let (key, number) = key_and_number(line).ok_or_else(|| format!("a strange line: {line:?}"))?;
        let due = self.0.entry(key.to_owned()).or_default();
        if number != *due {
            let (key, place) = (key.to_owned(), place.to_string());
            return Err(NotDue { key, due: *due, found: number, place }.into());
        }
        *due += 1;
        Ok(())
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

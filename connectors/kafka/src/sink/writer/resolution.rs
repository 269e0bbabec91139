//! What a start has come to.

use std::fmt;

use levada_core::template::Fate;

use crate::sink::recovery::TransactionHandle;

/// What was decided over all transactions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decided {
    /// There were none.
    Nothing,
    /// All are visible.
    Committed,
    /// None is: their records are to be written again.
    RolledBack,
}

/// What [`resolve`](super::TransactionalWriter::resolve) found and did. Strike the handles out now: they are decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// What was decided.
    pub decided: Decided,
    /// The transactions, oldest first, each with what was found before anything was changed.
    pub found: Vec<(TransactionHandle, Fate)>,
}

impl Resolution {
    fn found(&self, decided: Decided, fate: Fate) -> impl Iterator<Item = &TransactionHandle> {
        let is_decided = self.decided == decided;
        let wanted = self.found.iter().filter(move |(_, found)| is_decided && *found == fate);
        wanted.map(|(handle, _)| handle)
    }

    /// Returns the records of all transactions.
    pub fn records(&self) -> u64 {
        self.found.iter().map(|(handle, _)| handle.records).sum()
    }

    /// Walks through those that are gone though the others were committed: only under
    /// [`TornPolicy::Lose`](super::TornPolicy::Lose).
    pub fn lost(&self) -> impl Iterator<Item = &TransactionHandle> {
        self.found(Decided::Committed, Fate::Aborted)
    }

    /// Walks through those that stay visible though the others were rolled back, so that their records will be there twice: only
    /// under [`TornPolicy::Duplicate`](super::TornPolicy::Duplicate).
    pub fn doubled(&self) -> impl Iterator<Item = &TransactionHandle> {
        self.found(Decided::RolledBack, Fate::Committed)
    }
}

fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Prints one line: `2 transactions with 120 records committed, 1 of them before`.
impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, records) = (self.found.len(), self.records());
        let had = |fate| self.found.iter().filter(|(_, found)| *found == fate).count();
        match self.decided {
            Decided::Nothing => f.write_str("no transaction was left to decide over"),
            Decided::Committed => {
                write!(
                    f,
                    "{} with {} committed",
                    counted(count as u64, "transaction"),
                    counted(records, "record")
                )?;
                write!(f, ", {} of them before", had(Fate::Committed))
            }
            Decided::RolledBack => {
                write!(
                    f,
                    "{} with {} rolled back",
                    counted(count as u64, "transaction"),
                    counted(records, "record")
                )?;
                write!(
                    f,
                    ": {} were gone, {} too near their timeout",
                    had(Fate::Aborted),
                    had(Fate::Expiring)
                )
            }
        }?;
        let lost = self.lost().map(|handle| format!("; LOST: {handle}"));
        let doubled = self.doubled().map(|handle| format!("; WILL BE DOUBLED: {handle}"));
        f.write_str(&lost.chain(doubled).collect::<String>())
    }
}

//! What must not be done by hand, and why.

use levada_core::template::Fate;
use levada_kafka::protocol::State;

use super::end::Ending;
use super::stored::Standing;
use super::survey::{Found, Named, Would, is_open};

/// Whether something can be done with a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Checked {
    /// It is to be done.
    Due,
    /// It is as it is asked to be.
    Done,
    /// It must not be done.
    Refused(String),
}

/// Checks one transaction.
pub(super) fn check(found: &Found, ending: Ending, is_forced: bool) -> Checked {
    let checked = match (ending, &found.named) {
        (Ending::Commit, None) => Err("no checkpoint names it, so its records are written again".to_owned()),
        (Ending::Commit, Some(named)) => commit_named(named, is_forced),
        (Ending::Abort, Some(named)) => abort_named(named, is_forced),
        (Ending::Abort, None) => abort_left_over(found, is_forced),
    };
    checked.unwrap_or_else(|why| Checked::Refused(format!("{}: {why}", found.id)))
}

fn commit_named(named: &Named, is_forced: bool) -> Result<Checked, String> {
    let Named { checkpoint, standing, handle, fate, is_whole } = named;
    match (fate, standing) {
        (Fate::Committed, _) => Ok(Checked::Done),
        (Fate::Aborted, _) => Err(format!("it is aborted, its {} records are gone", handle.records)),
        (Fate::Pending | Fate::Expiring, Standing::RolledBack) => {
            Err(format!("checkpoint {checkpoint} is rolled back, so its records are read and written again"))
        }
        (Fate::Pending | Fate::Expiring, _) if *is_whole || is_forced => Ok(Checked::Due),
        (Fate::Pending | Fate::Expiring, _) => Err(format!(
            "checkpoint {checkpoint} as a whole cannot be committed, and a part of it would tear it; --force does it all the same"
        )),
        _ => Err(unknown()),
    }
}

fn abort_named(named: &Named, is_forced: bool) -> Result<Checked, String> {
    let Named { checkpoint, standing, fate, .. } = named;
    match (fate, standing) {
        (Fate::Aborted, _) => Ok(Checked::Done),
        (Fate::Committed, _) => Err("it is committed".to_owned()),
        (Fate::Pending | Fate::Expiring, Standing::RolledBack) => Ok(Checked::Due),
        (Fate::Pending | Fate::Expiring, _) if is_forced => Ok(Checked::Due),
        (Fate::Pending | Fate::Expiring, _) => Err(format!(
            "checkpoint {checkpoint} names it, and its records are not written again by a start from there; --force aborts it all the \
             same, and the next start goes back to the checkpoint before, or stops"
        )),
        _ => Err(unknown()),
    }
}

fn abort_left_over(found: &Found, is_forced: bool) -> Result<Checked, String> {
    match (&found.told, found.would) {
        (None, _) => Err("its coordinator does not know it".to_owned()),
        (Some(told), _) if told.state == State::PrepareCommit => Err("it is being committed".to_owned()),
        (Some(told), _) if !is_open(told.state) => Ok(Checked::Done),
        (Some(_), Would::Nothing(why)) if !is_forced => {
            Err(format!("it is {why}; --force aborts it all the same"))
        }
        _ => Ok(Checked::Due),
    }
}

fn unknown() -> String {
    "nobody tells what became of it: its coordinator has forgotten it, or it is of another cluster".to_owned()
}

//! Tells what became of transactions after a crash.

use levada_core::template::Fate;

use super::error::FileError;
use super::handle::FileHandle;
use super::judge::{Verdict, judged};

/// Looks at each transaction's file.
pub(super) fn fates(handles: &[FileHandle]) -> Result<Vec<Fate>, FileError> {
    handles.iter().map(|handle| judged(handle).map(|verdict| fate(handle, verdict))).collect()
}

fn fate(handle: &FileHandle, verdict: Verdict) -> Fate {
    match verdict {
        // Whatever waits there cannot be committed.
        _ if !handle.is_pre_committed => Fate::Aborted,
        // Nothing has to become visible.
        _ if handle.is_empty() => Fate::Committed,
        Verdict::Pending => Fate::Pending,
        // Readers may have seen it.
        Verdict::Published | Verdict::Committed => Fate::Committed,
        Verdict::Damaged { .. } => Fate::Aborted,
        // It may have been published and taken away since.
        Verdict::Lost | Verdict::Foreign => Fate::Unknown,
    }
}

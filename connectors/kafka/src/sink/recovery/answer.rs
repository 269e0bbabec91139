//! What an answer to `EndTxn` means: the same in normal operation and in recovery.

use levada_core::template::Fate;

/// What to do behind an answer to `EndTxn`, commit or abort, at version 4 or below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It is done, now or before.
    Done,
    /// The same request again, after a pause; to the coordinator as it is found then. So is no answer at all.
    Again,
    /// The coordinator refuses: ask it for the id, then the marker, and go by [`settled_commit`] or [`settled_abort`].
    Ask,
    /// We may not: stop. The transaction waits until it times out.
    Forbidden,
    /// What the protocol does not provide for here: stop.
    Unexpected(i16),
}

/// Reads the error code of an answer to `EndTxn`.
///
/// The codes are those of the Kafka protocol. At versions 0 and 1, 47 stands for 90.
pub fn answer(code: i16) -> Answer {
    match code {
        0 => Answer::Done,
        // Timed out on the broker, network; coordinator loading, not available, moved; the transaction is in transition.
        7 | 13 | 14 | 15 | 16 | 51 => Answer::Again,
        // Epoch, state, id mapping, producer unknown, fenced.
        47 | 48 | 49 | 59 | 90 => Answer::Ask,
        // The id, the cluster.
        31 | 53 => Answer::Forbidden,
        other => Answer::Unexpected(other),
    }
}

/// How a commit that was refused stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitSettled {
    /// The records are visible.
    Done,
    /// It waits still: the refusal was about a state that has passed. Again, within the same bound.
    Again,
    /// The records are gone. Never passed over in silence.
    Lost,
    /// Nobody tells. Stop.
    Unknown,
}

/// Tells how a commit stands that was refused.
pub fn settled_commit(fate: Fate) -> CommitSettled {
    match fate {
        Fate::Committed => CommitSettled::Done,
        Fate::Pending | Fate::Expiring => CommitSettled::Again,
        Fate::Aborted => CommitSettled::Lost,
        _ => CommitSettled::Unknown,
    }
}

/// How an abort that was refused stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AbortSettled {
    /// Nothing of it waits.
    Done,
    /// It waits still. Again, within the same bound.
    Again,
    /// Somebody has committed it meanwhile: stop, the checkpoint is torn.
    Visible,
}

/// Tells how an abort stands that was refused.
///
/// One whose fate nobody knows any more is over. That is enough here: aborts are decided where nothing was visible, and
/// repeated by starts that come behind the fence, which makes a coordinator forget.
pub fn settled_abort(fate: Fate) -> AbortSettled {
    match fate {
        Fate::Committed => AbortSettled::Visible,
        Fate::Pending | Fate::Expiring => AbortSettled::Again,
        _ => AbortSettled::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [KSK-09] the codes by name.
    #[test]
    fn codes_of_an_answer_are_done_tried_again_asked_about_or_stopped_at() {
        assert_eq!(answer(0), Answer::Done);
        for code in [51, 14, 15, 16, 7, 13] {
            assert_eq!(answer(code), Answer::Again, "{code}");
        }
        for code in [47, 90, 48, 49, 59] {
            assert_eq!(answer(code), Answer::Ask, "{code}");
        }
        assert_eq!(answer(53), Answer::Forbidden);
        assert_eq!(answer(-1), Answer::Unexpected(-1));
        assert_eq!(answer(35), Answer::Unexpected(35), "unsupported version");
    }

    /// [KSK-09] [KSK-15] a refused commit is done, or a loss, or a stop; never passed over.
    #[test]
    fn refused_commit_is_settled_by_what_became_of_the_transaction() {
        assert_eq!(settled_commit(Fate::Committed), CommitSettled::Done);
        assert_eq!(settled_commit(Fate::Aborted), CommitSettled::Lost);
        assert_eq!(settled_commit(Fate::Unknown), CommitSettled::Unknown);
        assert_eq!(settled_commit(Fate::Pending), CommitSettled::Again);
    }

    /// [KSK-13] [KSK-14] a refused abort finds out if somebody was faster.
    #[test]
    fn refused_abort_notices_that_somebody_has_committed() {
        assert_eq!(settled_abort(Fate::Committed), AbortSettled::Visible);
        assert_eq!(settled_abort(Fate::Aborted), AbortSettled::Done);
        assert_eq!(settled_abort(Fate::Unknown), AbortSettled::Done);
        assert_eq!(settled_abort(Fate::Expiring), AbortSettled::Again);
    }
}

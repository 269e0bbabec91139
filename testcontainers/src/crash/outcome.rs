//! How a life ended, and whether it may have ended so.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::Signal;

use super::Plan;

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The child killed itself at the fail point.
    AtPoint,
    /// The child was killed at the random moment.
    AtMoment,
    /// The child had not come to the fail point when the patience was over, and was killed then.
    Missed,
    /// The child had finished its work before, with success. Only where [`may_finish`](super::CrashLoop::may_finish)
    /// allows it.
    Finished,
}

/// One life, as the oracle sees it when it is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The life's number, counted from 1.
    pub number: u32,
    /// How it was to end.
    pub plan: Plan,
    /// How it ended.
    pub end: End,
    /// What the child wrote, standard output and standard error in one.
    pub log: String,
}

/// Judges how a child ended; `None` if it must not have ended so.
pub(super) fn judge(
    plan: &Plan,
    status: ExitStatus,
    was_killed_by_us: bool,
    has_last_words: bool,
    may_finish: bool,
) -> Option<End> {
    let is_killed = status.signal() == Some(Signal::SIGKILL as i32);
    match plan {
        Plan::AtPoint { .. } if is_killed && has_last_words => Some(End::AtPoint),
        Plan::AtPoint { .. } if is_killed && was_killed_by_us => Some(End::Missed),
        Plan::AtMoment { .. } if is_killed && was_killed_by_us => Some(End::AtMoment),
        _ if status.success() && may_finish => Some(End::Finished),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::{End, Plan, judge};

    const KILLED: i32 = 9;
    const SEGMENTATION_FAULT: i32 = 11;
    const EXIT_0: i32 = 0;
    const EXIT_3: i32 = 3 << 8;

    /// [TST-10]
    #[test]
    fn only_our_own_kill_is_a_good_end() {
        let point = Plan::AtPoint { point: "p".to_owned(), passing: 1 };
        let moment = Plan::AtMoment { after: Duration::ZERO };
        let end = |plan: &Plan, status, by_us, words| {
            judge(plan, ExitStatus::from_raw(status), by_us, words, false)
        };
        assert_eq!(end(&point, KILLED, false, true), Some(End::AtPoint));
        assert_eq!(end(&point, KILLED, true, true), Some(End::AtPoint), "just before we did it");
        assert_eq!(end(&point, KILLED, true, false), Some(End::Missed));
        assert_eq!(end(&point, KILLED, false, false), None, "somebody else did it");
        assert_eq!(end(&moment, KILLED, true, false), Some(End::AtMoment));
        assert_eq!(end(&moment, KILLED, false, false), None, "somebody else did it");
        for status in [EXIT_0, EXIT_3, SEGMENTATION_FAULT] {
            assert_eq!(end(&point, status, false, false), None);
            assert_eq!(end(&moment, status, true, false), None, "just before we did it");
        }
    }

    /// [TST-10]
    #[test]
    fn a_child_that_may_finish_must_finish_well() {
        let plan = Plan::AtMoment { after: Duration::ZERO };
        let end = |status| judge(&plan, ExitStatus::from_raw(status), false, false, true);
        assert_eq!(end(EXIT_0), Some(End::Finished));
        assert_eq!(end(EXIT_3), None);
        assert_eq!(end(SEGMENTATION_FAULT), None);
    }
}

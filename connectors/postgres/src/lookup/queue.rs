//! Which calls a connection owes an answer, in the order in which they were sent.
//!
//! The server works in that order. A cancel hits whatever it is working on, so only the oldest call can be cancelled.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    next: u64,
    unanswered: VecDeque<Call>,
    /// The last call for which a cancel was sent.
    cancelled: Option<u64>,
    /// Whether a call was given up: no new ones are taken.
    is_draining: bool,
}

#[derive(Debug)]
struct Call {
    number: u64,
    is_given_up: bool,
}

impl Queue {
    /// Notes a call that is being sent, and numbers it. `None`: the connection takes no new calls.
    pub(crate) fn push(&mut self) -> Option<u64> {
        if self.is_draining {
            return None;
        }
        self.next += 1;
        self.unanswered.push_back(Call { number: self.next, is_given_up: false });
        Some(self.next)
    }

    /// Notes that a call's answer came; tells whether nobody had waited for it.
    pub(crate) fn answered(&mut self, number: u64) -> bool {
        let place = self.unanswered.iter().position(|call| call.number == number);
        place.and_then(|place| self.unanswered.remove(place)).is_some_and(|call| call.is_given_up)
    }

    /// Notes that nobody waits for a call's answer any more.
    pub(crate) fn give_up(&mut self, number: u64) {
        self.is_draining = true;
        for call in &mut self.unanswered {
            call.is_given_up |= call.number == number;
        }
    }

    /// Takes no new calls.
    pub(crate) fn retire(&mut self) {
        self.is_draining = true;
    }

    /// Tells whether the oldest call was given up, and no cancel was sent for it.
    pub(crate) fn owes_a_cancel(&self) -> bool {
        self.unanswered.front().is_some_and(|call| call.is_given_up && Some(call.number) != self.cancelled)
    }

    /// Tells whether a cancel is to be sent now, and notes that it was.
    pub(crate) fn take_cancel(&mut self) -> bool {
        let is_owed = self.owes_a_cancel();
        if is_owed {
            self.cancelled = self.unanswered.front().map(|call| call.number);
        }
        is_owed
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining
    }

    pub(crate) fn len(&self) -> usize {
        self.unanswered.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [LKP-06] a cancel would hit another call if the one given up were not the oldest.
    #[test]
    fn only_the_oldest_call_is_cancelled() {
        let mut queue = Queue::default();
        let calls: Vec<u64> = (0..3).filter_map(|_| queue.push()).collect();
        queue.give_up(calls[1]);
        assert!(!queue.take_cancel(), "the server works on the first one");
        assert!(!queue.answered(calls[0]));
        assert!(queue.take_cancel(), "it is the oldest now");
        assert!(!queue.take_cancel(), "once");
        assert!(queue.answered(calls[1]), "its answer is a late one");
        assert!(!queue.take_cancel(), "somebody waits for the third");
        assert!(!queue.answered(calls[2]));
        assert_eq!(queue.len(), 0);
    }

    /// [LKP-06]
    #[test]
    fn connection_with_a_call_given_up_takes_no_new_ones() {
        let mut queue = Queue::default();
        let first = queue.push().expect("room");
        queue.give_up(first);
        assert_eq!(queue.push(), None);
        queue.answered(first);
        assert_eq!(queue.push(), None, "not before it was in the pool again");
    }
}

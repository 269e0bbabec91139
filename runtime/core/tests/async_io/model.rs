//! The naive model: a list of everything that came in, looked through from the beginning each time.

use std::time::Duration;

use levada_core::async_io::Order;

/// An input, and what has happened to it.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) number: u32,
    pub(crate) key: u64,
    pub(crate) came: Duration,
    /// When the attempts that were answered so far were, and whether well.
    pub(crate) answers: Vec<(Duration, bool)>,
    /// The attempts that were called.
    pub(crate) calls: usize,
    /// The outcome: `None` while it waits.
    pub(crate) outcome: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer of this attempt, and whether it was a good one.
    Answer(usize, bool),
    TimedOut,
}

#[derive(Debug, Clone)]
pub(crate) enum Element {
    Input(Input),
    Mark(u32),
}

/// Everything that has not left, and the rules.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) order: Order,
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) delay: Duration,
    pub(crate) is_ending: bool,
    pub(crate) elements: Vec<Element>,
}

impl Model {
    pub(crate) fn inputs(&mut self) -> impl Iterator<Item = &mut Input> {
        self.elements.iter_mut().filter_map(|element| match element {
            Element::Input(input) => Some(input),
            Element::Mark(_) => None,
        })
    }

    pub(crate) fn input(&mut self, number: u32) -> Option<&mut Input> {
        self.inputs().find(|input| input.number == number)
    }

    /// An attempt of an input was answered.
    pub(crate) fn answered(&mut self, number: u32, is_good: bool, now: Duration) {
        let (retries, is_ending) = (self.retries, self.is_ending);
        let Some(input) = self.input(number) else { return };
        if input.outcome.is_some() {
            return;
        }
        input.answers.push((now, is_good));
        let attempt = input.answers.len();
        if is_good || is_ending || attempt > retries as usize {
            input.outcome = Some(End::Answer(attempt, is_good));
        }
    }

    /// Time has come to `now`.
    pub(crate) fn time_out(&mut self, now: Duration) {
        let timeout = self.timeout;
        for input in self.inputs().filter(|input| input.outcome.is_none()) {
            if now >= input.came + timeout {
                input.outcome = Some(End::TimedOut);
            }
        }
    }

    /// The inputs that must be called now, in any order.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<u32> {
        let (delay, is_ending) = (self.delay, self.is_ending);
        let is_due = |input: &&mut Input| {
            let last = input.answers.last().map(|(at, _)| *at);
            let waits = input.outcome.is_none() && input.calls == input.answers.len();
            waits && last.is_none_or(|at| is_ending || now >= at + delay)
        };
        self.inputs().filter(is_due).map(|input| input.number).collect()
    }

    /// Whether the element at a place may leave.
    fn may_leave(&self, place: usize) -> bool {
        let before = &self.elements[..place];
        match &self.elements[place] {
            Element::Mark(_) => before.is_empty(),
            Element::Input(input) => {
                let is_held_by = |element: &Element| match (self.order, element) {
                    (Order::Ordered, _) | (_, Element::Mark(_)) => true,
                    (Order::KeyOrdered, Element::Input(earlier)) => earlier.key == input.key,
                    _ => false,
                };
                input.outcome.is_some() && !before.iter().any(is_held_by)
            }
        }
    }

    /// The places that may leave.
    pub(crate) fn leaving(&self) -> Vec<usize> {
        (0..self.elements.len()).filter(|place| self.may_leave(*place)).collect()
    }
}

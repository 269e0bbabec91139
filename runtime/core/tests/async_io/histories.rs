//! Random histories of an operator beside the naive model. [ASY-13]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_core::async_io::{
    AsyncSettings, Batching, CallError, CallId, Held, Left, Operator, Order, Outcome, RetryStrategy,
};

use crate::dice::{Dice, histories};
use crate::model::{Element, End, Input, Model};
use crate::scene::{millis, passing};

/// An output names the input and the attempt that was answered.
type Answer = (u32, usize);

/// An operator, the model beside it, and what a machine around them would hold.
struct Pair {
    operator: Operator<u32, Answer, Duration, u32>,
    model: Model,
    capacity: usize,
    settings: AsyncSettings<u32, Answer>,
    now: Duration,
    next: u32,
    open: BTreeMap<CallId, Vec<(u32, usize)>>,
    /// Everything that has left since the last checkpoint, by number; numbers of marks are above all others.
    left: Vec<u32>,
    /// What the last checkpoint held, and what had left before it.
    stored: Option<(Vec<Element>, u32)>,
    /// What waits for room after a restore.
    backlog: std::collections::VecDeque<Element>,
    batch: usize,
    late: u64,
}

const MARK: u32 = 1 << 20;

fn operator(
    settings: &AsyncSettings<u32, Answer>,
    capacity: usize,
    order: Order,
    batch: usize,
) -> Operator<u32, Answer, Duration, u32> {
    let settings = settings.clone().capacity(capacity);
    match batch {
        1 => Operator::single(settings, order).unwrap(),
        inputs => {
            // As many calls as there is room for inputs, so that what the model says must be called can be.
            let batching =
                Batching { in_flight: Some(capacity), delay: Duration::ZERO, ..Batching::new(inputs) };
            Operator::batched(settings, batching, order).unwrap()
        }
    }
}

impl Pair {
    fn thrown(dice: &mut Dice) -> Self {
        let order = dice.pick(&[Order::Ordered, Order::Unordered, Order::KeyOrdered]);
        let (timeout, delay) = (millis(5 + dice.below(30)), millis(1 + dice.below(8)));
        let retries = dice.below(4) as u32;
        let mut settings: AsyncSettings<u32, Answer> = AsyncSettings::new()
            .timeout(timeout)
            .on_timeout(|_| Ok(vec![]))
            .handle_errors(|_, _| Ok(vec![(0, 0)]));
        if retries > 0 {
            settings = settings.retry(RetryStrategy::Fixed { delay, retries });
        }
        let (capacity, batch) = (1 + dice.below(6) as usize, dice.pick(&[1, 1, 2, 3]));
        let model = Model { order, timeout, retries, delay, is_ending: false, elements: Vec::new() };
        Self {
            operator: operator(&settings, capacity, order, batch),
            model,
            capacity,
            settings,
            now: Duration::ZERO,
            next: 1,
            open: BTreeMap::new(),
            left: Vec::new(),
            stored: None,
            backlog: std::collections::VecDeque::new(),
            batch,
            late: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.model.elements.len() >= self.capacity
    }

    fn enter(&mut self, element: Element) {
        match element {
            Element::Mark(mark) => {
                self.operator.mark(mark);
                self.model.elements.push(Element::Mark(mark));
            }
            Element::Input(Input { number, key, .. }) => {
                self.operator.accept(Arc::new(number), self.now, key, 1, self.now, self.now);
                let (came, answers) = (self.now, Vec::new());
                let input = Input { number, key, came, answers, calls: 0, outcome: None };
                self.model.elements.push(Element::Input(input));
            }
        }
    }

    fn come(&mut self, dice: &mut Dice) {
        assert_eq!(self.operator.has_room(1), !self.is_full());
        if self.is_full() || !self.backlog.is_empty() || self.model.is_ending {
            return;
        }
        let number = self.next;
        self.next += 1;
        let element = match dice.one_in(5) {
            true => Element::Mark(MARK + number),
            false => {
                let (key, answers) = (dice.below(3), Vec::new());
                Element::Input(Input { number, key, came: self.now, answers, calls: 0, outcome: None })
            }
        };
        self.enter(element);
    }

    /// Lets in what was restored, as far as there is room.
    fn refill(&mut self) {
        while !self.is_full()
            && let Some(element) = self.backlog.pop_front()
        {
            self.enter(element);
        }
    }

    fn call(&mut self) {
        for id in self.operator.take_given_up() {
            assert!(self.open.remove(&id).is_some(), "a call that was made is given up once");
        }
        let mut expected = self.model.due(self.now);
        let mut made = Vec::new();
        while let Some(call) = self.operator.next_call(self.now) {
            assert!((1..=self.batch).contains(&call.inputs.len()));
            let attempts = call.inputs.iter().map(|number| {
                let input = self.model.input(**number).expect("what is called is there");
                input.calls += 1;
                (**number, input.calls)
            });
            let attempts: Vec<_> = attempts.collect();
            made.extend(attempts.iter().map(|(number, _)| *number));
            self.open.insert(call.id, attempts);
        }
        expected.sort_unstable();
        made.sort_unstable();
        assert_eq!(made, expected, "who is called");
    }

    fn answer(&mut self, dice: &mut Dice) {
        let Some(id) = self.open.keys().nth(dice.below(self.open.len().max(1) as u64) as usize).copied()
        else {
            return;
        };
        let attempts = self.open.remove(&id).unwrap();
        if dice.one_in(8) {
            for (number, _) in &attempts {
                self.answered(*number, false);
            }
            self.operator.answered(id, Err(passing()), self.now);
        } else {
            let mut answers = Vec::new();
            for (number, attempt) in attempts {
                let is_good = !dice.one_in(3);
                self.answered(number, is_good);
                answers.push(if is_good { Ok(vec![(number, attempt)]) } else { Err(passing()) });
            }
            self.operator.answered(id, Ok(answers), self.now);
        }
        if dice.one_in(6) {
            // A function that answers twice.
            self.operator.answered(id, Err(CallError::bad_record("again")), self.now);
            self.late += 1;
        }
        assert_eq!(self.operator.metrics().late, self.late);
    }

    fn answered(&mut self, number: u32, is_good: bool) {
        let has_ended = self.model.input(number).is_none_or(|input| input.outcome.is_some());
        self.late += u64::from(has_ended);
        self.model.answered(number, is_good, self.now);
    }

    fn pass_time(&mut self, dice: &mut Dice) {
        self.now += millis(dice.below(6));
        self.operator.wake(self.now);
        self.model.time_out(self.now);
    }

    /// Takes out what may leave, and looks at each whether it may.
    fn leave(&mut self) {
        while let Some(left) = self.operator.pop() {
            let may = self.model.leaving();
            let is_it = |place: &usize| match (&self.model.elements[*place], &left) {
                (Element::Mark(mark), Left::Mark(other)) => mark == other,
                (Element::Input(input), Left::Result(pending, _)) => input.number == *pending.input,
                _ => false,
            };
            let place = may.into_iter().find(is_it).expect("what leaves may leave");
            match (self.model.elements.remove(place), left) {
                (Element::Input(input), Left::Result(_, Outcome::Outputs(outputs))) => {
                    let expected = match input.outcome.unwrap() {
                        End::Answer(attempt, true) => vec![(input.number, attempt)],
                        End::Answer(_, false) => vec![(0, 0)],
                        End::TimedOut => vec![],
                    };
                    assert_eq!(outputs, expected, "what came of {}", input.number);
                    self.left.push(input.number);
                }
                (Element::Mark(mark), Left::Mark(_)) => self.left.push(mark),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(self.model.leaving(), [0; 0], "what may leave has left");
    }

    /// Takes a checkpoint: inputs and marks that have not left, in order, and those that wait behind them.
    fn store(&mut self) {
        let named = |element: &Element| match element {
            Element::Input(input) => input.number,
            Element::Mark(mark) => *mark,
        };
        let held: Vec<u32> = self
            .operator
            .iter()
            .map(|held| match held {
                Held::Input(pending) => *pending.input,
                Held::Mark(mark) => *mark,
            })
            .collect();
        assert_eq!(held, self.model.elements.iter().map(named).collect::<Vec<_>>());
        let elements = self.model.elements.iter().chain(&self.backlog).cloned().collect();
        self.stored = Some((elements, self.next));
        self.left.clear();
    }

    /// Loses everything since the last checkpoint, and goes on from it with another capacity.
    fn crash(&mut self, dice: &mut Dice) {
        let Some((elements, next)) = self.stored.clone() else { return };
        self.capacity = 1 + dice.below(6) as usize;
        self.operator = operator(&self.settings, self.capacity, self.model.order, self.batch);
        self.model.elements.clear();
        self.model.is_ending = false;
        self.open.clear();
        self.left.clear();
        (self.next, self.late) = (next, 0);
        self.backlog = elements.into();
    }

    /// Brings the input to its end, and everything out.
    fn end(&mut self, dice: &mut Dice) {
        let since: Vec<u32> = match &self.stored {
            Some((elements, next)) => {
                let held = elements.iter().map(|element| match element {
                    Element::Input(input) => input.number,
                    Element::Mark(mark) => *mark,
                });
                held.chain(*next..self.next).collect()
            }
            None => (1..self.next).collect(),
        };
        while !self.backlog.is_empty() {
            self.settle(dice);
        }
        self.model.is_ending = true;
        self.operator.end(self.now);
        while !self.model.elements.is_empty() {
            self.settle(dice);
        }
        assert!(self.operator.is_empty() && self.operator.timers() == 0 && self.operator.wake_at().is_none());
        assert_eq!(self.operator.take_given_up().len(), 0);
        let number = |number: u32| if number > MARK { number - MARK } else { number };
        let mut left: Vec<u32> = self.left.iter().copied().map(number).collect();
        let mut expected: Vec<u32> = since.into_iter().map(number).collect();
        left.sort_unstable();
        expected.sort_unstable();
        assert_eq!(left, expected, "each has left once since the last checkpoint");
    }

    fn settle(&mut self, dice: &mut Dice) {
        self.refill();
        self.call();
        self.answer(dice);
        self.pass_time(dice);
        self.call();
        self.leave();
    }
}

/// [ASY-13] [ASY-02] [ASY-03] [ASY-04] [ASY-06] [ASY-07] [ASY-08] [ASY-10] [ASY-12] whatever order answers come in, and whatever
/// times out, is tried again, or is lost in a crash and restored into another capacity: the same as the model says is called,
/// stored and leaves, and in the end each input has left once since the last checkpoint.
#[test]
fn calls_in_random_histories_do_as_the_model_says() {
    let (mut crashes, mut timeouts, mut retries, mut late) = (0_u64, 0_u64, 0_u64, 0_u64);
    histories(|dice| {
        let mut pair = Pair::thrown(dice);
        for _ in 0..4 + dice.below(36) {
            pair.refill();
            pair.call();
            match dice.below(16) {
                0..=5 => pair.come(dice),
                6..=10 => pair.answer(dice),
                11..=13 => pair.pass_time(dice),
                14 => pair.store(),
                _ if dice.one_in(2) => {
                    crashes += u64::from(pair.stored.is_some());
                    pair.crash(dice);
                }
                _ => {}
            }
            pair.call();
            if !dice.one_in(4) {
                pair.leave();
            }
        }
        pair.end(dice);
        let metrics = pair.operator.metrics();
        (timeouts, retries, late) =
            (timeouts + metrics.timeouts, retries + metrics.retries, late + metrics.late);
    });
    println!("{crashes} crashes, {timeouts} timeouts, {retries} retries, {late} late answers");
}

//! An operator whose calls a test answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_core::ErrorClass;
use levada_core::async_io::{
    AsyncSettings, Batching, CallError, CallId, CallMetrics, Called, Left, Operator, Order, Outcome, Pending,
};

pub(crate) type Settings = AsyncSettings<u32, u32>;

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn passing() -> CallError {
    CallError::new(ErrorClass::Retry, "busy")
}

/// Time, the calls that are open, and an operator between.
pub(crate) struct Scene {
    pub(crate) operator: Operator<u32, u32, (), &'static str>,
    pub(crate) now: Duration,
    pub(crate) open: BTreeMap<CallId, Vec<u32>>,
    /// The inputs of each call that was made.
    pub(crate) made: Vec<Vec<u32>>,
}

impl Scene {
    pub(crate) fn single(settings: Settings) -> Self {
        Self::of(Operator::single(settings, Order::Ordered).unwrap())
    }

    pub(crate) fn batched(settings: Settings, batching: Batching) -> Self {
        Self::of(Operator::batched(settings, batching, Order::Ordered).unwrap())
    }

    fn of(operator: Operator<u32, u32, (), &'static str>) -> Self {
        Self { operator, now: Duration::ZERO, open: BTreeMap::new(), made: Vec::new() }
    }

    pub(crate) fn put(&mut self, inputs: impl IntoIterator<Item = u32>) {
        for input in inputs {
            assert!(self.operator.has_room(1), "no room for {input}");
            self.operator.accept(Arc::new(input), (), u64::from(input), 1, self.now, self.now);
        }
        self.call();
    }

    /// Makes the calls that are due, and drops those that were given up.
    pub(crate) fn call(&mut self) {
        for id in self.operator.take_given_up() {
            self.open.remove(&id).expect("a call that was made");
        }
        while let Some(call) = self.operator.next_call(self.now) {
            let inputs: Vec<u32> = call.inputs.iter().map(|input| **input).collect();
            self.made.push(inputs.clone());
            self.open.insert(call.id, inputs);
        }
    }

    /// Lets time pass to `at`.
    pub(crate) fn at(&mut self, at: u64) {
        self.now = millis(at);
        self.operator.wake(self.now);
        self.call();
    }

    /// Answers the open call of these inputs.
    pub(crate) fn answer_all(&mut self, inputs: &[u32], answers: Result<Vec<Called<u32>>, CallError>) {
        let id = *self.open.iter().find(|(_, open)| *open == inputs).expect("an open call").0;
        self.open.remove(&id);
        self.operator.answered(id, answers, self.now);
        self.call();
    }

    pub(crate) fn answer(&mut self, input: u32, answer: Called<u32>) {
        self.answer_all(&[input], Ok(vec![answer]));
    }

    /// Everything that leaves, as text.
    pub(crate) fn leaving(&mut self) -> Vec<String> {
        let name = |left: Left<Pending<u32, ()>, Outcome<u32>, &str>| match left {
            Left::Result(pending, outcome) => {
                let of = Arc::clone(&pending.input);
                match outcome {
                    Outcome::Outputs(outputs) => format!("{of}: {outputs:?}"),
                    Outcome::Dropped(error) => format!("{of}: dropped, {error}"),
                    Outcome::Refused(error) => format!("{of}: refused, {error}"),
                    Outcome::Failed(error) => format!("{of}: failed, {error}"),
                    other => format!("{of}: {other:?}"),
                }
            }
            Left::Mark(mark) => mark.to_owned(),
        };
        std::iter::from_fn(|| self.operator.pop()).map(name).collect()
    }

    pub(crate) fn metrics(&self) -> CallMetrics {
        self.operator.metrics()
    }
}

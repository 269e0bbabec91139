//! What a life of the program under test is told.

use std::path::PathBuf;

use levada_core::async_io::Order;

/// The arguments of `calls-under-test`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Where checkpoints and output are.
    pub home: PathBuf,
    /// In which order answers leave.
    pub order: Order,
    /// Subtasks.
    pub parallelism: u32,
    /// How many calls a subtask may have in flight.
    pub capacity: usize,
    /// What latencies and failures of calls are drawn from.
    pub seed: u64,
    /// Whether it ends, at the next ends of the ways, and all calls go well.
    pub ends: bool,
    /// Whether it goes on after a failure that is none of the process.
    pub restarts: bool,
}

const ENDS: &str = "--end";
const RESTARTS: &str = "--restarts";
const ORDERS: [(&str, Order); 2] = [("ordered", Order::Ordered), ("unordered", Order::Unordered)];

impl Told {
    /// Returns the arguments.
    ///
    /// # Panics
    /// Panics if the order has no word.
    pub fn arguments(&self) -> Vec<String> {
        let (order, _) = ORDERS.into_iter().find(|(_, order)| *order == self.order).expect("a word for it");
        let mut arguments = vec![
            self.home.display().to_string(),
            order.to_owned(),
            self.parallelism.to_string(),
            self.capacity.to_string(),
            self.seed.to_string(),
        ];
        let flags = [(self.ends, ENDS), (self.restarts, RESTARTS)];
        let given = flags.into_iter().filter(|(is_given, _)| *is_given);
        arguments.extend(given.map(|(_, flag)| flag.to_owned()));
        arguments
    }

    /// Reads the arguments.
    ///
    /// # Errors
    /// What is missing or not understood.
    pub fn of(arguments: &[String]) -> Result<Self, String> {
        let [home, order, parallelism, capacity, seed, flags @ ..] = arguments else {
            return Err(format!("HOME ORDER PARALLELISM CAPACITY SEED [{ENDS}] [{RESTARTS}]"));
        };
        if let Some(unknown) = flags.iter().find(|flag| ![ENDS, RESTARTS].contains(&flag.as_str())) {
            return Err(format!("{unknown:?} is no flag"));
        }
        let is_given = |flag: &str| flags.iter().any(|given| given == flag);
        let named = ORDERS.into_iter().find(|(word, _)| word == order);
        let (_, order) = named.ok_or_else(|| format!("{order:?} is no order"))?;
        Ok(Self {
            home: home.into(),
            order,
            parallelism: parallelism.parse().map_err(|_| format!("{parallelism:?} is no parallelism"))?,
            capacity: capacity.parse().map_err(|_| format!("{capacity:?} is no capacity"))?,
            seed: seed.parse().map_err(|_| format!("{seed:?} is no seed"))?,
            ends: is_given(ENDS),
            restarts: is_given(RESTARTS),
        })
    }
}

//! A home, and the program that goes on there from life to life.

use std::path::Path;
use std::process::Command;

use levada_core::async_io::Order;
use tempfile::TempDir;

use super::Told;
use crate::checkpointed::{disturbances, parallelism};
use crate::process::Process;

/// What the lives of one job share, one after the other.
#[derive(Debug)]
pub struct Scene {
    home: TempDir,
    program: &'static str,
    order: Order,
    seed: u64,
}

impl Scene {
    /// Makes an empty home; `program` is the path of `calls-under-test`.
    ///
    /// # Panics
    /// Panics if there is no place for it.
    pub fn new(program: &'static str, order: Order, seed: u64) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        for folder in ["out", "ends"] {
            std::fs::create_dir(home.path().join(folder)).expect("a folder");
        }
        Self { home, program, order, seed }
    }

    /// Returns the folder of checkpoints and output.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns the command of a life that runs without end. Nothing but its number decides how many subtasks it has, and how
    /// many calls each may have in flight: in every second life fewer than there had been.
    pub fn life(&self, number: u32) -> Command {
        self.command(&self.told(number))
    }

    /// Returns that of a life in which something goes wrong: see [`disturbances`].
    pub fn disturbed_life(&self, number: u32, ways: &[(&str, &str)]) -> Command {
        let disturbances = disturbances(number, ways);
        let mut command = self.command(&Told { restarts: disturbances.is_some(), ..self.told(number) });
        command.env("FAILPOINTS", disturbances.unwrap_or_default());
        command
    }

    /// Lets a last life, with two calls a subtask, go on to the ends of the ways, and checks that it ends well. Returns how many
    /// inputs it has called again.
    ///
    /// # Panics
    /// Panics if it does not.
    pub fn end(&self) -> u64 {
        let told = Told { ends: true, parallelism: 3, capacity: 2, ..self.told(0) };
        let life = Process::start(self.command(&told), tempfile::tempdir().expect("a folder"));
        called_again(&life.finish().expect_code(0).log)
    }

    fn told(&self, number: u32) -> Told {
        Told {
            home: self.home.path().to_owned(),
            order: self.order,
            parallelism: parallelism(number),
            capacity: [48, 6, 24, 3][number as usize % 4],
            seed: self.seed.wrapping_add(u64::from(number)),
            ends: false,
            restarts: false,
        }
    }

    fn command(&self, told: &Told) -> Command {
        let mut command = Command::new(self.program);
        command.args(told.arguments());
        command
    }
}

/// Returns how many inputs a life has found stored that had not left when an earlier one ended, as its log tells: before the job
/// was restarted in it.
///
/// # Panics
/// Panics if a line of it is not understood.
pub fn called_again(log: &str) -> u64 {
    let begins = log.lines().take_while(|line| !line.contains("the job failed, and is restarted"));
    let told = begins.filter(|line| line.contains("inputs that had not left are called again"));
    let inputs = |line: &str| {
        let number = line.split_whitespace().find_map(|word| word.strip_prefix("inputs="));
        number.and_then(|number| number.parse::<u64>().ok()).expect("how many")
    };
    told.map(inputs).sum()
}

//! Random histories; the number that a failure prints brings one back.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Every property is held against this many histories.
pub(crate) const HISTORIES: u64 = 100_000;

/// A small generator of random numbers (SplitMix64): the same seed throws the same numbers everywhere.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.throw() % bound
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// Runs `history` once for each seed, and says how often that was. `LEVADA_HISTORY=n` runs that one alone.
pub(crate) fn histories(mut history: impl FnMut(&mut Dice)) {
    let chosen = std::env::var("LEVADA_HISTORY").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let seeds = chosen.map_or(0..HISTORIES, |seed| seed..seed + 1);
    let mut played: u64 = 0;
    for seed in seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| history(&mut Dice(seed))));
        if let Err(panic) = outcome {
            eprintln!("the history of LEVADA_HISTORY={seed} fails");
            resume_unwind(panic);
        }
        played += 1;
    }
    assert!(played == if chosen.is_some() { 1 } else { HISTORIES });
    println!("{played} histories");
}

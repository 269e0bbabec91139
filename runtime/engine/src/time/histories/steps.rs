//! What may happen in a history, and how it ends.

use std::cell::RefCell;

use levada_core::Timestamp;
use levada_core::time::{DriftReport, SplitEvent};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{SPLITS, Truth, World, name};
use crate::time::event::TimeEvent;

const HISTORIES: u32 = 100_000;

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    histories: u32,
    proofs: u32,
    seeks: u32,
    pauses: u32,
    removals: u32,
    restarts: u32,
    late: u64,
}

impl World {
    /// Does one step of a history; `arg` says how much of it.
    fn step(&mut self, (what, split, arg): (u8, usize, u8), count: &mut Count) {
        let arg = usize::from(arg);
        let truth = &mut self.splits[split];
        match what {
            0..4 => truth.log.push((arg as i64) * 2),
            4 if truth.hidden.is_empty() => truth.hidden.push(arg as i64),
            4 | 5 => {
                let committed = std::mem::take(&mut truth.hidden);
                truth.log.extend(committed);
            }
            6..10 => self.read(&[split], 1 + arg % 4, arg % 8 > 0),
            10..13 => self.read(&[0, 1, 2], 3, true),
            13..16 => self.answer(true),
            16 => self.answer(arg % 4 > 0),
            17 => {
                count.pauses += 1;
                self.pause(split, true);
            }
            18 => self.pause(split, false),
            19 => self.seek(split, arg, count),
            20 => {
                count.removals += u32::from(truth.is_owned);
                self.remove(split);
            }
            21 | 22 => {
                let position = truth.position.min(truth.log.len()).saturating_sub(arg % 3);
                self.forget(split);
                self.add(split, position);
            }
            23 => {
                count.restarts += 1;
                self.restart(arg % 4);
            }
            24 => {
                self.splits[split].is_marked |= self.splits[split].is_owned;
                self.tell(TimeEvent::Split(name(split), SplitEvent::MarkIdle));
                self.check(false);
            }
            25 => drop(self.other.report(DriftReport::At(Timestamp(arg as i64)))),
            26 => drop(self.other.report(DriftReport::Idle)),
            27 => {
                let event = if arg % 2 == 0 { SplitEvent::FetchFailed } else { SplitEvent::BrokerAway };
                self.tell(TimeEvent::Split(name(split), event));
            }
            28 => self.tick(1, (arg as i64) * 50),
            _ => self.tick([1, 11, 11, 11][arg % 4], 0),
        }
    }

    fn seek(&mut self, split: usize, arg: usize, count: &mut Count) {
        let now = self.now();
        let truth = &mut self.splits[split];
        if truth.is_owned {
            count.seeks += 1;
            let position = arg % (truth.log.len() + 1);
            (truth.position, truth.moved_at, truth.is_marked) = (position, now, false);
            self.forget(split);
            self.tell(TimeEvent::Split(name(split), SplitEvent::Seek { position: position as u64 }));
        }
    }

    /// When nothing happens any more, everybody has read all, and is idle, and nobody rests.
    fn settle(&mut self) {
        self.other.report(DriftReport::Idle);
        for split in 0..SPLITS {
            let truth = &mut self.splits[split];
            let committed = std::mem::take(&mut truth.hidden);
            truth.log.extend(committed);
            self.pause(split, false);
        }
        // Who rests goes on one after the other.
        for _ in 0..4 * SPLITS {
            self.read(&[0, 1, 2], usize::MAX / 2, true);
            self.tick(6_000, 0);
            while !self.asked.is_empty() {
                self.answer(true);
            }
            if self.is_settled() {
                break;
            }
        }
        assert!(self.is_settled(), "{:?}", self.seen());
        let highest = self.splits.iter().filter(|truth| truth.is_owned).map(Truth::own).max();
        assert!(highest.is_none_or(|highest| self.watermark >= highest));
    }

    fn is_settled(&self) -> bool {
        let is_settled = |truth: &Truth| truth.is_idle && !truth.rests && truth.position == truth.log.len();
        self.splits.iter().all(|truth| !truth.is_owned || is_settled(truth))
    }
}

/// [TIM-05] [TIM-06] [TIM-10] [TIM-12] [TIM-17] [TIM-19] seeks, pauses, splits taken away and back, and intervals dropped, in any
/// order: who is idle was proven to be, watermarks keep what they promise, and what is shown is what is.
#[test]
fn any_history_of_a_subtask_is_what_the_truth_about_its_splits_allows() {
    let mut count = Count::default();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: HISTORIES,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let steps = prop::collection::vec((0..40_u8, 0..SPLITS, any::<u8>()), 0..30);
    let counted = RefCell::new(&mut count);
    let outcome = runner.run(&steps, |steps| {
        let mut count = counted.borrow_mut();
        let mut world = World::new();
        for step in steps {
            let idle = world.splits.iter().filter(|truth| truth.is_idle && !truth.is_marked).count();
            world.step(step, &mut count);
            let now_idle = world.splits.iter().filter(|truth| truth.is_idle && !truth.is_marked).count();
            count.proofs += now_idle.saturating_sub(idle) as u32;
        }
        world.settle();
        count.late += world.late;
        count.histories += 1;
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    println!("{} histories: {count:?}", count.histories);
    assert_eq!(count.histories, HISTORIES);
    let is_broad = [count.proofs, count.seeks, count.pauses, count.removals, count.restarts]
        .iter()
        .all(|times| *times > 1_000);
    assert!(is_broad && count.late > 1_000, "{count:?}");
}

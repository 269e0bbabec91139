//! Lets bytes pass up to the place where a rule fires, and withholds what may turn out to be a pattern.

use std::collections::VecDeque;
use std::sync::Arc;

use super::rule::{Action, RuleState};
use super::watch::Watch;

/// The rules that watch one direction of one connection.
#[derive(Debug, Default)]
pub(super) struct Gate {
    watches: Vec<(Arc<RuleState>, Watch)>,
    /// Bytes that all watches have seen and at least one does not let pass yet. Never longer than its pattern, so it does
    /// not count against the window of the flow.
    withheld: VecDeque<u8>,
}

impl Gate {
    /// Adds a rule. It sees the withheld bytes first: they have not passed yet. Returns whether it fired on them.
    pub(super) fn watch(&mut self, rule: &Arc<RuleState>, out: &mut VecDeque<u8>) -> bool {
        let mut watch = Watch::new(&rule.trigger);
        for seen in 1..=self.withheld.len() {
            if let Some(after) = watch.feed(self.withheld[seen - 1]) {
                rule.spend();
                // With a hold the stream may go on, and the older rule must still find nothing of its pattern passed.
                let passes = if rule.action == Action::Hold { 0 } else { seen - after };
                out.extend(self.withheld.drain(..passes));
                return true;
            }
        }
        self.watches.push((Arc::clone(rule), watch));
        false
    }

    /// Lets bytes pass into `out` until a rule fires. Returns how many bytes it took and the rules that fired with the
    /// last of them, in the order in which they were set.
    pub(super) fn pass(&mut self, bytes: &[u8], out: &mut VecDeque<u8>) -> (usize, Vec<Arc<RuleState>>) {
        self.settle(out);
        if self.watches.is_empty() {
            out.extend(bytes);
            return (bytes.len(), Vec::new());
        }
        let mut taken = 0;
        loop {
            taken += self.pass_unseen(&bytes[taken..], out);
            let Some(byte) = bytes.get(taken) else { return (taken, Vec::new()) };
            taken += 1;
            self.withheld.push_back(*byte);
            let (fired, after) = self.feed(*byte);
            let ends = fired.iter().any(|rule| rule.action != Action::Hold);
            // After a cut or a half-close no other pattern can become whole.
            let keeps = if ends { after } else { after.max(self.withholds()) };
            out.extend(self.withheld.drain(..self.withheld.len() - keeps));
            if !fired.is_empty() {
                return (taken, fired);
            }
        }
    }

    /// Lets the bytes pass at once that mean nothing to any watch, and returns how many they are. Each byte on its own costs
    /// a hundred times as much, and most traffic is nobody's pattern.
    fn pass_unseen(&mut self, bytes: &[u8], out: &mut VecDeque<u8>) -> usize {
        if !self.withheld.is_empty() {
            return 0;
        }
        let unseen = self.watches.iter().map(|(_, watch)| watch.passes(bytes)).min().unwrap_or(bytes.len());
        self.watches.iter_mut().for_each(|(_, watch)| watch.pass(unseen));
        out.extend(&bytes[..unseen]);
        unseen
    }

    /// Lets go of the rules that fired elsewhere or were healed, and of what only they withheld.
    pub(super) fn settle(&mut self, out: &mut VecDeque<u8>) {
        self.watches.retain(|(rule, _)| !rule.is_spent());
        let keeps = self.withholds();
        out.extend(self.withheld.drain(..self.withheld.len().saturating_sub(keeps)));
    }

    /// Lets everything pass that was withheld: at the end of the stream it is no pattern.
    pub(super) fn flush(&mut self, out: &mut VecDeque<u8>) {
        out.extend(self.withheld.drain(..));
    }

    /// Forgets rules and bytes: nothing will pass any more.
    pub(super) fn close(&mut self) {
        self.watches.clear();
        self.withheld.clear();
    }

    /// Shows a byte to every watch. Returns the rules that fired and the most bytes that come after one of their places.
    fn feed(&mut self, byte: u8) -> (Vec<Arc<RuleState>>, usize) {
        let mut fired = Vec::new();
        let mut most = 0;
        for (rule, watch) in &mut self.watches {
            if let Some(after) = watch.feed(byte) {
                rule.spend();
                fired.push(Arc::clone(rule));
                most = most.max(after);
            }
        }
        if !fired.is_empty() {
            self.watches.retain(|(rule, _)| !rule.is_spent());
        }
        (fired, most)
    }

    fn withholds(&self) -> usize {
        self.watches.iter().map(|(_, watch)| watch.withholds()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::Gate;
    use crate::cut::rule::{Action, Direction, Rule, RuleState, Trigger};

    fn rule(trigger: Trigger, action: Action) -> Arc<RuleState> {
        Rule::new(Direction::ToServer, trigger, action).state()
    }

    fn find(stream: &[u8], pattern: &[u8]) -> Option<usize> {
        stream.windows(pattern.len()).position(|window| window == pattern)
    }

    /// How many bytes of a whole stream pass before the rule fires, if it does: by looking at all of it at once.
    fn place(stream: &[u8], trigger: &Trigger) -> Option<usize> {
        match trigger {
            Trigger::AfterBytes(count) => (*count <= stream.len() as u64).then_some(*count as usize),
            Trigger::After(pattern) => find(stream, pattern).map(|start| start + pattern.len()),
            Trigger::Before(pattern) => find(stream, pattern),
        }
    }

    /// How many bytes at the end of a stream without the pattern may be its beginning.
    fn doubtful(stream: &[u8], trigger: &Trigger) -> usize {
        match trigger {
            Trigger::Before(pattern) => {
                (0..pattern.len()).rev().find(|length| stream.ends_with(&pattern[..*length])).unwrap()
            }
            _ => 0,
        }
    }

    fn random_trigger(random: &mut StdRng) -> Trigger {
        let length = random.random_range(1..6);
        let pattern: Vec<u8> = (0..length).map(|_| random.random_range(b'a'..=b'b')).collect();
        match random.random_range(0..3) {
            0 => Trigger::AfterBytes(random.random_range(1..40)),
            1 => Trigger::After(pattern),
            _ => Trigger::Before(pattern),
        }
    }

    /// [TST-04] At every moment exactly that has passed which must have: neither a byte of a pattern nor one too few.
    #[test]
    fn the_gate_agrees_with_a_search_of_the_whole_stream_at_every_moment() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (mut fires, mut passes) = (0, 0);
        for _ in 0..3000 {
            let trigger = random_trigger(&mut random);
            let stream: Vec<u8> = (0..30).map(|_| random.random_range(b'a'..=b'b')).collect();
            let (mut gate, mut out, mut fed) = (Gate::default(), VecDeque::new(), 0);
            gate.watch(&rule(trigger.clone(), Action::Cut), &mut out);
            while fed < stream.len() {
                let chunk = random.random_range(1..=stream.len() - fed);
                let (taken, fired) = gate.pass(&stream[fed..fed + chunk], &mut out);
                fed += taken;
                if let Some(place) = place(&stream[..fed], &trigger) {
                    assert_eq!(fired.len(), 1, "{trigger:?} in {stream:?}");
                    assert_eq!(out, &stream[..place], "{trigger:?}");
                    fires += 1;
                    break;
                }
                assert_eq!((taken, fired.len()), (chunk, 0), "{trigger:?} in {stream:?}");
                assert_eq!(out, &stream[..fed - doubtful(&stream[..fed], &trigger)], "{trigger:?}");
            }
            if place(&stream, &trigger).is_none() {
                gate.flush(&mut out);
                assert_eq!(out, stream);
                passes += 1;
            }
        }
        assert!(fires > 500 && passes > 200, "{fires} fired, {passes} did not: the streams do not fit");
    }

    /// [TST-04] What is skipped by one rule must not be skipped for another.
    #[test]
    fn rules_side_by_side_fire_at_the_same_byte_however_the_stream_is_cut() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..1000 {
            let triggers: Vec<Trigger> = (0..3).map(|_| random_trigger(&mut random)).collect();
            let stream: Vec<u8> = (0..40).map(|_| random.random_range(b'a'..=b'c')).collect();
            let outcomes = [1, 7, stream.len()].map(|piece| {
                let (mut gate, mut out) = (Gate::default(), VecDeque::new());
                for trigger in &triggers {
                    gate.watch(&rule(trigger.clone(), Action::Cut), &mut out);
                }
                let mut taken = 0;
                for bytes in stream.chunks(piece) {
                    let (count, fired) = gate.pass(bytes, &mut out);
                    taken += count;
                    if !fired.is_empty() {
                        let fired = fired.iter().map(|rule| rule.trigger.clone()).collect();
                        return (taken, fired, out);
                    }
                }
                (taken, Vec::new(), out)
            });
            assert_eq!(outcomes[0], outcomes[1], "{triggers:?} in {stream:?}");
            assert_eq!(outcomes[0], outcomes[2], "{triggers:?} in {stream:?}");
        }
    }

    /// [TST-04] A rule that waits for something rare must not make its line a slow one.
    #[test]
    fn bytes_that_mean_nothing_to_any_rule_are_not_looked_at_one_by_one() {
        let (mut gate, mut out) = (Gate::default(), VecDeque::new());
        gate.watch(&rule(Trigger::before("COMMIT"), Action::Cut), &mut out);
        gate.watch(&rule(Trigger::after_bytes(1000), Action::Cut), &mut out);
        assert_eq!(gate.pass_unseen(&[b'x'; 900], &mut out), 900);
        assert_eq!(gate.pass_unseen(&[b'x'; 900], &mut out), 99);
        assert_eq!(gate.pass_unseen(b"x", &mut out), 0);
        assert_eq!(out.len(), 999);
    }

    /// [TST-04]
    #[test]
    fn what_a_rule_withheld_passes_when_it_fired_elsewhere() {
        let before = rule(Trigger::before("abc"), Action::Cut);
        let (mut gate, mut out) = (Gate::default(), VecDeque::new());
        gate.watch(&before, &mut out);
        gate.pass(b"xab", &mut out);
        assert_eq!(out, b"x");
        before.spend();
        gate.settle(&mut out);
        assert_eq!(out, b"xab");
    }

    /// [TST-04]
    #[test]
    fn rules_of_one_byte_all_fire_and_the_earliest_place_holds() {
        let (mut gate, mut out) = (Gate::default(), VecDeque::new());
        gate.watch(&rule(Trigger::after("bc"), Action::Hold), &mut out);
        gate.watch(&rule(Trigger::before("abc"), Action::Cut), &mut out);
        let (taken, fired) = gate.pass(b"xabcd", &mut out);
        assert_eq!((taken, fired.len()), (4, 2));
        assert_eq!(out, b"x");
    }

    /// [TST-04]
    #[test]
    fn a_later_rule_counts_what_an_earlier_one_withholds() {
        let (mut gate, mut out) = (Gate::default(), VecDeque::new());
        gate.watch(&rule(Trigger::before("abcd"), Action::Cut), &mut out);
        gate.pass(b"xabc", &mut out);
        assert!(gate.watch(&rule(Trigger::after_bytes(2), Action::Cut), &mut out));
        assert_eq!(out, b"xab");
    }

    /// [TST-04] A hold ends: the pattern of another rule must not have passed in part.
    #[test]
    fn a_hold_lets_nothing_pass_that_another_rule_withholds() {
        let (mut gate, mut out) = (Gate::default(), VecDeque::new());
        gate.watch(&rule(Trigger::before("bc"), Action::Cut), &mut out);
        gate.watch(&rule(Trigger::after("ab"), Action::Hold), &mut out);
        let (taken, fired) = gate.pass(b"abcd", &mut out);
        assert_eq!((taken, fired.len()), (2, 1));
        assert_eq!(out, b"a");
        let (taken, fired) = gate.pass(b"cd", &mut out);
        assert_eq!((taken, fired.len()), (1, 1));
        assert_eq!(out, b"a");
    }
}

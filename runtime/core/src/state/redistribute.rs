//! Deals stored lists out to the subtasks of a restored job.
//!
//! ```text
//!  stored by 2 subtasks      joined in subtask order      cut into 3 chunks, the first one longer
//!  [a b c] [d]          ──▶  [a b c d]               ──▶  [a b] [c] [d]
//! ```
//!
//! The first chunk goes to a subtask that moves on by one with every split list, so that many lists of one element do not
//! all end in subtask 0.

use std::collections::BTreeMap;
use std::iter::repeat_n;

use super::{Elements, ListState, Spread, State, StateError};

/// Deals out the state of one operator: `old` is what its subtasks stored, in their order.
///
/// A job of several operators uses one [`Redistribution`] for all.
///
/// # Errors
/// A list has not the same [`Spread`] or version in all subtasks that stored it, or `parallelism` is 0.
pub fn redistribute(old: Vec<State>, parallelism: u32) -> Result<Vec<State>, StateError> {
    Redistribution::new(parallelism).redistribute(old)
}

/// Deals out the states of a job's operators, one after the other, and remembers where the next split list begins.
///
/// The outcome depends on the order of the operators: take the one of their uids.
#[derive(Debug, Clone)]
pub struct Redistribution {
    parallelism: u32,
    /// The subtask that gets the first chunk of the next split list. Counts every split list, also at equal parallelism, so
    /// that one operator's deal does not depend on another's old parallelism.
    first: usize,
}

impl Redistribution {
    /// Begins to deal out to `parallelism` subtasks; the first list begins at subtask 0.
    pub fn new(parallelism: u32) -> Self {
        Self { parallelism, first: 0 }
    }

    /// Deals out the state of one operator: `old` is what its subtasks stored, in their order.
    ///
    /// | spread | same parallelism | changed |
    /// |---|---|---|
    /// | [`Spread::Split`] | each subtask its own list | all elements in subtask order, in contiguous chunks, none longer than another by more than one |
    /// | [`Spread::Union`] | all elements to everyone | the same |
    /// | [`Spread::Broadcast`] | one stored copy to each, round robin | the same |
    ///
    /// A subtask that stored no list of a name (it had finished, or was never dealt one) adds nothing to it. After a change,
    /// every subtask has every split list, maybe without elements.
    ///
    /// # Errors
    /// A list has not the same [`Spread`] or version in all subtasks that stored it, or the parallelism is 0.
    pub fn redistribute(&mut self, old: Vec<State>) -> Result<Vec<State>, StateError> {
        if self.parallelism == 0 {
            return Err(StateError::new("state cannot be dealt out to 0 subtasks"));
        }
        let is_same_parallelism = old.len() == self.parallelism as usize;
        let mut new = vec![State::new(); self.parallelism as usize];
        for (name, stored) in by_name(old) {
            let (spread, version) = agreed(&name, &stored)?;
            let dealt = match spread {
                Spread::Split => self.split(stored, is_same_parallelism),
                Spread::Union => self.union(stored),
                Spread::Broadcast => self.broadcast(stored),
            };
            for (subtask, elements) in dealt {
                // Every rule deals to subtasks below the parallelism, which is how many `new` has.
                new[subtask].insert(name.clone(), ListState::of(spread, version, elements));
            }
        }
        Ok(new)
    }

    fn split(&mut self, stored: Stored, is_same_parallelism: bool) -> Dealt {
        let first = self.first;
        self.first = (first + 1) % self.parallelism as usize;
        if is_same_parallelism {
            return stored.into_iter().map(|(subtask, list)| (subtask, list.elements)).collect();
        }
        let parallelism = self.parallelism as usize;
        let elements = joined(stored);
        let (least, longer) = (elements.len() / parallelism, elements.len() % parallelism);
        let mut rest = elements.iter().cloned();
        let chunk = |index: usize| rest.by_ref().take(least + usize::from(index < longer)).collect();
        let chunks: Vec<Elements> = (0..parallelism).map(chunk).collect();
        chunks.into_iter().enumerate().map(|(index, chunk)| ((first + index) % parallelism, chunk)).collect()
    }

    fn union(&self, stored: Stored) -> Dealt {
        repeat_n(joined(stored), self.parallelism as usize).enumerate().collect()
    }

    fn broadcast(&self, stored: Stored) -> Dealt {
        let copies = stored.into_iter().map(|(_, list)| list.elements);
        let copies: Vec<Elements> = copies.collect();
        copies.iter().cycle().take(self.parallelism as usize).cloned().enumerate().collect()
    }
}

/// The lists of one name, each with the subtask that stored it, in subtask order.
type Stored = Vec<(usize, ListState)>;

/// The elements for each subtask.
type Dealt = Vec<(usize, Elements)>;

fn by_name(old: Vec<State>) -> BTreeMap<String, Stored> {
    let mut stored: BTreeMap<String, Stored> = BTreeMap::new();
    for (subtask, state) in old.into_iter().enumerate() {
        for (name, list) in state.lists {
            stored.entry(name).or_default().push((subtask, list));
        }
    }
    stored
}

fn joined(stored: Stored) -> Elements {
    stored.iter().flat_map(|(_, list)| &list.elements).cloned().collect()
}

/// Returns the spread and version on which all subtasks agree.
fn agreed(name: &str, stored: &Stored) -> Result<(Spread, u16), StateError> {
    let Some((first_subtask, first)) = stored.first() else {
        return Err(StateError::new(format!("list {name:?} was stored by no subtask")));
    };
    for (subtask, list) in stored {
        if (list.spread, list.version) != (first.spread, first.version) {
            return Err(StateError::new(format!(
                "list {name:?} is {:?} of version {} in subtask {first_subtask}, but {:?} of version {} in subtask {subtask}",
                first.spread, first.version, list.spread, list.version
            )));
        }
    }
    Ok((first.spread, first.version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "list";

    fn state(spread: Spread, elements: &[u8]) -> State {
        State::new().with(NAME, list(spread, elements))
    }

    fn list(spread: Spread, elements: &[u8]) -> ListState {
        ListState::new(spread, 1, elements.iter().map(|element| vec![*element]).collect())
    }

    fn elements_of(state: &State, name: &str) -> Vec<u8> {
        state.get(name).map(|list| list.elements.concat()).unwrap_or_default()
    }

    fn dealt(old: &[State], parallelism: u32) -> Vec<Vec<u8>> {
        let new = redistribute(old.to_vec(), parallelism).expect("lists that agree");
        new.iter().map(|state| elements_of(state, NAME)).collect()
    }

    fn split(lists: &[&[u8]]) -> Vec<State> {
        lists.iter().map(|elements| state(Spread::Split, elements)).collect()
    }

    /// [CHK-10]
    #[test]
    fn split_list_stays_where_it_was_at_the_same_parallelism() {
        let old = split(&[&[1, 2, 3, 4], &[], &[5]]);
        assert_eq!(redistribute(old.clone(), 3).expect("lists that agree"), old);
    }

    /// [CHK-10]
    #[test]
    fn subtask_that_stored_no_list_gets_none_at_the_same_parallelism() {
        let old = vec![state(Spread::Split, &[1, 2]), State::new()];
        assert_eq!(redistribute(old.clone(), 2).expect("lists that agree"), old);
    }

    /// [CHK-10] 2 → 4 → 3.
    #[test]
    fn split_list_is_cut_into_contiguous_chunks_when_the_parallelism_changes() {
        let two = split(&[&[1, 2, 3], &[4, 5, 6, 7]]);
        let four = redistribute(two, 4).expect("lists that agree");
        let elements: Vec<_> = four.iter().map(|state| elements_of(state, NAME)).collect();
        assert_eq!(elements, [vec![1, 2], vec![3, 4], vec![5, 6], vec![7]]);
        assert_eq!(dealt(&four, 3), [vec![1, 2, 3], vec![4, 5], vec![6, 7]]);
    }

    /// [CHK-10] 10 over 3.
    #[test]
    fn first_chunks_are_one_longer_when_the_elements_do_not_divide() {
        let old = split(&[&[0, 1, 2, 3, 4], &[5, 6, 7, 8, 9]]);
        assert_eq!(dealt(&old, 3), [vec![0, 1, 2, 3], vec![4, 5, 6], vec![7, 8, 9]]);
        assert_eq!(dealt(&old, 4), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7], vec![8, 9]]);
        assert_eq!(dealt(&old, 1), [(0..10).collect::<Vec<u8>>()]);
    }

    /// [CHK-10]
    #[test]
    fn more_subtasks_than_elements_leave_empty_lists() {
        let new = redistribute(split(&[&[1], &[2]]), 4).expect("lists that agree");
        assert_eq!(new[2].get(NAME), Some(&list(Spread::Split, &[])));
        assert_eq!(dealt(&split(&[&[1], &[2]]), 4), [vec![1], vec![2], vec![], vec![]]);
    }

    /// [CHK-10]
    #[test]
    fn start_rotates_from_list_to_list_and_from_operator_to_operator() {
        let operator = |names: [&str; 2]| {
            let state =
                names.iter().fold(State::new(), |state, name| state.with(*name, list(Spread::Split, &[1])));
            vec![state]
        };
        let mut redistribution = Redistribution::new(3);
        let first = redistribution.redistribute(operator(["b", "a"])).expect("lists that agree");
        let second = redistribution.redistribute(operator(["d", "c"])).expect("lists that agree");
        let holder =
            |states: &[State], name| states.iter().position(|state| !elements_of(state, name).is_empty());
        assert_eq!((holder(&first, "a"), holder(&first, "b")), (Some(0), Some(1)));
        assert_eq!((holder(&second, "c"), holder(&second, "d")), (Some(2), Some(0)));
    }

    /// [CHK-10]
    #[test]
    fn chunks_wrap_around_after_the_last_subtask() {
        let old = vec![
            State::new().with("a", list(Spread::Split, &[])).with("b", list(Spread::Split, &[1, 2, 3, 4])),
        ];
        let new = redistribute(old, 3).expect("lists that agree");
        let elements: Vec<_> = new.iter().map(|state| elements_of(state, "b")).collect();
        assert_eq!(elements, [vec![4], vec![1, 2], vec![3]]);
    }

    /// [CHK-10]
    #[test]
    fn union_list_is_whole_everywhere_also_at_equal_parallelism() {
        let old = [state(Spread::Union, &[1, 2]), State::new(), state(Spread::Union, &[3])];
        for parallelism in [1, 3, 5] {
            assert_eq!(dealt(&old, parallelism), vec![vec![1, 2, 3]; parallelism as usize]);
        }
    }

    /// [CHK-10]
    #[test]
    fn broadcast_copies_are_dealt_round_robin_and_missing_ones_are_passed_over() {
        // The copies differ here only to show whose was taken.
        let old = [state(Spread::Broadcast, &[1]), State::new(), state(Spread::Broadcast, &[3])];
        assert_eq!(dealt(&old, 2), [[1], [3]]);
        assert_eq!(dealt(&old, 3), [[1], [3], [1]]);
        assert_eq!(dealt(&old, 5), [[1], [3], [1], [3], [1]]);
    }

    /// [CHK-10]
    #[test]
    fn union_and_broadcast_lists_do_not_move_the_start_of_split_ones() {
        let all = State::new()
            .with("a", list(Spread::Union, &[1]))
            .with("b", list(Spread::Broadcast, &[1]))
            .with("c", list(Spread::Split, &[1]));
        let new = redistribute(vec![all], 2).expect("lists that agree");
        assert_eq!(new.iter().map(|state| elements_of(state, "c")).collect::<Vec<_>>(), [vec![1], vec![]]);
    }

    /// [CHK-10]
    #[test]
    fn list_that_differs_between_subtasks_is_an_error_that_names_it() {
        let other_spread = vec![state(Spread::Split, &[1]), state(Spread::Union, &[2])];
        let message = redistribute(other_spread, 2).expect_err("spreads that differ").to_string();
        assert!(message.contains("\"list\"") && message.contains("Union"), "{message}");

        let other_version = State::new().with(NAME, ListState::new(Spread::Split, 2, vec![]));
        let message = redistribute(vec![state(Spread::Split, &[1]), other_version], 1);
        let message = message.expect_err("versions that differ").to_string();
        assert!(message.contains("\"list\"") && message.contains("version 2 in subtask 1"), "{message}");
    }

    #[test]
    fn nobody_to_deal_to_is_an_error_and_nothing_to_deal_is_not() {
        assert!(redistribute(vec![], 0).is_err());
        assert_eq!(redistribute(vec![], 2), Ok(vec![State::new(), State::new()]));
    }

    /// For each name, the lists of an operator's subtasks; `None` where a subtask stored none.
    fn operators() -> impl Strategy<Value = Vec<State>> {
        let lengths = prop::collection::vec(prop::option::weighted(0.8, 0..6_usize), 3);
        prop::collection::vec(lengths, 0..5).prop_map(|subtasks| {
            let mut next = 0_u16;
            let mut fresh = |length: usize| {
                let elements = (0..length).map(|_| {
                    next += 1;
                    next.to_be_bytes().to_vec()
                });
                elements.collect::<Vec<_>>()
            };
            let subtasks = subtasks.into_iter().map(|lengths| {
                let named = ["a", "b", "c"].into_iter().zip(lengths);
                named.fold(State::new(), |state, (name, length)| match length {
                    Some(length) => state.with(name, ListState::new(Spread::Split, 1, fresh(length))),
                    None => state,
                })
            });
            subtasks.collect()
        })
    }

    fn all_in_order(states: &[State], name: &str) -> Elements {
        states.iter().filter_map(|state| state.get(name)).flat_map(|list| list.elements.to_vec()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        /// [CHK-10] Nothing is lost, nothing doubled, the order is kept inside a chunk, and chunks are even.
        #[test]
        fn elements_are_dealt_once_in_order_and_evenly(old in operators(), parallelism in 1..7_u32) {
            let new = redistribute(old.clone(), parallelism).expect("lists that agree");
            prop_assert_eq!(new.len(), parallelism as usize);
            if old.len() == parallelism as usize {
                prop_assert_eq!(new, old);
                return Ok(());
            }
            let stored = ["a", "b", "c"].into_iter().filter(|name| old.iter().any(|state| state.get(name).is_some()));
            for (index, name) in stored.enumerate() {
                let mut rotated = new.clone();
                rotated.rotate_left(index % parallelism as usize);
                prop_assert_eq!(all_in_order(&rotated, name), all_in_order(&old, name));
                let lengths: Vec<_> = rotated.iter().map(|state| state.get(name).map_or(0, |list| list.elements.len())).collect();
                prop_assert!(lengths.is_sorted_by(|long, short| long >= short), "{lengths:?}");
                prop_assert!(lengths[0] - lengths[lengths.len() - 1] <= 1, "{lengths:?}");
            }
        }
    }
}

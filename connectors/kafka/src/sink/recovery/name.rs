//! Transactional ids: `<prefix>.<job>.<sink>.a<attempt>.s<subtask>.t<slot>`.
//!
//! The prefix stands as it was given, dots included: it is what rights on ids are granted by. In job and sink, whatever is no
//! letter, digit, `_` or `-` is written `%2E`, so neither has a dot, and an id is read from its end: three numbers, the sink,
//! the job, and what is left is the prefix. No two triples of prefix, job and sink have an id in common. `foo` never takes
//! `foo-bar` for its own, and prefix `foo` with job `bar` is not prefix `foo.bar` with another.

use thiserror::Error;

/// The longest text of the protocol's older requests, in bytes.
const MAX_BYTES: usize = i16::MAX as usize;

/// Makes and recognises the ids of one sink of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionNaming {
    /// Everything before the attempt, with the dot.
    head: String,
}

/// What stands behind prefix, job and sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotName {
    /// The attempt: the number of the lease entry under which the id was made.
    pub attempt: u64,
    /// The subtask.
    pub subtask: u32,
    /// The slot of the subtask.
    pub slot: u32,
}

/// Ids cannot be made of this.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// One of the three is empty.
    #[error("{0} of transactional ids is empty")]
    Empty(&'static str),
    /// Ids would be too long for the protocol.
    #[error(
        "transactional ids would have up to {length} bytes, and {MAX_BYTES} is the most; shorten prefix, job or sink"
    )]
    TooLong {
        /// Their length, in bytes.
        length: usize,
    },
}

impl TransactionNaming {
    /// Makes the naming of a sink.
    ///
    /// # Errors
    /// A part is empty, or all are too long together.
    pub fn new(prefix: &str, job: &str, sink: &str) -> Result<Self, NameError> {
        for (what, part) in [("the prefix", prefix), ("the job", job), ("the sink", sink)] {
            if part.is_empty() {
                return Err(NameError::Empty(what));
            }
        }
        let naming = Self { head: format!("{prefix}.{}.{}.", escaped(job), escaped(sink)) };
        let longest = SlotName { attempt: u64::MAX, subtask: u32::MAX, slot: u32::MAX };
        match naming.id_of(longest).len() {
            length if length > MAX_BYTES => Err(NameError::TooLong { length }),
            _ => Ok(naming),
        }
    }

    /// Returns the id of a slot.
    pub fn id_of(&self, name: SlotName) -> String {
        let SlotName { attempt, subtask, slot } = name;
        format!("{}a{attempt}.s{subtask}.t{slot}", self.head)
    }

    /// Returns the group whose offset is the marker of the transactions of an id. One for each id: while a transaction is open
    /// that has offsets of a group in it, brokers do not tell what the group has committed before.
    pub fn marker_group(id: &str) -> String {
        format!("{id}.progress")
    }

    /// Returns an id that no slot has, to be asked about.
    pub fn probe(&self) -> String {
        format!("{}probe", self.head)
    }

    /// Reads an id, of whatever attempt; `None` when it is not of this prefix, job and sink.
    pub fn slot_of(&self, id: &str) -> Option<SlotName> {
        let mut parts = id.strip_prefix(&self.head)?.split('.');
        let mut next = |letter| number(parts.next()?.strip_prefix(letter)?);
        let (attempt, subtask, slot) = (next('a')?, next('s')?, next('t')?);
        let (subtask, slot) = (u32::try_from(subtask).ok()?, u32::try_from(slot).ok()?);
        parts.next().is_none().then_some(SlotName { attempt, subtask, slot })
    }
}

/// Reads a number as it is written: digits alone, and no zero in front.
fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    is_plain.then(|| text.parse().ok()).flatten()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naming(prefix: &str, job: &str, sink: &str) -> TransactionNaming {
        TransactionNaming::new(prefix, job, sink).expect("parts of a name")
    }

    const SLOT: SlotName = SlotName { attempt: 12, subtask: 3, slot: 1 };

    /// [KSK-07] the names' part.
    #[test]
    fn id_tells_prefix_job_sink_attempt_subtask_and_slot() {
        let id = naming("team.levada", "flights", "out").id_of(SLOT);
        assert_eq!(id, "team.levada.flights.out.a12.s3.t1");
        let odd = naming("levada", "a.b%", "ü").id_of(SLOT);
        assert_eq!(odd, "levada.a%2Eb%25.%C3%BC.a12.s3.t1");
    }

    /// [KSK-17] the names' part: ids of other attempts and of any subtask are ours.
    #[test]
    fn ids_of_other_attempts_are_recognised() {
        let naming = naming("levada", "flights", "out");
        let of_another = SlotName { attempt: u64::MAX, subtask: u32::MAX, slot: 0 };
        assert_eq!(naming.slot_of(&naming.id_of(of_another)), Some(of_another));
    }

    /// [KSK-17] the names' part: neighbours whose names begin with ours.
    #[test]
    fn neighbours_are_not_taken_for_ours() {
        let ours = naming("foo", "bar", "out");
        let neighbours = [
            naming("foo-bar", "bar", "out"),
            naming("foo", "bar-2", "out"),
            naming("foo", "bar", "out-2"),
            naming("foo.bar", "out", "x"),
            naming("foo.bar.out", "a1", "s2"),
            naming("foo.bar.out.a1", "s2", "t3"),
            naming("foo", "bar.out", "x"),
            naming("foo", "bar", "out.a1"),
            naming("fo", "o.bar", "out"),
            naming("x.foo", "bar", "out"),
        ];
        for neighbour in neighbours {
            let id = neighbour.id_of(SLOT);
            assert_eq!(ours.slot_of(&id), None, "{id}");
            assert_eq!(neighbour.slot_of(&ours.id_of(SLOT)), None, "{id}");
        }
    }

    /// [KSK-17] the names' part.
    #[test]
    fn what_is_not_written_as_we_write_it_is_not_ours() {
        let ours = naming("foo", "bar", "out");
        let strangers = [
            "foo.bar.out",
            "foo.bar.out.",
            "foo.bar.out.a1.s0",
            "foo.bar.out.a1.s0.t0.x",
            "foo.bar.out.a1.s0.t0.",
            "foo.bar.out.a01.s0.t0",
            "foo.bar.out.a+1.s0.t0",
            "foo.bar.out.a.s0.t0",
            "foo.bar.out.s0.a1.t0",
            "foo.bar.out.a1.s4294967296.t0",
            "foo.bar.out.a18446744073709551616.s0.t0",
            "FOO.bar.out.a1.s0.t0",
        ];
        for stranger in strangers {
            assert_eq!(ours.slot_of(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn empty_parts_and_too_long_ids_are_refused() {
        assert_eq!(TransactionNaming::new("", "a", "b"), Err(NameError::Empty("the prefix")));
        assert_eq!(TransactionNaming::new("a", "b", ""), Err(NameError::Empty("the sink")));
        let long = TransactionNaming::new("p", &"j".repeat(40_000), "s");
        assert!(matches!(long, Err(NameError::TooLong { .. })), "{long:?}");
    }

    fn part() -> impl Strategy<Value = String> {
        // Few letters, so that parts are often the beginnings of others.
        "[as1.%-]{1,5}"
    }

    proptest! {
        /// [KSK-17] the names' part: an id is one sink's alone, whatever the parts are made of.
        #[test]
        fn an_id_belongs_to_one_sink_alone(
            one in (part(), part(), part()), other in (part(), part(), part()), numbers: (u64, u32, u32),
        ) {
            let slot = SlotName { attempt: numbers.0, subtask: numbers.1, slot: numbers.2 };
            let id = naming(&one.0, &one.1, &one.2).id_of(slot);
            let read = naming(&other.0, &other.1, &other.2).slot_of(&id);
            prop_assert_eq!(read, (one == other).then_some(slot));
        }

        #[test]
        fn an_id_is_read_back(parts in (part(), part(), part()), numbers: (u64, u32, u32)) {
            let naming = naming(&parts.0, &parts.1, &parts.2);
            let slot = SlotName { attempt: numbers.0, subtask: numbers.1, slot: numbers.2 };
            prop_assert_eq!(naming.slot_of(&naming.id_of(slot)), Some(slot));
        }
    }
}

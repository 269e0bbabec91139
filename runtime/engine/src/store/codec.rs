//! State as bytes. What is read back is slices of one buffer, not copies.
//!
//! ```text
//!  "LVST"  format u16 = 1  lists u32
//!  per list: name u32+bytes  spread u8  version u16  elements u64, each u64+bytes
//! ```
//!
//! Numbers are big endian. Lists come by name, so that equal states are equal bytes.

use bytes::Bytes;
use levada_core::{Elements, ListState, Spread, State, StateError};

const MAGIC: &[u8; 4] = b"LVST";
const FORMAT: u16 = 1;

fn spread_code(spread: Spread) -> u8 {
    match spread {
        Spread::Union => 2,
        Spread::Broadcast => 3,
        // `Spread` may gain variants; they get a code with their format.
        _ => 1,
    }
}

/// Writes a small state down.
pub fn encode(state: &State) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded_length(state));
    pieces(state).for_each(|piece| out.extend_from_slice(&piece));
    out
}

/// A piece is about so large; an element of this size is a piece of its own, and not copied.
const PIECE: usize = 256 << 10;

/// Writes a state down, piece by piece: a large one is not in memory twice.
pub fn pieces(state: &State) -> impl Iterator<Item = Bytes> + Send {
    let mut fields = fields(state);
    let mut piece = Vec::new();
    let mut whole = None;
    std::iter::from_fn(move || {
        loop {
            if let Some(element) = whole.take() {
                return Some(element);
            }
            match fields.next() {
                Some(field) if field.len() >= PIECE => whole = Some(field),
                Some(field) => piece.extend_from_slice(&field),
                None if piece.is_empty() => return None,
                None => return Some(std::mem::take(&mut piece).into()),
            }
            if piece.len() >= PIECE || whole.is_some() && !piece.is_empty() {
                return Some(std::mem::take(&mut piece).into());
            }
        }
    })
}

/// The parts of which the bytes consist, in order.
fn fields(state: &State) -> impl Iterator<Item = Bytes> + Send {
    let lists = state.iter().count() as u32;
    let head = [MAGIC.as_slice(), &FORMAT.to_be_bytes(), &lists.to_be_bytes()].concat();
    let lists = state.iter().flat_map(|(name, list)| {
        let elements = list.elements.iter().flat_map(|element| {
            let length = (element.len() as u64).to_be_bytes();
            [Bytes::copy_from_slice(&length), element.clone()]
        });
        std::iter::once(list_head(name, list)).chain(elements)
    });
    std::iter::once(head.into()).chain(lists)
}

fn list_head(name: &str, list: &ListState) -> Bytes {
    let mut head = Vec::new();
    head.extend_from_slice(&(name.len() as u32).to_be_bytes());
    head.extend_from_slice(name.as_bytes());
    head.push(spread_code(list.spread));
    head.extend_from_slice(&list.version.to_be_bytes());
    head.extend_from_slice(&(list.elements.len() as u64).to_be_bytes());
    head.into()
}

/// How many bytes a state is written in.
pub fn encoded_length(state: &State) -> usize {
    let list_length = |(name, list): (&str, &ListState)| {
        4 + name.len() + 1 + 2 + 8 + list.elements.iter().map(|element| 8 + element.len()).sum::<usize>()
    };
    4 + 2 + 4 + state.iter().map(list_length).sum::<usize>()
}

/// Reads a state back. Its elements are slices of `bytes`.
///
/// # Errors
/// The bytes are not a state, or one of a later format.
pub fn decode(bytes: Bytes) -> Result<State, StateError> {
    let mut rest = Rest(bytes);
    if rest.array::<4>()? != *MAGIC {
        return Err(StateError::new("the bytes are not a state"));
    }
    let format = rest.u16()?;
    if format != FORMAT {
        return Err(StateError::new(format!("state of format {format} was found, {FORMAT} is understood")));
    }
    let mut state = State::new();
    for _ in 0..rest.u32()? {
        let (name, list) = rest.list()?;
        state.insert(name, list);
    }
    match rest.0.len() {
        0 => Ok(state),
        more => Err(StateError::new(format!("{more} bytes follow a state"))),
    }
}

/// What is still to be read.
struct Rest(Bytes);

impl Rest {
    fn take(&mut self, length: usize) -> Result<Bytes, StateError> {
        match length <= self.0.len() {
            true => Ok(self.0.split_to(length)),
            false => Err(StateError::new("a state ends early")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let mut array = [0; N];
        array.copy_from_slice(&self.take(N)?);
        Ok(array)
    }

    fn u16(&mut self) -> Result<u16, StateError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, StateError> {
        self.array().map(u32::from_be_bytes)
    }

    fn length(&mut self) -> Result<usize, StateError> {
        let length = self.array().map(u64::from_be_bytes)?;
        usize::try_from(length).map_err(|_| StateError::new("a state ends early"))
    }

    fn list(&mut self) -> Result<(String, ListState), StateError> {
        let length = self.u32()? as usize;
        let name = self.take(length)?;
        let name = str::from_utf8(&name).map_err(|_| StateError::new("the name of a list is not UTF-8"))?;
        let spread = match self.array::<1>()? {
            [1] => Spread::Split,
            [2] => Spread::Union,
            [3] => Spread::Broadcast,
            [code] => return Err(StateError::new(format!("list {name:?} has the unknown spread {code}"))),
        };
        let version = self.u16()?;
        let mut elements = Vec::new();
        for _ in 0..self.length()? {
            let length = self.length()?;
            elements.push(self.take(length)?);
        }
        Ok((name.to_owned(), ListState::of(spread, version, Elements::from(elements))))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use levada_core::{ListState, Spread, State};
    use proptest::prelude::*;

    use super::{PIECE, decode, encode, encoded_length, pieces};

    fn any_state() -> impl Strategy<Value = State> {
        let spread = prop_oneof![Just(Spread::Split), Just(Spread::Union), Just(Spread::Broadcast)];
        let elements = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..5);
        let list = (spread, any::<u16>(), elements).prop_map(|(s, v, e)| ListState::new(s, v, e));
        prop::collection::btree_map(".{0,8}", list, 0..4).prop_map(|lists| {
            lists.into_iter().fold(State::new(), |state, (name, list)| state.with(name, list))
        })
    }

    proptest! {
        /// [CHK-09]
        #[test]
        fn a_state_reads_back_as_it_was(state in any_state()) {
            let bytes = Bytes::from(encode(&state));
            prop_assert_eq!(bytes.len(), encoded_length(&state));
            prop_assert_eq!(decode(bytes.clone()).unwrap(), state);
            for length in 0..bytes.len() {
                prop_assert!(decode(bytes.slice(..length)).is_err());
            }
        }

        /// [CHK-17] the codec's part: large elements are not copied, and what is between them is in its place.
        #[test]
        fn pieces_are_the_whole_whatever_is_large(sizes in prop::collection::vec(prop_oneof![0..9_usize, PIECE - 1..PIECE + 2], 0..8)) {
            let elements: Vec<Vec<u8>> = (0..).zip(&sizes).map(|(number, size)| vec![number; *size]).collect();
            let state = State::new().with("list", ListState::new(Spread::Union, 1, elements));
            let pieces: Vec<Bytes> = pieces(&state).collect();
            for element in state.get("list").unwrap().elements.iter().filter(|element| element.len() >= PIECE) {
                prop_assert!(pieces.iter().any(|piece| piece.as_ptr() == element.as_ptr()));
            }
            prop_assert_eq!(decode(pieces.concat().into()).unwrap(), state);
        }

        /// [CHK-08] Bytes from anywhere are refused or read, without a panic and without a huge allocation.
        #[test]
        fn foreign_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let foreign = [b"LVST\x00\x01".as_slice(), &bytes].concat();
            let _ = decode(foreign.into());
        }
    }
}

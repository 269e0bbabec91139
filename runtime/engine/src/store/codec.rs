//! State as bytes.
//!
//! ```text
//!  "LVST"  format u16 = 1  lists u32
//!  per list: name u32+bytes  spread u8  version u16  elements u64, each u64+bytes
//! ```
//!
//! Numbers are big endian. Lists come by name, so that equal states are equal bytes.

use levada_core::{ListState, Spread, State, StateError};

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

/// Writes a state down.
pub fn encode(state: &State) -> Vec<u8> {
    let lists: Vec<_> = state.iter().collect();
    let mut out = Vec::with_capacity(encoded_length(state));
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_be_bytes());
    out.extend_from_slice(&(lists.len() as u32).to_be_bytes());
    for (name, list) in lists {
        out.extend_from_slice(&(name.len() as u32).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.push(spread_code(list.spread));
        out.extend_from_slice(&list.version.to_be_bytes());
        out.extend_from_slice(&(list.elements.len() as u64).to_be_bytes());
        for element in &list.elements {
            out.extend_from_slice(&(element.len() as u64).to_be_bytes());
            out.extend_from_slice(element);
        }
    }
    out
}

/// Large states are written into one allocation that never moves.
fn encoded_length(state: &State) -> usize {
    let list_length = |(name, list): (&str, &ListState)| {
        4 + name.len() + 1 + 2 + 8 + list.elements.iter().map(|element| 8 + element.len()).sum::<usize>()
    };
    4 + 2 + 4 + state.iter().map(list_length).sum::<usize>()
}

/// Reads a state back.
///
/// # Errors
/// The bytes are not a state, or one of a later format.
pub fn decode(bytes: &[u8]) -> Result<State, StateError> {
    let mut rest = Rest(bytes);
    if rest.take(4)? != MAGIC {
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
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], StateError> {
        let (taken, rest) =
            self.0.split_at_checked(length).ok_or_else(|| StateError::new("a state ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
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
        let name = str::from_utf8(self.take(length)?)
            .map_err(|_| StateError::new("the name of a list is not UTF-8"))?;
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
            elements.push(self.take(length)?.to_vec());
        }
        Ok((name.to_owned(), ListState::new(spread, version, elements)))
    }
}

#[cfg(test)]
mod tests {
    use levada_core::{ListState, Spread, State};
    use proptest::prelude::*;

    use super::{decode, encode, encoded_length};

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
            let bytes = encode(&state);
            prop_assert_eq!(bytes.len(), encoded_length(&state));
            prop_assert_eq!(decode(&bytes).unwrap(), state);
            for length in 0..bytes.len() {
                prop_assert!(decode(&bytes[..length]).is_err());
            }
        }

        /// [CHK-08] Bytes from anywhere are refused or read, without a panic and without a huge allocation.
        #[test]
        fn foreign_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let foreign = [b"LVST\x00\x01".as_slice(), &bytes].concat();
            let _ = decode(&foreign);
        }
    }
}

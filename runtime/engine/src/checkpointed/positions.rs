//! Positions of splits as state: every subtask gets those of all, and goes on with the ones it is assigned.

use std::collections::BTreeMap;

use levada_core::{ListState, Position, SplitId, Spread, State, StateError, StreamId};

/// The name of the list.
pub(crate) const LIST: &str = "positions";

/// The version of an element: stream id, stream, index, next, detail.
const VERSION: u16 = 1;

/// Where a split stands, and of which stream it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) stream: StreamId,
    pub(crate) position: Position,
}

/// Encodes positions as state.
pub(crate) fn store(places: &BTreeMap<SplitId, Placed>) -> State {
    let elements = places.iter().map(|(split, placed)| encode(split, placed)).collect();
    State::new().with(LIST, ListState::new(Spread::Union, VERSION, elements))
}

/// Decodes the positions of all subtasks.
///
/// A subtask that was not assigned its splits yet had stored the restored ones of all once more; so the furthest position
/// of a split counts.
pub(crate) fn load(state: &State) -> Result<BTreeMap<SplitId, Placed>, StateError> {
    let mut places: BTreeMap<SplitId, Placed> = BTreeMap::new();
    let Some(list) = state.get(LIST) else { return Ok(places) };
    if list.version != VERSION {
        let message =
            format!("positions of version {} were stored, version {VERSION} is understood", list.version);
        return Err(StateError::new(message));
    }
    for element in &list.elements {
        let (split, placed) =
            decode(element).ok_or_else(|| StateError::new("a stored position is cut off"))?;
        match places.get(&split) {
            Some(known) if known.position >= placed.position => {}
            _ => {
                places.insert(split, placed);
            }
        }
    }
    Ok(places)
}

fn encode(split: &SplitId, placed: &Placed) -> Vec<u8> {
    let mut out = Vec::new();
    for text in [&*placed.stream.0, &*split.stream] {
        put(&mut out, text.as_bytes());
    }
    out.extend_from_slice(&split.index.to_be_bytes());
    out.extend_from_slice(&placed.position.next.to_be_bytes());
    put(&mut out, &placed.position.detail);
    out
}

fn decode(mut bytes: &[u8]) -> Option<(SplitId, Placed)> {
    let stream_id = take_text(&mut bytes)?;
    let stream = take_text(&mut bytes)?;
    let (index, rest) = bytes.split_first_chunk::<4>()?;
    let (next, mut rest) = rest.split_first_chunk::<8>()?;
    let detail = take(&mut rest)?;
    if !rest.is_empty() {
        return None;
    }
    let position = Position { next: u64::from_be_bytes(*next), detail: detail.into() };
    let split = SplitId::new(stream, u32::from_be_bytes(*index));
    Some((split, Placed { stream: StreamId(stream_id.into()), position }))
}

/// Appends a length of 32 bits and the bytes.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *bytes = rest;
    Some(part)
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(next: u64, detail: &[u8]) -> Placed {
        Placed {
            stream: StreamId("cluster/topic".into()),
            position: Position { next, detail: detail.into() },
        }
    }

    /// [CHK-09]
    #[test]
    fn positions_come_back_as_they_were() {
        let places = BTreeMap::from([
            (SplitId::new("t", 0), placed(7, b"")),
            (SplitId::new("t", 1), placed(u64::MAX, b"detail")),
            (SplitId::new("other", 4_000_000_000), placed(0, b"\0")),
        ]);
        assert_eq!(load(&store(&places)).unwrap(), places);
        assert_eq!(load(&State::new()).unwrap(), BTreeMap::new());
    }

    #[test]
    fn the_furthest_of_two_positions_counts() {
        let state = |next| store(&BTreeMap::from([(SplitId::new("t", 0), placed(next, b""))]));
        let elements = [3, 9, 5].map(|next| state(next).get(LIST).unwrap().elements[0].to_vec());
        let union = State::new().with(LIST, ListState::new(Spread::Union, VERSION, elements.into()));
        assert_eq!(load(&union).unwrap()[&SplitId::new("t", 0)], placed(9, b""));
    }

    /// [CHK-09]
    #[test]
    fn what_is_cut_off_or_of_a_later_version_is_refused() {
        let whole = encode(&SplitId::new("t", 0), &placed(7, b"x"));
        for length in 0..whole.len() {
            assert_eq!(decode(&whole[..length]), None, "{length}");
        }
        let later = State::new().with(LIST, ListState::new(Spread::Union, 2, Vec::new()));
        assert!(load(&later).unwrap_err().to_string().contains("version 2"));
    }
}

//! A record that keeps its place when it leaves its batch.

use super::Coordinates;
use crate::split::SplitId;
use crate::state::{StateError, Storable};

/// An item with the place of the record that it was made of: for what waits in a checkpoint, so that an error can still
/// name the record.
#[derive(Debug, Clone, PartialEq)]
pub struct Located<T> {
    /// Where the record comes from.
    pub coordinates: Coordinates,
    /// What was made of it.
    pub item: T,
}

impl<T> Located<T> {
    /// Puts an item to its place.
    pub fn new(coordinates: Coordinates, item: T) -> Self {
        Self { coordinates, item }
    }
}

/// `stream_len:u32 stream  index:u32  offset:u64  item_version:u16  item`, high bytes first.
impl<T: Storable> Storable for Located<T> {
    const VERSION: u16 = 1;

    fn store(&self, out: &mut Vec<u8>) {
        let Coordinates { split, offset } = &self.coordinates;
        out.extend_from_slice(&(split.stream.len() as u32).to_be_bytes());
        out.extend_from_slice(split.stream.as_bytes());
        out.extend_from_slice(&split.index.to_be_bytes());
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&T::VERSION.to_be_bytes());
        self.item.store(out);
    }

    fn load(version: u16, bytes: &[u8]) -> Result<Self, StateError> {
        if version != 1 {
            return Err(StateError::new(format!(
                "version {version} of a located record was found, up to 1 is understood"
            )));
        }
        load(bytes).ok_or_else(|| StateError::new("a stored record is cut short or damaged"))?
    }
}

fn load<T: Storable>(bytes: &[u8]) -> Option<Result<Located<T>, StateError>> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (stream, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (index, rest) = rest.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    let (version, item) = rest.split_first_chunk()?;
    let split = SplitId::new(std::str::from_utf8(stream).ok()?, u32::from_be_bytes(*index));
    let coordinates = Coordinates { split, offset: u64::from_be_bytes(*offset) };
    let item = T::load(u16::from_be_bytes(*version), item);
    Some(item.map(|item| Located { coordinates, item }))
}

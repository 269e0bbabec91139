//! Bytes of stored state: a header that says what follows and in which version, numbers with the high byte first, byte
//! strings behind their length.

use levada_core::{CheckpointId, StateError, Timestamp};

/// What a stored element is, and the newest version of its format that this program knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    pub(super) magic: [u8; 4],
    pub(super) version: u16,
    /// What it is, for messages.
    pub(super) what: &'static str,
}

impl Format {
    /// Checks the version of a list of such elements.
    pub(super) fn check(&self, version: u16) -> Result<(), StateError> {
        if (1..=self.version).contains(&version) {
            return Ok(());
        }
        let Self { what, version: newest, .. } = self;
        Err(StateError::new(format!("{what} of version {version} found, up to {newest} is understood")))
    }
}

/// Writes a stored element.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Begins with the header.
    pub(super) fn new(format: Format) -> Self {
        let mut writer = Self(format.magic.to_vec());
        writer.u16(format.version);
        writer
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn length(&mut self, length: usize) {
        put_length(&mut self.0, length);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        put_bytes(&mut self.0, bytes);
    }

    pub(super) fn checkpoint(&mut self, checkpoint: CheckpointId) {
        self.u64(checkpoint.attempt);
        self.u64(checkpoint.sequence);
    }

    pub(super) fn timestamp(&mut self, timestamp: Timestamp) {
        self.0.extend_from_slice(&timestamp.0.to_be_bytes());
    }

    /// Writes whether there is something; what it is follows.
    pub(super) fn is_some(&mut self, is_some: bool) {
        self.0.push(u8::from(is_some));
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Appends bytes behind their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a length: seven bits a byte, the low ones first, the high bit says that more follow.
fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// Reads a stored element.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads the header.
    pub(super) fn new(format: Format, bytes: &'a [u8]) -> Result<Self, StateError> {
        let mut reader = Self::headless(format, bytes);
        if reader.array::<4>()? != format.magic {
            return Err(StateError::new(format!("bytes found that are no {}", format.what)));
        }
        format.check(reader.u16()?)?;
        Ok(reader)
    }

    /// Reads bytes that have no header of their own.
    pub(super) fn headless(format: Format, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, what: format.what }
    }

    fn cut(&self) -> StateError {
        StateError::new(format!("{} is cut short or damaged", self.what))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.cut())?;
        self.rest = rest;
        Ok(*array)
    }

    pub(super) fn u16(&mut self) -> Result<u16, StateError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, StateError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, StateError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn length(&mut self) -> Result<usize, StateError> {
        let mut length = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(length).map_err(|_| self.cut());
            }
        }
        Err(self.cut())
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], StateError> {
        let length = self.length()?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.cut())?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<String, StateError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.cut())
    }

    pub(super) fn checkpoint(&mut self) -> Result<CheckpointId, StateError> {
        Ok(CheckpointId::new(self.u64()?, self.u64()?))
    }

    pub(super) fn timestamp(&mut self) -> Result<Timestamp, StateError> {
        Ok(Timestamp(i64::from_be_bytes(self.array()?)))
    }

    pub(super) fn is_some(&mut self) -> Result<bool, StateError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(self.cut()),
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends; there must be nothing left.
    pub(super) fn finish(self) -> Result<(), StateError> {
        if self.is_at_end() { Ok(()) } else { Err(self.cut()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORMAT: Format = Format { magic: *b"TEST", version: 2, what: "a test" };

    proptest! {
        /// [TPL-19]
        #[test]
        fn what_is_written_is_read(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..5)) {
            let mut writer = Writer::new(FORMAT);
            parts.iter().for_each(|part| writer.bytes(part));
            let bytes = writer.finish();
            let mut reader = Reader::new(FORMAT, &bytes)?;
            for part in &parts {
                prop_assert_eq!(reader.bytes()?, part);
            }
            reader.finish()?;
        }

        /// [TPL-19]
        #[test]
        fn random_bytes_are_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader::headless(FORMAT, &bytes);
            while reader.bytes().is_ok_and(|_| !reader.is_at_end()) {}
            prop_assert!(Reader::new(FORMAT, &bytes).is_err());
        }
    }

    /// [TPL-19]
    #[test]
    fn a_later_version_is_refused() {
        let later = Writer::new(Format { version: 3, ..FORMAT }).finish();
        let refused = Reader::new(FORMAT, &later).unwrap_err();
        assert_eq!(refused.to_string(), "a test of version 3 found, up to 2 is understood");
    }
}

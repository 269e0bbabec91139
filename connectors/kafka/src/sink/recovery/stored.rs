//! Bytes behind a checksum.

/// Appends to a buffer, and its checksum last.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    from: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        let from = out.len();
        Self { out, from }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.bytes(&number.to_be_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.bytes(&number.to_be_bytes());
    }

    /// A count that does not fit could not have been made: what is counted is larger than a byte each.
    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.bytes(text.as_bytes());
    }

    pub(super) fn finish(self) {
        let sum = crc32fast::hash(&self.out[self.from..]);
        self.out.extend_from_slice(&sum.to_be_bytes());
    }
}

/// Reads what a [`Writer`] wrote. `None` where it ends too soon.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Begins, if the checksum is right.
    pub(super) fn checked(bytes: &'a [u8]) -> Option<Self> {
        let (content, sum) = bytes.split_last_chunk::<4>()?;
        (crc32fast::hash(content) == u32::from_be_bytes(*sum)).then_some(Self(content))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(str::from_utf8(text).ok()?.to_owned())
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

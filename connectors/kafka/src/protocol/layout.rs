//! How answers are built, to look at the bytes before the codec does.
//!
//! The codec reserves memory for as many elements as an array says that it has. A peer that is no broker, or a damaged
//! answer, could so ask for any amount with five bytes, and a process that is refused memory is aborted. So every answer is
//! walked first: each element that is counted must be there.

use bytes::{Buf as _, Bytes};

/// One field of a message.
#[derive(Debug)]
pub(super) enum Field {
    /// So many bytes: numbers, truth values, UUIDs.
    Fixed(usize),
    /// A text or bytes, with the length in front; perhaps null.
    Text,
    /// An array of texts.
    Texts,
    /// An array of structures.
    Array(&'static [Field]),
    /// An array of numbers, each of so many bytes.
    Numbers(usize),
    /// A field that is there from a version on.
    Since(i16, &'static Field),
    /// A field that is there up to a version.
    UpTo(i16, &'static Field),
}

/// An answer of one API.
#[derive(Debug)]
pub(super) struct Layout {
    /// The fields, in order.
    pub(super) fields: &'static [Field],
    /// Tagged fields of the outermost structure that the codec reads; it skips others.
    pub(super) tags: &'static [(u32, Field)],
    /// The first version with compact lengths and tagged fields.
    pub(super) flexible_from: i16,
}

/// Checks the body of an answer from its first to its last byte.
///
/// # Errors
/// Says what does not fit, and where.
pub(super) fn check(layout: &Layout, version: i16, body: &Bytes) -> Result<(), String> {
    let is_flexible = version >= layout.flexible_from;
    let mut walk = Walk { rest: body.clone(), size: body.len(), version, is_flexible };
    walk.fields(layout.fields)?;
    if is_flexible {
        walk.tagged(layout.tags)?;
    }
    match walk.rest.len() {
        0 => Ok(()),
        left => Err(format!("{left} bytes behind its end")),
    }
}

/// Skips the tagged fields of a header.
pub(super) fn skip_header_tags(answer: &mut Bytes) -> Result<(), String> {
    let mut walk = Walk { rest: answer.clone(), size: answer.len(), version: 0, is_flexible: true };
    walk.tagged(&[])?;
    *answer = walk.rest;
    Ok(())
}

struct Walk {
    rest: Bytes,
    /// How much there was at first, for the messages.
    size: usize,
    version: i16,
    is_flexible: bool,
}

impl Walk {
    fn structure(&mut self, fields: &[Field]) -> Result<(), String> {
        self.fields(fields)?;
        if self.is_flexible { self.tagged(&[]) } else { Ok(()) }
    }

    fn fields(&mut self, fields: &[Field]) -> Result<(), String> {
        fields.iter().try_for_each(|field| self.field(field))
    }

    fn field(&mut self, field: &Field) -> Result<(), String> {
        match field {
            Field::Fixed(size) => self.skip(*size),
            Field::Text => self.text(),
            Field::Texts => {
                let count = self.array_length()?;
                (0..count).try_for_each(|_| self.text())
            }
            Field::Array(fields) => {
                let count = self.array_length()?;
                // Each turn takes a byte at least, or ends: a count that is made up costs nothing.
                (0..count).try_for_each(|_| self.structure(fields))
            }
            Field::Numbers(size) => {
                let count = self.array_length()?;
                self.skip(count.saturating_mul(*size))
            }
            Field::Since(version, field) if self.version >= *version => self.field(field),
            Field::UpTo(version, field) if self.version <= *version => self.field(field),
            Field::Since(..) | Field::UpTo(..) => Ok(()),
        }
    }

    fn tagged(&mut self, known: &[(u32, Field)]) -> Result<(), String> {
        for _ in 0..self.varint()? {
            let (tag, size) = (self.varint()?, self.varint()? as usize);
            let before = self.rest.len();
            match known.iter().find(|(number, _)| *number == tag) {
                Some((_, field)) => self.field(field)?,
                None => self.skip(size)?,
            }
            let taken = before - self.rest.len();
            if taken != size {
                return Err(format!("a tagged field of {size} bytes is {taken} bytes long"));
            }
        }
        Ok(())
    }

    fn text(&mut self) -> Result<(), String> {
        let length = self.text_length()?;
        self.skip(length)
    }

    /// Null is nothing.
    fn text_length(&mut self) -> Result<usize, String> {
        if self.is_flexible {
            return Ok((self.varint()? as usize).saturating_sub(1));
        }
        self.needs(2)?;
        match self.rest.get_i16() {
            -1 => Ok(0),
            length => usize::try_from(length).map_err(|_| format!("a text of {length} bytes")),
        }
    }

    fn array_length(&mut self) -> Result<usize, String> {
        if self.is_flexible {
            return Ok((self.varint()? as usize).saturating_sub(1));
        }
        self.needs(4)?;
        match self.rest.get_i32() {
            -1 => Ok(0),
            count => usize::try_from(count).map_err(|_| format!("an array of {count} elements")),
        }
    }

    /// Seven bits a byte, the lowest first, as the codec takes them: five bytes at most.
    fn varint(&mut self) -> Result<u32, String> {
        let mut value = 0_u64;
        for place in 0..5 {
            self.needs(1)?;
            let byte = self.rest.get_u8();
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return u32::try_from(value).map_err(|_| format!("a length of {value}"));
            }
        }
        Err("a length of more than five bytes".to_owned())
    }

    fn skip(&mut self, size: usize) -> Result<(), String> {
        self.needs(size)?;
        self.rest.advance(size);
        Ok(())
    }

    fn needs(&self, size: usize) -> Result<(), String> {
        if self.rest.len() >= size {
            return Ok(());
        }
        let (at, of) = (self.size - self.rest.len(), self.size);
        Err(format!("it ends too early: {size} bytes expected at byte {at} of {of}"))
    }
}

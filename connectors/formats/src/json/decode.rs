//! One pass over a document.
//!
//! The grammar is RFC 8259's. A position always stands on the next byte that nobody has looked at.

use std::borrow::Cow;
use std::collections::HashMap;

use levada_core::arena::Span;
use levada_core::{Row, Slice, Text, Value};

use super::error::{JsonError, JsonReason};
use super::shapes::Shapes;

type Result<T> = std::result::Result<T, JsonError>;

/// A document in the course of being decoded.
pub(super) struct Document<'a> {
    payload: &'a Slice,
    bytes: &'a [u8],
    position: usize,
    depth: usize,
    max_depth: usize,
    shapes: &'a mut Shapes,
    /// Objects begun so far: the number under which the next one's shape is predicted.
    objects: usize,
}

/// A string as it stands in the document, without its quotes.
#[derive(Clone, Copy)]
struct Quoted<'a> {
    start: usize,
    raw: &'a [u8],
    has_escapes: bool,
}

impl<'a> Document<'a> {
    pub(super) fn new(payload: &'a Slice, max_depth: usize, shapes: &'a mut Shapes) -> Self {
        Self { payload, bytes: payload.as_bytes(), position: 0, depth: 0, max_depth, shapes, objects: 0 }
    }

    /// Decodes the value that comes next.
    pub(super) fn value(&mut self) -> Result<Value> {
        match self.peek_past_space() {
            Some(b'"') => self.text().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b'{') => self.object().map(|row| Value::Row(Box::new(row))),
            Some(b'[') => self.list().map(Value::List),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'n') => self.word(b"null", Value::Null),
            _ => Err(self.expected("a value")),
        }
    }

    /// Decodes the object that comes next; any other value is an error, but a wrong one comes first.
    pub(super) fn object_only(&mut self) -> Result<Row> {
        if self.peek_past_space() == Some(b'{') {
            return self.object();
        }
        let start = self.position;
        let found = self.value()?.class();
        self.finish()?;
        Err(JsonError::new(start, JsonReason::NotAnObject { found }))
    }

    /// Checks that nothing comes after the document.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.peek_past_space() {
            None => Ok(()),
            Some(_) => Err(self.error(JsonReason::TrailingBytes)),
        }
    }

    fn object(&mut self) -> Result<Row> {
        self.enter()?;
        let object = self.objects;
        self.objects += 1;
        let predicted = self.shapes.predicted(object);
        let mut values: Vec<Value> = Vec::with_capacity(predicted.len());
        // The names, from the moment on at which they are not the predicted ones.
        let mut strayed: Option<Names<'_>> = None;

        let mut has_more = !self.closes_empty(b'}');
        while has_more {
            let name = self.name()?;
            let is_predicted = strayed.is_none()
                && predicted.names().get(values.len()).is_some_and(|expected| name.is(expected));
            if is_predicted {
                values.push(self.value()?);
            } else {
                let names =
                    strayed.get_or_insert_with(|| Names::starting_with(&predicted.names()[..values.len()]));
                let place = names.place(decoded(name)?);
                let value = self.value()?;
                put(&mut values, place, value);
            }
            has_more = self.comma_or(b'}', "a comma or the end of the object")?;
        }
        self.depth -= 1;

        let shape = match strayed {
            None if values.len() == predicted.len() => predicted,
            None => self.shapes.of_names(object, &predicted.names()[..values.len()]),
            Some(names) => self.shapes.of_names(object, &names.in_order),
        };
        Ok(Row::new(shape, values))
    }

    fn list(&mut self) -> Result<Vec<Value>> {
        self.enter()?;
        let mut values = Vec::new();
        let mut has_more = !self.closes_empty(b']');
        while has_more {
            values.push(self.value()?);
            has_more = self.comma_or(b']', "a comma or the end of the list")?;
        }
        self.depth -= 1;
        Ok(values)
    }

    /// Takes an opening bracket.
    fn enter(&mut self) -> Result<()> {
        if self.depth >= self.max_depth {
            return Err(self.error(JsonReason::TooDeep { limit: self.max_depth }));
        }
        self.depth += 1;
        self.position += 1;
        Ok(())
    }

    /// Takes the closing bracket of an object or list without content.
    fn closes_empty(&mut self, close: u8) -> bool {
        let is_empty = self.peek_past_space() == Some(close);
        self.position += usize::from(is_empty);
        is_empty
    }

    /// Takes what follows a member: a comma, which announces another one, or the closing bracket.
    fn comma_or(&mut self, close: u8, expected: &'static str) -> Result<bool> {
        match self.peek_past_space() {
            Some(next) if next == b',' || next == close => {
                self.position += 1;
                Ok(next == b',')
            }
            _ => Err(self.expected(expected)),
        }
    }

    /// Takes a field's name and the colon.
    fn name(&mut self) -> Result<Quoted<'a>> {
        if self.peek_past_space() != Some(b'"') {
            return Err(self.expected("a field's name in quotes"));
        }
        let name = self.quoted()?;
        if self.peek_past_space() != Some(b':') {
            return Err(self.expected("a colon"));
        }
        self.position += 1;
        Ok(name)
    }

    fn text(&mut self) -> Result<Text> {
        let quoted = self.quoted()?;
        if quoted.has_escapes {
            return unescaped(quoted).map(Text::from);
        }
        self.borrowed(quoted.start, quoted.raw.len())
    }

    /// Refers to a part of the payload, checking its encoding.
    fn borrowed(&self, start: usize, len: usize) -> Result<Text> {
        Text::new(self.payload.subslice(Span::new(start, len)))
            .map_err(|broken| JsonError::new(start + broken.valid_up_to(), JsonReason::InvalidUtf8))
    }

    /// Takes a string. Its encoding and its escapes are checked when it is decoded.
    fn quoted(&mut self) -> Result<Quoted<'a>> {
        let start = self.position + 1;
        let mut has_escapes = false;
        self.position = start;
        loop {
            self.position += plain_len(&self.bytes[self.position..]);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    // Whatever comes after a backslash does not end the string.
                    self.position = (self.position + 2).min(self.bytes.len());
                }
                Some(_) => return Err(self.error(JsonReason::ControlCharacter)),
                None => return Err(self.error(JsonReason::UnexpectedEnd)),
            }
        }
        let raw = &self.bytes[start..self.position];
        self.position += 1;
        Ok(Quoted { start, raw, has_escapes })
    }

    fn number(&mut self) -> Result<Text> {
        let start = self.position;
        self.position += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.position += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.position += 1;
            self.position += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        self.borrowed(start, self.position - start)
    }

    /// Takes one digit or more.
    fn digits(&mut self) -> Result<()> {
        let rest = &self.bytes[self.position..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.position += count;
        if count == 0 { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn word(&mut self, word: &'static [u8], value: Value) -> Result<Value> {
        for expected in word {
            if self.peek() != Some(*expected) {
                return Err(self.expected("a value"));
            }
            self.position += 1;
        }
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn peek_past_space(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.position += 1,
                next => return next,
            }
        }
    }

    /// Something else had to come, or anything at all.
    fn expected(&self, expected: &'static str) -> JsonError {
        let is_at_end = self.position >= self.bytes.len();
        self.error(if is_at_end { JsonReason::UnexpectedEnd } else { JsonReason::Expected { expected } })
    }

    fn error(&self, reason: JsonReason) -> JsonError {
        JsonError::new(self.position, reason)
    }
}

impl Quoted<'_> {
    /// Tells whether it is this name as it stands. With escapes it may be and is not recognised: such a name takes the
    /// way of the unpredicted ones.
    fn is(self, name: &str) -> bool {
        !self.has_escapes && self.raw == name.as_bytes()
    }
}

/// Sets a field that came again, or adds it.
fn put(values: &mut Vec<Value>, place: usize, value: Value) {
    match values.get_mut(place) {
        Some(earlier) => *earlier = value,
        None => values.push(value),
    }
}

/// The distinct names of an object.
struct Names<'n> {
    in_order: Vec<Cow<'n, str>>,
    /// Only for objects too wide to search by walking. Its hashes are keyed: names from outside cannot make it slow.
    index: HashMap<Cow<'n, str>, usize>,
}

impl<'n> Names<'n> {
    /// From this many names on, a duplicate is found through the index.
    const WIDE: usize = 32;

    fn starting_with(names: &'n [Box<str>]) -> Self {
        let in_order = names.iter().map(|name| Cow::Borrowed(&**name)).collect();
        Self { in_order, index: HashMap::new() }
    }

    /// Returns the place of a name, which is that of its first occurrence; a new one is added at the end.
    fn place(&mut self, name: Cow<'n, str>) -> usize {
        let next = self.in_order.len();
        if next < Self::WIDE {
            let known = self.in_order.iter().position(|candidate| *candidate == name);
            return known.unwrap_or_else(|| {
                self.in_order.push(name);
                next
            });
        }
        if self.index.is_empty() {
            self.index = self.in_order.iter().cloned().zip(0..).collect();
        }
        let place = *self.index.entry(name.clone()).or_insert(next);
        if place == next {
            self.in_order.push(name);
        }
        place
    }
}

/// Counts the bytes before the first quote, backslash or control character, eight at a time.
fn plain_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

    let mut len = 0;
    while let Some(eight) = bytes[len..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*eight);
        // Subtracting borrows into the high bit of a byte that was smaller; a borrow that runs on marks wrong bytes
        // only above the first right one.
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let not_quote = word ^ (ONES * u64::from(b'"'));
        let quote = not_quote.wrapping_sub(ONES) & !not_quote;
        let not_backslash = word ^ (ONES * u64::from(b'\\'));
        let backslash = not_backslash.wrapping_sub(ONES) & !not_backslash;
        let found = (control | quote | backslash) & HIGHS;
        if found != 0 {
            return len + found.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let is_plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | 0..0x20);
    len + bytes[len..].iter().take_while(is_plain).count()
}

fn utf8(bytes: &[u8], start: usize) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|broken| JsonError::new(start + broken.valid_up_to(), JsonReason::InvalidUtf8))
}

/// Reads a string that need not outlive the document.
fn decoded(quoted: Quoted<'_>) -> Result<Cow<'_, str>> {
    if quoted.has_escapes {
        return unescaped(quoted).map(Cow::Owned);
    }
    utf8(quoted.raw, quoted.start).map(Cow::Borrowed)
}

/// Replaces the escapes of a string.
fn unescaped(quoted: Quoted<'_>) -> Result<String> {
    let mut text = String::with_capacity(quoted.raw.len());
    let mut position = 0;
    while position < quoted.raw.len() {
        let rest = &quoted.raw[position..];
        let plain = plain_len(rest);
        text.push_str(utf8(&rest[..plain], quoted.start + position)?);
        position += plain;
        if position < quoted.raw.len() {
            let (character, len) = escape(&quoted.raw[position..])
                .map_err(|reason| JsonError::new(quoted.start + position, reason))?;
            text.push(character);
            position += len;
        }
    }
    Ok(text)
}

/// Decodes the escape that `bytes` begin with. Returns its character and its length.
fn escape(bytes: &[u8]) -> std::result::Result<(char, usize), JsonReason> {
    let character = match bytes.get(1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(bytes),
        _ => return Err(JsonReason::InvalidEscape),
    };
    Ok((character, 2))
}

/// Decodes `\uXXXX`, or two of them that are a surrogate pair.
fn unicode_escape(bytes: &[u8]) -> std::result::Result<(char, usize), JsonReason> {
    const UNIT: usize = 6;
    let first = code_unit(bytes)?;
    if let Some(character) = char::from_u32(u32::from(first)) {
        return Ok((character, UNIT));
    }
    let rest = &bytes[UNIT..];
    if !rest.starts_with(b"\\u") {
        return Err(JsonReason::LoneSurrogate);
    }
    let mut pair = char::decode_utf16([first, code_unit(rest)?]);
    match pair.next() {
        Some(Ok(character)) => Ok((character, 2 * UNIT)),
        _ => Err(JsonReason::LoneSurrogate),
    }
}

fn code_unit(bytes: &[u8]) -> std::result::Result<u16, JsonReason> {
    let digits = bytes.get(2..6).ok_or(JsonReason::InvalidEscape)?;
    digits.iter().try_fold(0, |unit, digit| {
        let nibble = char::from(*digit).to_digit(16).ok_or(JsonReason::InvalidEscape)?;
        Ok(unit << 4 | nibble as u16)
    })
}

//! A change as bytes: what a sink keeps in checkpoints until it may write.
//!
//! ```text
//! change   flags:u8  key:row?  row:row?          bit 0: there is a key; bit 1: an upsert, so there is a row
//! row      count (name:bytes value)*             each row with its names: an element is read by itself
//! value    tag:u8 and what the tag says
//! bytes    length, and so many bytes             lengths and counts: seven bits a byte, the low ones first
//! ```
//!
//! Numbers are stored as the text that they travel as; all else has its high byte first.

use std::sync::Arc;

use super::{Change, Keyed, Row, Shape, Value};
use crate::arena::{Arena, Slice, Span, Text};
use crate::state::{StateError, Storable};

const HAS_KEY: u8 = 1;
const IS_UPSERT: u8 = 2;

/// Values in values: far more than a format lets through, and far less than a stack holds.
const MAX_DEPTH: u32 = 500;

mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const INT: u8 = 3;
    pub(super) const NUMBER: u8 = 4;
    pub(super) const FLOAT: u8 = 5;
    pub(super) const TEXT: u8 = 6;
    pub(super) const BYTES: u8 = 7;
    pub(super) const DATE: u8 = 8;
    pub(super) const TIME: u8 = 9;
    pub(super) const WALL_CLOCK: u8 = 10;
    pub(super) const INSTANT: u8 = 11;
    pub(super) const UUID: u8 = 12;
    pub(super) const LIST: u8 = 13;
    pub(super) const MAP: u8 = 14;
    pub(super) const ROW: u8 = 15;
}

impl Storable for Keyed {
    const VERSION: u16 = 1;

    fn store(&self, out: &mut Vec<u8>) {
        let has_key = if self.key.is_some() { HAS_KEY } else { 0 };
        let is_upsert = if matches!(self.change, Change::Upsert(_)) { IS_UPSERT } else { 0 };
        out.push(has_key | is_upsert);
        if let Some(key) = &self.key {
            store_row(key, out);
        }
        if let Change::Upsert(row) = &self.change {
            store_row(row, out);
        }
    }

    fn load(version: u16, bytes: &[u8]) -> Result<Self, StateError> {
        if version != Self::VERSION {
            let newest = Self::VERSION;
            return Err(StateError::new(format!(
                "version {version} of a change was found, up to {newest} is understood"
            )));
        }
        // One copy for the whole change; its texts are slices of it.
        let mut reader = Reader { arena: Arena::new(bytes.to_vec(), None), at: 0, depth: 0 };
        let flags = reader.byte()?;
        if flags & !(HAS_KEY | IS_UPSERT) != 0 {
            return Err(damaged());
        }
        let key = if flags & HAS_KEY != 0 { Some(reader.row()?) } else { None };
        let change = match flags & IS_UPSERT != 0 {
            true => Change::Upsert(reader.row()?),
            false => Change::Delete,
        };
        if reader.at != bytes.len() {
            return Err(damaged());
        }
        Ok(Self { key, change })
    }
}

fn damaged() -> StateError {
    StateError::new("a stored change is cut short or damaged")
}

fn store_row(row: &Row, out: &mut Vec<u8>) {
    put_length(out, row.shape().len());
    for (name, value) in row.iter() {
        put_bytes(out, name.as_bytes());
        store_value(value, out);
    }
}

fn store_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(tag::NULL),
        Value::Bool(false) => out.push(tag::FALSE),
        Value::Bool(true) => out.push(tag::TRUE),
        Value::Int(number) => put(out, tag::INT, &number.to_be_bytes()),
        Value::Number(text) => put_framed(out, tag::NUMBER, text.as_bytes()),
        Value::Float(number) => put(out, tag::FLOAT, &number.to_bits().to_be_bytes()),
        Value::Text(text) => put_framed(out, tag::TEXT, text.as_bytes()),
        Value::Bytes(bytes) => put_framed(out, tag::BYTES, bytes.as_bytes()),
        Value::Date(days) => put(out, tag::DATE, &days.to_be_bytes()),
        Value::Time(micros) => put(out, tag::TIME, &micros.to_be_bytes()),
        Value::Timestamp { micros, is_instant: false } => put(out, tag::WALL_CLOCK, &micros.to_be_bytes()),
        Value::Timestamp { micros, is_instant: true } => put(out, tag::INSTANT, &micros.to_be_bytes()),
        Value::Uuid(bytes) => put(out, tag::UUID, bytes),
        Value::List(values) => {
            out.push(tag::LIST);
            put_length(out, values.len());
            values.iter().for_each(|value| store_value(value, out));
        }
        Value::Map(entries) => {
            out.push(tag::MAP);
            put_length(out, entries.len());
            for (key, value) in entries {
                store_value(key, out);
                store_value(value, out);
            }
        }
        Value::Row(row) => {
            out.push(tag::ROW);
            store_row(row, out);
        }
    }
}

fn put(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

fn put_framed(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_bytes(out, bytes);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

struct Reader {
    arena: Arc<Arena>,
    at: usize,
    depth: u32,
}

impl Reader {
    fn byte(&mut self) -> Result<u8, StateError> {
        let byte = self.arena.bytes().get(self.at).copied().ok_or_else(damaged)?;
        self.at += 1;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let rest = self.arena.bytes().get(self.at..).ok_or_else(damaged)?;
        let array = *rest.first_chunk::<N>().ok_or_else(damaged)?;
        self.at += N;
        Ok(array)
    }

    fn length(&mut self) -> Result<usize, StateError> {
        let mut length = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(length).map_err(|_| damaged());
            }
        }
        Err(damaged())
    }

    fn slice(&mut self) -> Result<Slice, StateError> {
        let length = self.length()?;
        if self.arena.bytes().len() - self.at < length {
            return Err(damaged());
        }
        let slice = Slice::new(&self.arena, Span::new(self.at, length));
        self.at += length;
        Ok(slice)
    }

    fn text(&mut self) -> Result<Text, StateError> {
        Text::new(self.slice()?).map_err(|_| damaged())
    }

    fn i64(&mut self) -> Result<i64, StateError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn row(&mut self) -> Result<Row, StateError> {
        let count = self.length()?;
        let (mut names, mut values) = (Vec::<Box<str>>::new(), Vec::new());
        for _ in 0..count {
            names.push(self.text()?.as_str().into());
            values.push(self.value()?);
        }
        Ok(Row::new(Shape::new(names), values))
    }

    fn value(&mut self) -> Result<Value, StateError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(StateError::new(format!("a stored change is nested deeper than {MAX_DEPTH}")));
        }
        let value = match self.byte()? {
            tag::NULL => Value::Null,
            tag::FALSE => Value::Bool(false),
            tag::TRUE => Value::Bool(true),
            tag::INT => Value::Int(self.i64()?),
            tag::NUMBER => Value::Number(self.text()?),
            tag::FLOAT => Value::Float(f64::from_bits(u64::from_be_bytes(self.array()?))),
            tag::TEXT => Value::Text(self.text()?),
            tag::BYTES => Value::Bytes(self.slice()?),
            tag::DATE => Value::Date(i32::from_be_bytes(self.array()?)),
            tag::TIME => Value::Time(self.i64()?),
            tag::WALL_CLOCK => Value::Timestamp { micros: self.i64()?, is_instant: false },
            tag::INSTANT => Value::Timestamp { micros: self.i64()?, is_instant: true },
            tag::UUID => Value::Uuid(self.array()?),
            tag::LIST => {
                let count = self.length()?;
                // Collected one by one: a damaged count must not ask for memory.
                Value::List((0..count).map(|_| self.value()).collect::<Result<_, _>>()?)
            }
            tag::MAP => {
                let count = self.length()?;
                let entries = (0..count).map(|_| Ok((self.value()?, self.value()?)));
                Value::Map(entries.collect::<Result<_, StateError>>()?)
            }
            tag::ROW => Value::Row(Box::new(self.row()?)),
            _ => return Err(damaged()),
        };
        self.depth -= 1;
        Ok(value)
    }
}

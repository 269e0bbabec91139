//! Identifiers in SQL text: the only module that puts a name into a statement.
//!
//! Every name is quoted, so reserved words, capitals, spaces, dots and quotes are names like any other. The server
//! would cut a name after 63 bytes without a word and then mean another object, so longer ones are refused.

use std::fmt;

/// The longest name that a server built with the usual `NAMEDATALEN` keeps.
pub const MAX_IDENTIFIER_BYTES: usize = 63;

/// A name that cannot be an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentifierError {
    /// It is empty.
    #[error("an identifier cannot be empty")]
    Empty,
    /// The server would cut it.
    #[error("identifier {name:?} has {bytes} bytes; Postgres keeps {MAX_IDENTIFIER_BYTES}")]
    TooLong {
        /// The name.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// It holds a NUL character.
    #[error("identifier {name:?} holds a NUL character")]
    Nul {
        /// The name.
        name: String,
    },
}

/// A checked name, which prints itself quoted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier(Box<str>);

impl Identifier {
    /// Checks a name.
    ///
    /// # Errors
    /// The name is empty, longer than [`MAX_IDENTIFIER_BYTES`], or holds a NUL character.
    pub fn new(name: impl Into<Box<str>>) -> Result<Self, IdentifierError> {
        let name = name.into();
        if name.is_empty() {
            return Err(IdentifierError::Empty);
        }
        if name.len() > MAX_IDENTIFIER_BYTES {
            return Err(IdentifierError::TooLong { bytes: name.len(), name: name.into() });
        }
        if name.contains('\0') {
            return Err(IdentifierError::Nul { name: name.into() });
        }
        Ok(Self(name))
    }

    /// Returns the name as it is stored in the catalog, unquoted.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Prints the name in double quotes, inner quotes doubled.
impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for (number, part) in self.0.split('"').enumerate() {
            if number > 0 {
                f.write_str("\"\"")?;
            }
            f.write_str(part)?;
        }
        f.write_str("\"")
    }
}

/// A table's name, with or without a schema. Dots inside a part are part of the name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableName {
    /// The schema; without one the connection's `search_path` decides.
    pub schema: Option<Identifier>,
    /// The table.
    pub table: Identifier,
}

impl TableName {
    /// Names a table that `search_path` finds.
    ///
    /// # Errors
    /// The name cannot be an identifier.
    pub fn new(table: &str) -> Result<Self, IdentifierError> {
        Ok(Self { schema: None, table: Identifier::new(table)? })
    }

    /// Names a table of a schema.
    ///
    /// # Errors
    /// One of the names cannot be an identifier.
    pub fn in_schema(schema: &str, table: &str) -> Result<Self, IdentifierError> {
        Ok(Self { schema: Some(Identifier::new(schema)?), table: Identifier::new(table)? })
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        write!(f, "{}", self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [PGS-30] quoting alone; the server's view is in `tests/names.rs`.
    #[test]
    fn quotes_inside_a_name_are_doubled() {
        let quoted = |name: &str| Identifier::new(name).expect("a name").to_string();
        assert_eq!(quoted("select"), r#""select""#);
        assert_eq!(quoted(r#"a"b""#), r#""a""b""""#);
        assert_eq!(quoted("a.b"), r#""a.b""#);
    }

    /// [PGS-30] the limit counts bytes, as the server does.
    #[test]
    fn name_beyond_63_bytes_is_refused() {
        assert!(Identifier::new("ä".repeat(31)).is_ok());
        assert_eq!(
            Identifier::new("ä".repeat(32)),
            Err(IdentifierError::TooLong { name: "ä".repeat(32), bytes: 64 })
        );
        assert_eq!(Identifier::new(""), Err(IdentifierError::Empty));
        assert!(Identifier::new("a\0").is_err());
    }
}

//! The bytes of a key or a value, and their unambiguous text.

use std::fmt::{self, Debug, Display, Formatter};

/// The bytes of a key or a value.
///
/// `Display` shows printable ASCII as it is and every other byte, and the backslash, as `\x` and two hexadecimal digits;
/// `Debug` puts it between quotes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text, or `None` when the bytes are no UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Reads what Kafka's `Bytes` prints: the text of `Display`, and nothing else.
    pub(super) fn parse(printed: &str) -> Option<Payload> {
        let mut bytes = Vec::with_capacity(printed.len());
        let mut rest = printed.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            match byte {
                b'\\' => {
                    let [b'x', high, low, after @ ..] = after else { return None };
                    bytes.push(hexadecimal(*high)? << 4 | hexadecimal(*low)?);
                    rest = after;
                }
                b' '..=b'~' => {
                    bytes.push(byte);
                    rest = after;
                }
                _ => return None,
            }
        }
        Some(Payload(bytes))
    }
}

fn hexadecimal(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl From<&str> for Payload {
    fn from(text: &str) -> Payload {
        Payload(text.as_bytes().to_vec())
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Payload {
        Payload(text.into_bytes())
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Payload {
        Payload(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload(bytes)
    }
}

impl Display for Payload {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for &byte in &self.0 {
            match byte {
                b' '..=b'~' if byte != b'\\' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02X}")?,
            }
        }
        Ok(())
    }
}

impl Debug for Payload {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::Payload;

    #[test]
    fn every_byte_is_printed_and_read_back() {
        let all = Payload::from((0..=255).collect::<Vec<u8>>());
        let printed = all.to_string();
        assert!(printed.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{printed}");
        assert_eq!(Payload::parse(&printed), Some(all));
        assert_eq!(Payload::parse(""), Some(Payload::from("")));
        assert_eq!(Payload::from("a\\\tü").to_string(), "a\\x5C\\x09\\xC3\\xBC");
    }

    #[test]
    fn what_is_not_printed_so_is_refused() {
        for printed in ["\\", "\\x", "\\x4", "\\x4g", "\\xab", "\\n", "a\tb", "ü", "\\\\"] {
            assert_eq!(Payload::parse(printed), None, "{printed}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_have_none() {
        assert_eq!(Payload::from("ü").text(), Some("ü"));
        assert_eq!(Payload::from([0xff].as_slice()).text(), None);
    }
}

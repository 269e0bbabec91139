//! How a record becomes a line.

use levada_core::BoxError;

/// Turns records into lines. Closures `FnMut(&T, &mut Vec<u8>) -> Result<(), BoxError>` do, too.
pub trait Lines<T>: Send + 'static {
    /// Appends the record's line, without the newline at its end, which the sink adds. Newlines inside are written as they
    /// are.
    ///
    /// # Errors
    /// The record cannot be written: the sink names its coordinates. What was appended is dropped.
    fn line(&mut self, item: &T, out: &mut Vec<u8>) -> Result<(), BoxError>;
}

impl<T, F> Lines<T> for F
where
    F: FnMut(&T, &mut Vec<u8>) -> Result<(), BoxError> + Send + 'static,
{
    fn line(&mut self, item: &T, out: &mut Vec<u8>) -> Result<(), BoxError> {
        self(item, out)
    }
}

/// Writes what is bytes already (`String`, `Vec<u8>`, `&str`, …) as one line each, and refuses what would be two.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainLines;

impl<T: AsRef<[u8]>> Lines<T> for PlainLines {
    fn line(&mut self, item: &T, out: &mut Vec<u8>) -> Result<(), BoxError> {
        let line = item.as_ref();
        if line.contains(&b'\n') {
            return Err(
                "it has a newline inside, and would be read back as two; give the sink an encoder".into()
            );
        }
        out.extend_from_slice(line);
        Ok(())
    }
}

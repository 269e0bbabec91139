//! Environment variables as text.

use std::env::{self, VarError};

use crate::Error;

/// Returns the text of a variable; `None` when it is not set.
///
/// # Errors
///
/// [`Error::Variable`] when it is no text.
pub(crate) fn text(variable: &'static str) -> Result<Option<String>, Error> {
    match env::var(variable) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::Variable { variable, reason: "it is no text" }),
    }
}

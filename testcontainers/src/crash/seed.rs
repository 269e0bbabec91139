//! The number that a loop can be replayed from.

use crate::{Error, variable};

/// The variable that sets it.
const SEED: &str = "LEVADA_SEED";

/// Returns the seed in `LEVADA_SEED`, else a random one.
///
/// A test with several loops draws once and hands it to all of them, so that one number replays the test. Loops of
/// different names have different plans all the same.
///
/// # Errors
///
/// [`Error::Variable`] if `LEVADA_SEED` is no number of 64 bits.
pub fn seed() -> Result<u64, Error> {
    match variable::text(SEED)? {
        Some(text) => text.parse().map_err(|_| Error::Variable {
            variable: SEED,
            reason: "it is no number of 64 bits without sign",
        }),
        None => Ok(rand::random()),
    }
}

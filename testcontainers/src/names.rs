//! Names that nobody else uses: topics, schemas, databases, folders, ids.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns `prefix` with a suffix that no other call returns, in this process or another.
///
/// The suffix is an underscore and 16 lower-case hexadecimal digits: fit for topics, groups, transactional ids, and for
/// SQL identifiers without quotes as long as the prefix is.
#[must_use]
pub fn unique_name(prefix: &str) -> String {
    format!("{prefix}_{:016x}", random_bits())
}

/// Returns 64 random bits: each `RandomState` is seeded from the system's entropy, the counter keeps calls apart.
fn random_bits() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(CALLS.fetch_add(1, Ordering::Relaxed));
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// Returns a random id as Kafka writes them: 128 bits in URL-safe base64 without padding.
///
/// The top bit is clear, because Kafka's tools take an id with a leading dash for an option.
pub(crate) fn random_kafka_id() -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = (u128::from(random_bits()) << 64 | u128::from(random_bits())) & (u128::MAX >> 1);
    // 22 digits of 6 bits are 132 bits: the last digit carries 2 bits of the id and 4 zeros.
    (0..22)
        .map(|place: u32| {
            let digit = if place == 21 { (bits << 4) & 0x3f } else { (bits >> (122 - 6 * place)) & 0x3f };
            // Six bits are always an index into the 64 digits.
            char::from(DIGITS[digit as usize])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{random_kafka_id, unique_name};

    #[test]
    fn names_differ_and_need_no_quotes() {
        let first = unique_name("orders");
        let second = unique_name("orders");
        assert_ne!(first, second);
        assert!(first.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{first}");
    }

    #[test]
    fn kafka_ids_have_22_digits_and_no_leading_dash() {
        for _ in 0..1000 {
            let id = random_kafka_id();
            assert_eq!(id.len(), 22);
            assert!(!id.starts_with(['-', '_']), "{id}");
        }
    }
}

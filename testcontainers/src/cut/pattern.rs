//! Finds a pattern in a stream of bytes without looking back (Knuth, Morris, Pratt).

/// A pattern and how much of it the bytes seen last are.
#[derive(Debug)]
pub(super) struct Matcher {
    pattern: Vec<u8>,
    /// For each length of a matched prefix, less one: the length of its longest proper prefix that is also its end.
    borders: Vec<usize>,
    matched: usize,
}

impl Matcher {
    /// Takes a pattern of at least one byte.
    pub(super) fn new(pattern: Vec<u8>) -> Matcher {
        let borders = borders(&pattern);
        Matcher { pattern, borders, matched: 0 }
    }

    /// Takes the next byte of the stream; tells whether the pattern ends with it.
    pub(super) fn feed(&mut self, byte: u8) -> bool {
        if self.matched == self.pattern.len() {
            self.matched = self.border();
        }
        while self.matched > 0 && self.pattern[self.matched] != byte {
            self.matched = self.border();
        }
        if self.pattern[self.matched] == byte {
            self.matched += 1;
        }
        self.matched == self.pattern.len()
    }

    /// Returns how many of the next bytes, from the first on, leave it without a match.
    pub(super) fn passes(&self, bytes: &[u8]) -> usize {
        if self.matched > 0 {
            return 0;
        }
        bytes.iter().position(|byte| *byte == self.pattern[0]).unwrap_or(bytes.len())
    }

    /// Returns how many of the bytes seen last are the beginning of the pattern: the most that may have to be withheld.
    pub(super) fn matched(&self) -> usize {
        self.matched
    }

    /// Returns the next shorter prefix that the bytes seen last also are. Only called with a matched byte.
    fn border(&self) -> usize {
        self.borders[self.matched - 1]
    }
}

fn borders(pattern: &[u8]) -> Vec<usize> {
    let mut borders = vec![0; pattern.len()];
    let mut length = 0;
    for end in 1..pattern.len() {
        while length > 0 && pattern[length] != pattern[end] {
            length = borders[length - 1];
        }
        if pattern[length] == pattern[end] {
            length += 1;
        }
        borders[end] = length;
    }
    borders
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::Matcher;

    /// The longest prefix of the pattern that the stream ends with, by trying all of them.
    fn longest_end(stream: &[u8], pattern: &[u8]) -> usize {
        (0..=pattern.len()).rev().find(|length| stream.ends_with(&pattern[..*length])).unwrap()
    }

    /// [TST-04] Two letters make for many false starts.
    #[test]
    fn the_matcher_agrees_with_trying_every_prefix() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..2000 {
            let length = random.random_range(1..8);
            let pattern: Vec<u8> = (0..length).map(|_| random.random_range(b'a'..=b'b')).collect();
            let stream: Vec<u8> = (0..60).map(|_| random.random_range(b'a'..=b'b')).collect();
            let mut matcher = Matcher::new(pattern.clone());
            for end in 1..=stream.len() {
                let found = matcher.feed(stream[end - 1]);
                assert_eq!(found, stream[..end].ends_with(&pattern), "{pattern:?} in {:?}", &stream[..end]);
                assert_eq!(matcher.matched(), longest_end(&stream[..end], &pattern));
            }
        }
    }
}

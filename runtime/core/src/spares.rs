//! Vectors that are used again.
//!
//! Batches are made by one task and dropped by another. Without this the allocator would give their memory back to the system
//! in between and get it anew, page by page, which takes longer than filling them.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

/// How many are kept. More batches than this are seldom on their way between two tasks.
const KEPT: usize = 8;
/// A vector that holds more than this is not kept: its cost is in its content, and memory must not pile up.
const LARGEST: usize = 1 << 20;

/// Keeps a few emptied vectors of one kind. Cloning shares them.
pub struct Spares<V>(Arc<Mutex<Vec<Vec<V>>>>);

impl<V> Spares<V> {
    /// Returns an empty vector with room for `capacity`, if possible one that was used before.
    pub fn take(&self, capacity: usize) -> Vec<V> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut taken = spare.unwrap_or_default();
        taken.reserve(capacity);
        taken
    }

    fn put(&self, mut used: Vec<V>) {
        used.clear();
        let bytes = used.capacity() * mem::size_of::<V>();
        if bytes == 0 || bytes > LARGEST {
            return;
        }
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < KEPT {
            spares.push(used);
        }
    }
}

impl<V> Default for Spares<V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<V> Clone for Spares<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> fmt::Debug for Spares<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spares")
    }
}

/// A vector that goes back to its spares when it is dropped, if it came from some.
pub(crate) struct Lent<V> {
    content: Vec<V>,
    home: Option<Spares<V>>,
}

impl<V> Lent<V> {
    pub(crate) fn new(content: Vec<V>, home: Option<Spares<V>>) -> Self {
        Self { content, home }
    }

    pub(crate) fn as_slice(&self) -> &[V] {
        &self.content
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [V] {
        &mut self.content
    }

    /// Returns the content for good.
    pub(crate) fn into_inner(mut self) -> Vec<V> {
        self.home = None;
        mem::take(&mut self.content)
    }
}

impl<V> From<Vec<V>> for Lent<V> {
    fn from(content: Vec<V>) -> Self {
        Self::new(content, None)
    }
}

impl<V> Default for Lent<V> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<V: fmt::Debug> fmt::Debug for Lent<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.content.fmt(f)
    }
}

impl<V> Drop for Lent<V> {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.put(mem::take(&mut self.content));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_vector_is_used_again_and_empty() {
        let spares = Spares::default();
        let place = {
            let mut content = spares.take(10);
            content.extend([1_u64, 2, 3]);
            Lent::new(content, Some(spares.clone())).as_slice().as_ptr()
        };
        let again = spares.take(5);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        assert_eq!(Lent::new(again, Some(spares.clone())).into_inner().capacity(), 10);
        assert_eq!(spares.take(0).capacity(), 0, "what was kept for good does not come back");
    }

    #[test]
    fn neither_many_nor_large_vectors_are_kept() {
        let spares = Spares::default();
        drop(Lent::new(Vec::<u8>::with_capacity(LARGEST + 1), Some(spares.clone())));
        assert_eq!(spares.take(0).capacity(), 0);
        for _ in 0..KEPT + 3 {
            drop(Lent::new(Vec::<u8>::with_capacity(1), Some(spares.clone())));
        }
        assert_eq!(spares.0.lock().unwrap().len(), KEPT);
    }
}

//! The shapes of the rows decoded so far.
//!
//! Records of one topic look alike, so the n-th object of a document is first compared with the n-th object of the
//! document before: nothing is hashed or allocated when it has the same names. Otherwise the shape is looked up by its
//! names. What is remembered is bounded in number and in bytes, whatever the payloads hold.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};

use levada_core::Shape;

/// Objects of a document with a prediction of their own; those after share the last one, which suits long lists.
const PREDICTED_OBJECTS: usize = 32;

/// Shapes in one generation. There are two, so a decoder knows at most 256.
const SHAPES_PER_GENERATION: usize = 128;

/// Estimated bytes of the shapes in one generation.
const BYTES_PER_GENERATION: usize = 4 << 20;

/// A shape estimated larger than this is not remembered: its names are probably data. A table of 1,600 columns with
/// names of 60 bytes stays below.
const LARGEST_REMEMBERED: usize = 512 << 10;

/// What one name costs besides its text: its allocation, and its entry in the index of a wide shape.
const BYTES_PER_NAME: usize = 128;

static EMPTY: LazyLock<Arc<Shape>> = LazyLock::new(|| Shape::new(std::iter::empty::<&str>()));

/// Remembers shapes.
#[derive(Default)]
pub(super) struct Shapes {
    /// The shape that each object of the document before had, by the order in which the objects begin.
    predicted: Vec<Arc<Shape>>,
    /// Shapes by the hash of their names. Equal hashes with different names replace each other.
    young: HashMap<u64, Arc<Shape>>,
    /// The generation before: what is still in use is moved back to the young, the rest goes with the next change.
    old: HashMap<u64, Arc<Shape>>,
    /// Estimated bytes of the young generation.
    young_bytes: usize,
    hasher: RandomState,
}

impl fmt::Debug for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shapes").field("young", &self.young.len()).field("old", &self.old.len()).finish()
    }
}

impl Shapes {
    /// Returns the shape that the document's `object`-th object probably has.
    pub(super) fn predicted(&self, object: usize) -> Arc<Shape> {
        Arc::clone(self.predicted.get(object.min(PREDICTED_OBJECTS - 1)).unwrap_or(&EMPTY))
    }

    /// Returns the shape of these names, which must be distinct, and predicts it for the next document's `object`-th
    /// object.
    pub(super) fn of_names<S: AsRef<str>>(&mut self, object: usize, names: &[S]) -> Arc<Shape> {
        let bytes = names.iter().map(|name| name.as_ref().len() + BYTES_PER_NAME).sum();
        if bytes > LARGEST_REMEMBERED {
            return new_shape(names);
        }
        let shape = self.known_or_new(names, bytes);
        self.predict(object, &shape);
        shape
    }

    fn predict(&mut self, object: usize, shape: &Arc<Shape>) {
        let slot = object.min(PREDICTED_OBJECTS - 1);
        if self.predicted.len() <= slot {
            // Objects end in another order than they begin: the outer ones before this are still open.
            self.predicted.resize(slot + 1, Arc::clone(&EMPTY));
        }
        self.predicted[slot] = Arc::clone(shape);
    }

    fn known_or_new<S: AsRef<str>>(&mut self, names: &[S], bytes: usize) -> Arc<Shape> {
        let hash = self.hash(names);
        if let Some(shape) = self.young.get(&hash).filter(|shape| has_names(shape, names)) {
            return Arc::clone(shape);
        }
        let from_old = self.old.remove(&hash).filter(|shape| has_names(shape, names));
        let shape = from_old.unwrap_or_else(|| new_shape(names));
        if self.young.len() >= SHAPES_PER_GENERATION || self.young_bytes + bytes > BYTES_PER_GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young.insert(hash, Arc::clone(&shape));
        self.young_bytes += bytes;
        shape
    }

    fn hash<S: AsRef<str>>(&self, names: &[S]) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = self.hasher.build_hasher();
        for name in names {
            name.as_ref().hash(&mut hasher);
        }
        hasher.finish()
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

fn new_shape<S: AsRef<str>>(names: &[S]) -> Arc<Shape> {
    Shape::new(names.iter().map(AsRef::as_ref))
}

fn has_names<S: AsRef<str>>(shape: &Shape, names: &[S]) -> bool {
    shape.len() == names.len()
        && shape.names().iter().zip(names).all(|(known, name)| **known == *name.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [FMT-09] Payloads with ever new names do not fill the memory.
    #[test]
    fn ever_new_shapes_are_forgotten_and_used_ones_kept() {
        let mut shapes = Shapes::default();
        let kept = shapes.of_names(0, &["id", "name"]);
        for n in 0..10_000 {
            shapes.of_names(1, &[format!("name{n}")]);
            assert!(Arc::ptr_eq(&kept, &shapes.of_names(0, &["id", "name"])));
        }
        assert!(shapes.known() <= 2 * SHAPES_PER_GENERATION);
    }

    /// [FMT-09] Nor do names that are themselves large.
    #[test]
    fn huge_shapes_are_not_remembered() {
        let mut shapes = Shapes::default();
        shapes.of_names(0, &["n".repeat(LARGEST_REMEMBERED)]);
        assert_eq!(shapes.known(), 0);
        for n in 0..100 {
            shapes.of_names(0, &[format!("{n}{}", "n".repeat(LARGEST_REMEMBERED / 2))]);
        }
        assert!(shapes.known() * LARGEST_REMEMBERED / 2 <= 2 * BYTES_PER_GENERATION);
    }
}

//! The elements of a list, shared by all who hold it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

/// Elements of a list, in order. Cloning costs one reference count, however many there are: a union list is once in
/// memory, whatever the number of subtasks that hold it, and a snapshot that nobody has changed is not copied.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Elements(Arc<Vec<Bytes>>);

impl Deref for Elements {
    type Target = [Bytes];

    fn deref(&self) -> &[Bytes] {
        &self.0
    }
}

impl From<Vec<Bytes>> for Elements {
    fn from(elements: Vec<Bytes>) -> Self {
        Self(Arc::new(elements))
    }
}

impl From<Vec<Vec<u8>>> for Elements {
    fn from(elements: Vec<Vec<u8>>) -> Self {
        elements.into_iter().map(Bytes::from).collect()
    }
}

impl FromIterator<Bytes> for Elements {
    fn from_iter<I: IntoIterator<Item = Bytes>>(elements: I) -> Self {
        Self(Arc::new(elements.into_iter().collect()))
    }
}

impl<'a> IntoIterator for &'a Elements {
    type Item = &'a Bytes;
    type IntoIter = std::slice::Iter<'a, Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

// State is made of rows: `Debug` tells the sizes alone.
impl fmt::Debug for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: usize = self.iter().map(Bytes::len).sum();
        write!(f, "Elements({} of {bytes} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [CHK-17] the elements' part: a state is handed over without copying it.
    #[test]
    fn clones_share_their_elements() {
        let elements = Elements::from(vec![vec![1, 2, 3], vec![]]);
        let clone = elements.clone();
        assert_eq!(clone[0].as_ptr(), elements[0].as_ptr());
        assert_eq!(format!("{clone:?}"), "Elements(2 of 3 bytes)");
    }
}

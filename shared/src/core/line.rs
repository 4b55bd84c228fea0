//! A line of those who wait.

use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// A line in order of arrival. Most often the first leaves, which costs a step of a counter; what has left is cleared away now and then.
///
/// It is a slice to whoever looks at it, and equal to any line of the same members.
#[derive(Clone, Debug)]
pub struct Line<T> {
    list: Vec<T>,
    /// The first so many of the list have left.
    left: usize,
}

impl<T: Copy> Line<T> {
    /// Joins at the end.
    #[inline]
    pub(super) fn push(&mut self, last: T) {
        if self.list.len() == self.list.capacity() {
            self.clear_away();
        }
        self.list.push(last);
    }

    /// The first leaves.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let first = *self.list.get(self.left)?;
        self.left += 1;
        if self.left == self.list.len() {
            self.clear();
        }
        Some(first)
    }

    /// How many wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len() - self.left
    }

    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.len() == self.left
    }

    /// Who stands at `at`.
    #[inline]
    pub fn get(&self, at: usize) -> Option<T> {
        self.list.get(self.left + at).copied()
    }

    /// Who has waited longest.
    #[inline]
    pub fn first(&self) -> Option<T> {
        self.list.get(self.left).copied()
    }

    /// Who stands at `at` leaves.
    ///
    /// # Panics
    /// When nobody stands there.
    #[inline]
    pub(super) fn remove(&mut self, at: usize) -> T {
        if at == 0 {
            return self.pop().expect("who leaves stands there");
        }
        self.list.remove(self.left + at)
    }

    /// Joins before who stands at `at`.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, between: T) {
        if at == self.len() {
            self.push(between);
        } else {
            self.list.insert(self.left + at, between);
        }
    }

    /// Those whom `stays` is false for leave.
    pub(super) fn retain(&mut self, stays: impl FnMut(&T) -> bool) {
        self.list.drain(..self.left);
        self.left = 0;
        self.list.retain(stays);
    }

    /// All leave.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.left = 0;
    }

    /// Keeps the list about as long as the line; as seldom as half of it has left.
    #[cold]
    fn clear_away(&mut self) {
        if self.left * 2 >= self.list.len() {
            self.list.drain(..self.left);
            self.left = 0;
        }
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            left: 0,
        }
    }
}

impl<T> FromIterator<T> for Line<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        Self {
            list: members.into_iter().collect(),
            left: 0,
        }
    }
}

impl<T> Deref for Line<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.list[self.left..]
    }
}

impl<T> DerefMut for Line<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.list[self.left..]
    }
}

impl<'a, T> IntoIterator for &'a Line<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: PartialEq> PartialEq for Line<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Line<T> {}

impl<T: Hash> Hash for Line<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (**self).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_leaves_first_however_long_it_goes_on() {
        let mut line: Line<u32> = (0..5).collect();
        for i in 5..500 {
            line.push(i);
            assert_eq!(line.pop(), Some(i - 5));
        }
        assert!(line.iter().eq(&[495, 496, 497, 498, 499]));
        assert!(line.list.capacity() < 32, "what has left is cleared away");
    }

    #[test]
    fn members_leave_and_join_in_the_middle() {
        let mut line: Line<u32> = (0..5).collect();
        assert_eq!(line.pop(), Some(0));
        assert_eq!(line.remove(1), 2);
        line.insert(1, 9);
        line.insert(4, 7);
        assert_eq!(*line, [1, 9, 3, 4, 7]);
        line.retain(|&member| member != 3);
        assert_eq!(line, [1, 9, 4, 7].into_iter().collect());
        line.clear();
        assert_eq!(line.pop(), None);
    }
}

//! A long list in little room.

/// One in so many of what comes: each at first; whenever the list is full, every second one leaves and half as many are kept from then on.
#[derive(Clone, Debug)]
pub(super) struct Thinned<T> {
    kept: Vec<T>,
    most: usize,
    spacing: u32,
    seen: u32,
}

impl<T> Thinned<T> {
    /// A list of fewer than `most`, an even number.
    pub(super) fn new(most: usize) -> Self {
        Self {
            kept: Vec::new(),
            most,
            spacing: 1,
            seen: 0,
        }
    }

    /// With room for so many from the start, if that many are kept.
    pub(super) fn with_capacity(self, expected: usize) -> Self {
        let kept = Vec::with_capacity(expected.min(self.most));
        Self { kept, ..self }
    }

    /// One more comes, which is made only if it is kept.
    #[inline]
    pub(super) fn push(&mut self, make: impl FnOnce() -> T) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.spacing) {
            return;
        }
        self.kept.push(make());
        if self.kept.len() >= self.most {
            self.thin_out();
        }
    }

    #[cold]
    fn thin_out(&mut self) {
        let mut is_second = true;
        self.kept.retain(|_| {
            is_second = !is_second;
            is_second
        });
        self.spacing *= 2;
    }

    /// How many came.
    pub(super) fn seen(&self) -> u32 {
        self.seen
    }

    /// Those that are kept, in order.
    pub(super) fn into_kept(self) -> Vec<T> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_evenly_spaced_and_never_much() {
        let mut list = Thinned::new(8).with_capacity(1_000);
        for i in 1..=7 {
            list.push(|| i);
        }
        assert_eq!(list.clone().into_kept(), [1, 2, 3, 4, 5, 6, 7]);
        list.push(|| 8);
        assert_eq!(list.clone().into_kept(), [2, 4, 6, 8]);
        for i in 9..=100 {
            list.push(|| i);
        }
        assert_eq!(list.seen(), 100);
        assert!(list.kept.capacity() <= 8);
        assert_eq!(list.into_kept(), [16, 32, 48, 64, 80, 96]);
    }
}

//! Adjacency lists of a graph, in two allocations.

/// A list for each step, stored one after the other.
#[derive(Debug, Clone)]
pub(super) struct Lists<T> {
    ends: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl<T> Lists<T> {
    pub(super) fn with_capacity(lists: usize, items: usize) -> Self {
        Self {
            ends: Vec::with_capacity(lists),
            items: Vec::with_capacity(items),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn of(&self, step: u32) -> &[T] {
        let step = step as usize;
        let start = step.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.items[start as usize..self.ends[step] as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[T])> {
        (0..self.ends.len() as u32).map(|step| (step, self.of(step)))
    }

    /// Adds an item to the list that is being built.
    pub(super) fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// Ends the list that is being built.
    pub(super) fn end(&mut self) {
        self.ends.push(self.items.len() as u32);
    }

    /// Returns the list that is being built.
    pub(super) fn open(&self) -> &[T] {
        &self.items[self.open_from()..]
    }

    /// Returns the list that is being built, for changes.
    pub(super) fn open_mut(&mut self) -> &mut [T] {
        let from = self.open_from();
        &mut self.items[from..]
    }

    /// Keeps the items of the list that is being built for which `keep` holds.
    pub(super) fn retain_open(&mut self, keep: impl Fn(&T) -> bool) {
        let open = self.items.split_off(self.open_from());
        self.items.extend(open.into_iter().filter(keep));
    }

    fn open_from(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// Removes all but the first of equal neighbours in each list.
    pub(super) fn dedup(&mut self, same: impl Fn(&T, &T) -> bool)
    where
        T: Copy,
    {
        let mut kept = Self::with_capacity(self.len(), self.total());
        for (_, list) in self.iter() {
            for item in list {
                if !kept.open().last().is_some_and(|last| same(last, item)) {
                    kept.push(*item);
                }
            }
            kept.end();
        }
        *self = kept;
    }

    /// Returns the number of items in all lists.
    pub(super) fn total(&self) -> usize {
        self.items.len()
    }

    /// Returns the reversed lists: for each step, the items that name it, in the order of their lists.
    pub(super) fn reversed<U: Copy>(
        &self,
        names: impl Fn(&T) -> u32,
        seen: impl Fn(u32, &T) -> U,
    ) -> Lists<U> {
        let mut ends = vec![0_u32; self.len()];
        for item in &self.items {
            ends[names(item) as usize] += 1;
        }
        let mut next = Vec::with_capacity(ends.len());
        let mut total = 0;
        for end in &mut ends {
            next.push(total);
            total += *end;
            *end = total;
        }
        let mut items: Vec<U> = Vec::new();
        for (step, list) in self.iter() {
            for item in list {
                if items.is_empty() {
                    items = vec![seen(step, item); self.items.len()];
                }
                let at = &mut next[names(item) as usize];
                items[*at as usize] = seen(step, item);
                *at += 1;
            }
        }
        Lists { ends, items }
    }
}

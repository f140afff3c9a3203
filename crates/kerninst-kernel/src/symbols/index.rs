//! Finding symbols by name: a chained hash table, built on the first look-up.

/// Chains of symbol numbers, one chain for each slot.
pub(super) struct NameIndex {
    heads: Vec<u32>,
    next: Vec<u32>,
}

const NIL: u32 = u32::MAX;

impl NameIndex {
    /// Of `count` names in the order of their symbols.
    pub(super) fn new<'n>(count: usize, names: impl DoubleEndedIterator<Item = &'n str>) -> Self {
        let size = (count * 2).next_power_of_two().max(16);
        let mut heads = vec![NIL; size];
        let mut next = vec![NIL; count];
        // Backwards, so that each chain runs by rising address.
        for (i, name) in (0..count).rev().zip(names.rev()) {
            let slot = hash(name) as usize & (size - 1);
            if let (Some(head), Some(link)) = (heads.get_mut(slot), next.get_mut(i)) {
                *link = std::mem::replace(head, i as u32);
            }
        }
        Self { heads, next }
    }

    /// Symbols that may have this name, by rising number.
    pub(super) fn candidates(&self, name: &str) -> impl Iterator<Item = u32> + '_ {
        let first = self.heads.get(hash(name) as usize & (self.heads.len() - 1));
        let real = |i: &u32| *i != NIL;
        std::iter::successors(first.copied().filter(real), move |&i| {
            self.next.get(i as usize).copied().filter(real)
        })
    }
}

/// Looks at 24 bytes at most, a word at a time: the table over all names is built in one pass.
fn hash(name: &str) -> u32 {
    let name = name.as_bytes();
    let mixed = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            let middle = name
                .get(name.len() / 2 - 4..)
                .and_then(|m| m.first_chunk::<8>());
            u64::from_le_bytes(*first)
                ^ u64::from_le_bytes(*last).rotate_left(23)
                ^ u64::from_le_bytes(*middle.unwrap_or(first)).rotate_left(41)
        }
        _ => name.iter().fold(0, |h, &b| h << 8 | u64::from(b)),
    };
    let mixed = (mixed ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

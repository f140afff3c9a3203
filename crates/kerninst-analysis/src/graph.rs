//! Dominators and natural loops of one function.

/// The dominator tree of a function's blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dominators {
    /// Immediate dominator of every block; none for blocks that nothing but the (virtual) root dominates.
    pub idom: Vec<Option<u32>>,
}

/// A natural loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// The block that every round passes and that dominates the loop.
    pub header: u32,
    /// The blocks that jump back to the header.
    pub latches: Vec<u32>,
    /// All blocks of the loop, header included, sorted.
    pub blocks: Vec<u32>,
    /// Index (in the list of loops) of the innermost loop around this one.
    pub parent: Option<u32>,
    /// 1 for an outermost loop.
    pub depth: u32,
}

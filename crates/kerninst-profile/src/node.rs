//! The nodes of a flow graph.

use std::fmt;

/// A node: a block, or where visits come from and go to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// A block, by its index in [`kerninst_analysis::Function::blocks`].
    Block(u32),
    /// Outside, before a visit of the function.
    Entry,
    /// Outside, after it.
    Exit,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Block(n) => write!(f, "b{n}"),
            Node::Entry => f.write_str("entry"),
            Node::Exit => f.write_str("exit"),
        }
    }
}

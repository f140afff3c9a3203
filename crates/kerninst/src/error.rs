//! What can go wrong between a probe and its count.

use crate::owners::Conflict;
use kerninst_driver::{DeviceError, LoadError, ModuleError, NotClear, PokeError};

/// A probe that cannot be resolved in this kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No function of that name; similar ones are told.
    #[error("{probe}: there is no function {name}{}", suggestion(similar))]
    Unknown {
        /// The probe.
        probe: String,
        /// The name.
        name: String,
        /// Names that are nearly the same.
        similar: Vec<String>,
    },
    /// A glob that matches nothing.
    #[error("{probe}: no function matches {pattern}")]
    NoMatch {
        /// The probe.
        probe: String,
        /// The pattern.
        pattern: String,
    },
    /// Several functions have the name.
    #[error("{probe}: {} functions are called {name}: choose one of {}, or all with {name}#*", ids.len(), ids.join(", "))]
    Ambiguous {
        /// The probe.
        probe: String,
        /// The name.
        name: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// The name is that of data.
    #[error("{probe}: {name} is data, not a function")]
    Data {
        /// The probe.
        probe: String,
        /// The name.
        name: String,
    },
    /// No such module is loaded.
    #[error("{probe}: no module {module} is loaded")]
    Module {
        /// The probe.
        probe: String,
        /// The module.
        module: String,
    },
    /// The address or offset is outside of the function.
    #[error("{probe}: {function} is {size:#x} bytes long{}", last_insn(*last))]
    PastEnd {
        /// The probe.
        probe: String,
        /// The function.
        function: String,
        /// Its size.
        size: u64,
        /// Offset of its last instruction.
        last: Option<u64>,
    },
    /// No function has this address.
    #[error("{probe}: there is no kernel function at {addr:#x}")]
    NoFunction {
        /// The probe.
        probe: String,
        /// The address.
        addr: u64,
    },
    /// There is no such edge.
    #[error(
        "{probe}: no edge of {function} leads from block {from} to block {to}{}",
        leads_to(to_blocks)
    )]
    NoEdge {
        /// The probe.
        probe: String,
        /// The function.
        function: String,
        /// The block that it would leave.
        from: u32,
        /// The block that it would lead to.
        to: u32,
        /// Where that block's edges lead.
        to_blocks: Vec<u32>,
    },
    /// The function calls nobody of that name.
    #[error("{probe}: {function} has no call of {callee} that can be told before it runs{}",
        if *indirect > 0 { format!("; {indirect} of its calls go through pointers: call:{function}->* has them") } else { String::new() })]
    NoCall {
        /// The probe.
        probe: String,
        /// The function.
        function: String,
        /// The callee's name.
        callee: String,
        /// Calls through pointers.
        indirect: usize,
    },
    /// There are fewer blocks.
    #[error("{probe}: {function} has blocks 0 to {last}")]
    NoBlock {
        /// The probe.
        probe: String,
        /// The function.
        function: String,
        /// Its last block's number.
        last: usize,
    },
}

fn leads_to(blocks: &[u32]) -> String {
    match blocks {
        [] => String::new(),
        blocks => {
            let list: Vec<String> = blocks.iter().map(u32::to_string).collect();
            format!("; that block leads to {}", list.join(", "))
        }
    }
}

fn suggestion(similar: &[String]) -> String {
    if similar.is_empty() {
        String::new()
    } else {
        format!("; did you mean {}?", similar.join(", "))
    }
}

fn last_insn(last: Option<u64>) -> String {
    last.map_or(String::new(), |l| {
        format!("; its last instruction is at +{l:#x}")
    })
}

/// Why points were not armed. Nothing is armed then.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The driver cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The patch module cannot be built.
    #[error("the patch module cannot be built: {0}")]
    Build(String),
    /// The patch module cannot be loaded.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The sites cannot be written.
    #[error(transparent)]
    Poke(#[from] PokeError),
    /// The sites cannot be written, since somebody else has the place.
    #[error("nothing was armed: {0}")]
    Conflict(Conflict),
    /// A patch is out of reach of its site.
    #[error("the patch module was loaded out of reach of the kernel's text ({0})")]
    Reach(String),
    /// No point can be armed.
    #[error("none of the points can be instrumented")]
    Nothing,
}

/// What goes wrong in an armed session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The proof that code can be freed failed.
    #[error(transparent)]
    NotClear(#[from] NotClear),
    /// The bytes that points set cannot be read.
    #[error("what was executed cannot be read from the patch module: {0}")]
    Hits(String),
    /// What programs left in memory cannot be read, or changed.
    #[error("{0}")]
    Data(String),
    /// A point that was executed cannot be taken out.
    #[error("a point that was executed cannot be taken out: {0}")]
    TakeOut(String),
}

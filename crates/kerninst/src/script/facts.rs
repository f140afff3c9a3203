//! What programs need to know of the running kernel.

use super::ScriptError;
use kerninst_analysis::{Analysis, InsnKind};
use kerninst_driver::abi;
use kerninst_lang::layout::{Callouts, Facts};

/// The facts of the kernel that is analysed. `callouts`: those of the driver, none if nothing is to be run; `started`: the monotonic clock now, ns.
pub(crate) fn facts(
    analysis: &Analysis<'_>,
    callouts: &abi::Callouts,
    started: u64,
) -> Result<Facts, ScriptError> {
    let kernel = analysis.kernel();
    let btf = kernel.btf();
    let offset = |member: &str| {
        let found = btf.and_then(|b| b.offset("task_struct", member));
        let found = found.and_then(|o| i32::try_from(o).ok());
        found.ok_or_else(|| {
            ScriptError::Missing(format!("member {member} of struct task_struct in BTF"))
        })
    };
    Ok(Facts {
        current: kerninst_driver::current_task(kernel).map_err(ScriptError::Missing)?,
        cpu_number: kerninst_driver::cpu_number(kernel).map_err(ScriptError::Missing)?,
        pid: offset("pid")?,
        tgid: offset("tgid")?,
        comm: offset("comm")?,
        returns: returns(analysis),
        started,
        callouts: Callouts {
            time: callouts.time,
            text: callouts.str,
            bytes: callouts.mem,
            kernel_stack: callouts.kstack,
            user_stack: callouts.ustack,
        },
    })
}

/// A return of the core kernel, as the kernel's mitigations have it (`__x86_return_thunk` itself is for returns that were not
/// patched, and warns: arch/x86/kernel/cpu/bugs.c, `__warn_thunk`). Of a function that hardly anybody probes; 0: none is found.
fn returns(analysis: &Analysis<'_>) -> u64 {
    const FUNCTIONS: [&str; 4] = ["__static_call_return0", "capable", "kfree_const", "up_read"];
    let symbols = analysis.kernel().symbols();
    let of = |name: &str| {
        let function = analysis.function_at(symbols.addr_of(name)?)?;
        let mut insns = function.insns.iter();
        let found = insns.find(|i| i.kind == InsnKind::Return)?.addr;
        Some(found)
    };
    FUNCTIONS.into_iter().find_map(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use kerninst_driver::abi::callout as driver;
    use kerninst_lang::layout::callout as lang;

    /// Would catch a code that means one thing to the driver and another to programs.
    #[test]
    fn codes_of_callouts_are_the_drivers() {
        assert_eq!(lang::NESTED, driver::RECURSION);
        assert_eq!(lang::FAULT, driver::FAULT);
        assert_eq!(lang::FULL, driver::NO_SPACE);
        assert_eq!(lang::NONE, driver::NONE);
    }
}

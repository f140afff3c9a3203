//! Arguments of calls.

use super::Select;
use crate::Reg;
use crate::alloc::argument;
use crate::insns::Rm;
use crate::ir::Val;

impl Select<'_> {
    /// All arguments to their registers at once: none is overwritten before it is read.
    pub(super) fn arguments(&mut self, args: &[Val]) {
        let args = args.iter().enumerate();
        let mut rest: Vec<(Reg, Val, Option<Reg>)> = args
            .filter_map(|(n, val)| {
                let from = match val {
                    Val::V(v) => match self.rm(*v) {
                        Rm::Reg(r) => Some(r),
                        Rm::Mem(_) => None,
                    },
                    Val::Imm(_) => None,
                };
                Some((argument(n)?, *val, from))
            })
            .filter(|(to, _, from)| Some(*to) != *from)
            .collect();
        while !rest.is_empty() {
            let read = |to: Reg| rest.iter().any(|(_, _, from)| *from == Some(to));
            match rest.iter().position(|(to, _, _)| !read(*to)) {
                Some(ready) => {
                    let (to, val, from) = rest.swap_remove(ready);
                    match from {
                        Some(from) => self.asm.mov(to, Rm::Reg(from)),
                        None => self.put(to, val),
                    }
                }
                None => {
                    // A circle: all that is left are registers.
                    let Some((to, _, Some(from))) = rest.pop() else {
                        break;
                    };
                    self.asm.xchg(to, from);
                    for (_, _, source) in &mut rest {
                        if *source == Some(to) {
                            *source = Some(from);
                        } else if *source == Some(from) {
                            *source = Some(to);
                        }
                    }
                    rest.retain(|(to, _, from)| Some(*to) != *from);
                }
            }
        }
    }
}

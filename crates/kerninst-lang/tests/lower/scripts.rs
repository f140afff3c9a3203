//! The checker's own good scripts: what it lets through is lowered, to valid programs that end, whatever is in memory.

use kerninst_lang::hir::On;
use kerninst_lang::lower::{At, Callee, Events, Session, lower};
use kerninst_lang::{Options, check, parse};
use kerninst_snippet::{Features, Free, compile};

use crate::hir::{args, entry};
use crate::kernel::Kernel;
use crate::sim::*;

const GOOD: &str = include_str!("../checker/good.txt");

/// What the point of a probe gives.
fn point(text: &str) -> At {
    let kind = text
        .split(':')
        .find(|k| ["entry", "exit", "call", "insn"].contains(k));
    let inside = At {
        entry: false,
        ..entry()
    };
    match kind {
        Some("entry") => entry(),
        Some("exit") => At {
            exit: true,
            ..inside
        },
        Some("call") => At {
            callee: Some(Callee::Reg(0)),
            ..inside
        },
        Some("insn") => At {
            next: Some(4096),
            ..inside
        },
        _ => inside,
    }
}

#[test]
fn what_is_checked_can_be_run() {
    let kernel = Kernel::new();
    let mut programs = 0;
    for script in GOOD.split("### ").skip(1) {
        let (title, source) = script.split_once('\n').unwrap();
        let options = Options {
            allow_unsafe: title.contains("unsafe"),
            params: ["42", "cat", "-7", "0x10"].map(String::from).into(),
        };
        let parsed = parse(source)
            .unwrap_or_else(|d| panic!("{title}: {}", d[0].render(source, "x", false)));
        let checked = check(&parsed, &kernel, &options).unwrap();
        let (facts, places) = (facts(), places(&checked, 64, 1 << 12));
        let session = Session {
            script: &checked,
            places: &places,
            facts: &facts,
            only: None,
        };
        let mut events = Events::default();
        for clause in &checked.clauses {
            let probes = clause.on.iter().filter_map(|on| match on {
                On::Probe { text, .. } => Some(text),
                _ => None,
            });
            for text in probes {
                let program = lower(&session, clause, &point(text), &mut events)
                    .unwrap_or_else(|e| panic!("{title}, {text}: {e}"));
                crate::valid::check(&program);
                let snippet = [kerninst_snippet::Snippet::Program(program.clone().into())];
                let code = compile(&snippet, Free::NOTHING, Features::default());
                assert!(
                    program.body.ops.is_empty() || !code.bytes.is_empty(),
                    "{text}"
                );
                let mut world = World::new(&checked, &places, 9);
                world.nested = programs % 4;
                let all = [
                    args(&[]),
                    args(&[0xffff_8880_0000_0000, 0, 1 << 63, 7, 8, 9]),
                ];
                run_alone(world, &program, &all);
                programs += 1;
            }
        }
    }
    assert!(programs > 30, "{programs}");
}

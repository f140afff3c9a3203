//! What the checker accepts can be lowered at every point that its probes can mean, and what runs in user space can run there.

use super::*;
use kerninst_lang::hir::{On, Script};
use kerninst_lang::layout::{Callouts, Facts, MapPlace, Places, RingPlace};
use kerninst_lang::lower::{At, Callee, Events, Session, lower};

fn places(script: &Script) -> Places {
    let map = MapPlace {
        table: 0xffff_8880_0000_0000,
        capacity: 1024,
        cells: 64,
    };
    Places {
        maps: vec![map; script.maps.len()],
        ring: RingPlace {
            area: 0xffff_8880_1000_0000,
            buffers: 4096,
            bytes: 1 << 16,
            cpus: 2,
        },
        losses: [8, 16, 24, 32, 40, 48],
        stacks: 0xffff_8880_2000_0000,
    }
}

fn facts() -> Facts {
    Facts {
        current: 8,
        cpu_number: 16,
        pid: 0x100,
        tgid: 0x104,
        comm: 0x200,
        returns: 0xffff_ffff_8100_0000,
        started: 1,
        callouts: Callouts {
            time: 1,
            text: 2,
            bytes: 3,
            kernel_stack: 4,
            user_stack: 5,
        },
    }
}

/// Whether the checker takes the script. If so, so must all that comes after it.
fn lowers(source: &str, options: &Options) -> bool {
    let Ok(script) = parse(source) else {
        return false;
    };
    let (Some(script), _) = check_all(&script, &kernel::Kernel::new(), options) else {
        return false;
    };
    let (places, facts) = (places(&script), facts());
    let session = Session {
        script: &script,
        places: &places,
        facts: &facts,
        only: Some(5),
    };
    for clause in &script.clauses {
        let allowed = kerninst_lang::world::allowed(clause);
        assert_eq!(allowed, Ok(()), "{source}");
        for on in &clause.on {
            let On::Probe { text, .. } = on else { continue };
            let at = At {
                entry: text.starts_with("entry"),
                exit: text.starts_with("exit"),
                callee: text.starts_with("call").then_some(Callee::Reg(0)),
                next: text.starts_with("insn").then_some(4),
                ..At::default()
            };
            if let Err(e) = lower(&session, clause, &at, &mut Events::default()) {
                panic!("{e}: {source}");
            }
        }
    }
    true
}

/// Would catch an expression that the checker builds and lowering does not know.
#[test]
fn good_scripts_are_lowered() {
    for (title, source) in scripts(GOOD) {
        assert!(lowers(source, &options(title)), "{title}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The same for scripts that nobody thought of.
    #[test]
    fn accepted_mutations_are_lowered(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        what in 0..3u8,
    ) {
        let all: Vec<&str> = scripts(GOOD).map(|s| s.1).collect();
        let mut words = words(all[which.index(all.len())]);
        let pool = words_of_all(&all);
        let (at, new) = (at.index(words.len()), pool[other.index(pool.len())].clone());
        match what {
            0 => drop(words.remove(at)),
            1 => words.insert(at, new),
            _ => words[at] = new,
        }
        lowers(&words.concat(), &options("unsafe"));
    }
}

//! Prints what `kerninst-kernel` knows of a kernel: `dump live|FILE [symbols|text|tables|TABLE|modules|limits|pointers|time]`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use kerninst_kernel::{Error, Kernel, Tables};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(source), what) = (args.next(), args.next()) else {
        eprintln!("usage: dump live|FILE [symbols|text|tables|TABLE|modules|limits|pointers|time]");
        return ExitCode::from(2);
    };
    match run(&source, what.as_deref().unwrap_or("time")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("dump: {e}");
            ExitCode::FAILURE
        }
    }
}

fn open(source: &str) -> Result<Kernel, Error> {
    if source == "live" {
        Kernel::live()
    } else {
        Kernel::from_file(Path::new(source))
    }
}

fn run(source: &str, what: &str) -> Result<(), Error> {
    let start = Instant::now();
    let kernel = open(source)?;
    let opened = start.elapsed();
    for remark in kernel.remarks() {
        eprintln!("remark: {remark}");
    }
    match what {
        "symbols" => {
            for s in kernel.symbols().iter() {
                println!(
                    "{:016x} {} {} {:?}",
                    s.addr,
                    s.letter() as char,
                    s.id(),
                    s.size
                );
            }
        }
        "text" => {
            for t in kernel.text() {
                let sum = t.bytes.iter().fold(0u64, |h, &b| {
                    (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
                });
                println!(
                    "{:016x}..{:016x} {:?} init {} hash {sum:016x}",
                    t.start,
                    t.end(),
                    t.module,
                    t.init
                );
            }
        }
        "modules" => {
            for m in kernel.modules() {
                println!(
                    "{m:?}\n  build id {:?}\n  sections {:?}",
                    m.build_id(),
                    m.sections()
                );
            }
        }
        "limits" => {
            for r in kernel.off_limits().ranges() {
                let name = kernel
                    .symbols()
                    .containing(r.range.start)
                    .map(|(s, o)| format!("{}+{o:#x}", s.name));
                println!(
                    "{:016x}..{:016x} {:?} {}",
                    r.range.start,
                    r.range.end,
                    r.why,
                    name.unwrap_or_default()
                );
            }
            kernel
                .off_limits()
                .missing()
                .iter()
                .for_each(|m| println!("missing: {m}"));
        }
        "pointers" => {
            for &p in kernel.code_pointers() {
                let name = kernel.symbols().containing(p);
                println!(
                    "{p:016x} {}",
                    name.map(|(s, o)| format!("{}+{o:#x}", s.id()))
                        .unwrap_or_default()
                );
            }
        }
        "tables" => {
            for (name, len, _) in list(kernel.tables()) {
                println!("{name} {len}");
            }
            for m in &kernel.tables().missing {
                println!("missing {} of {:?}: {}", m.table, m.module, m.reason);
            }
        }
        "time" => time(&kernel, opened),
        name => match list(kernel.tables()).into_iter().find(|t| t.0 == name) {
            Some((_, _, dump)) => print!("{}", dump()),
            None => eprintln!("no table {name}"),
        },
    }
    Ok(())
}

type Listed<'t> = (&'static str, usize, Box<dyn Fn() -> String + 't>);

fn list(t: &Tables) -> Vec<Listed<'_>> {
    vec![
        ("extable", t.extable.len(), Box::new(|| t.extable.dump())),
        ("bugs", t.bugs.len(), Box::new(|| t.bugs.dump())),
        (
            "jump_labels",
            t.jump_labels.len(),
            Box::new(|| t.jump_labels.dump()),
        ),
        (
            "static_calls",
            t.static_calls.len(),
            Box::new(|| t.static_calls.dump()),
        ),
        ("orc", t.orc.len(), Box::new(|| t.orc.dump())),
        ("fentry", t.fentry.len(), Box::new(|| t.fentry.dump())),
        (
            "retpolines",
            t.retpolines.len(),
            Box::new(|| t.retpolines.dump()),
        ),
        ("returns", t.returns.len(), Box::new(|| t.returns.dump())),
        (
            "alternatives",
            t.alternatives.len(),
            Box::new(|| t.alternatives.dump()),
        ),
        ("paravirt", t.paravirt.len(), Box::new(|| t.paravirt.dump())),
        (
            "endbr_seals",
            t.endbr_seals.len(),
            Box::new(|| t.endbr_seals.dump()),
        ),
        (
            "smp_locks",
            t.smp_locks.len(),
            Box::new(|| t.smp_locks.dump()),
        ),
        (
            "call_sites",
            t.call_sites.len(),
            Box::new(|| t.call_sites.dump()),
        ),
    ]
}

fn time(kernel: &Kernel, opened: std::time::Duration) {
    println!("release {:?}", kernel.release());
    println!("build id {:02x?}", kernel.build_id());
    println!("vermagic {:?}", kernel.vermagic());
    println!("module_layout {:x?}", kernel.symbol_crc("module_layout"));
    println!(
        "struct module {:?}",
        kernel.btf().and_then(|b| b.struct_size("module"))
    );
    println!(
        "{} symbols, {} modules; opened in {opened:.1?}",
        kernel.symbols().len(),
        kernel.modules().len()
    );
    let step = |name: &str, work: &dyn Fn() -> usize| {
        let start = Instant::now();
        let n = work();
        println!("{name}: {n} in {:.1?}", start.elapsed());
    };
    step("name index", &|| kernel.symbols().named("vfs_read").len());
    step("text", &|| {
        kernel.text().iter().map(|t| t.bytes.len()).sum()
    });
    step("tables", &|| kernel.tables().missing.len());
    step("extable", &|| kernel.tables().extable.len());
    step("bugs", &|| kernel.tables().bugs.len());
    step("jump labels", &|| kernel.tables().jump_labels.len());
    step("static calls", &|| kernel.tables().static_calls.len());
    step("orc", &|| kernel.tables().orc.len());
    step("fentry", &|| kernel.tables().fentry.len());
    step("code pointers", &|| kernel.code_pointers().len());
    step("off limits", &|| kernel.off_limits().ranges().len());
}

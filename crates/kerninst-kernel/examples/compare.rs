//! Compares the running kernel with its own file: `compare VMLINUZ`. For a lab guest, as root. Prints one line for each subject
//! and exits with 1 when something differs that must not: symbols against `/proc/kallsyms`; tables, after the KASLR slide,
//! against those in the file.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;

use kerninst_kernel::{Entry, Error, Kernel, Symbols, SymbolsBuilder};

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: compare VMLINUZ");
        return ExitCode::from(2);
    };
    match run(Path::new(&file)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(n) => {
            println!("{n} subjects differ");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("compare: {e}");
            ExitCode::from(3)
        }
    }
}

fn run(path: &Path) -> Result<u32, Error> {
    let live = Kernel::live()?;
    let file = Kernel::from_file(path)?;
    let base = |k: &Kernel| k.symbols().addr_of("_text").unwrap_or(0);
    let slide = base(&live).wrapping_sub(base(&file));
    println!("slide {slide:#x}; remarks {:?}", live.remarks());
    let mut bad = 0;
    let core = |k: &Kernel| base(k)..k.symbols().addr_of("_end").unwrap_or(u64::MAX);
    let mut say = |what: &str, good: bool, detail: String| {
        println!(
            "{} {what}: {detail}",
            if good { "same" } else { "DIFFERENT" }
        );
        bad += u32::from(!good);
    };
    say(
        "release",
        live.release() == file.release(),
        format!("{:?} {:?}", live.release(), file.release()),
    );
    say(
        "build id",
        live.build_id() == file.build_id(),
        String::new(),
    );
    say(
        "vermagic",
        live.vermagic() == file.vermagic(),
        format!("{:?}", live.vermagic()),
    );
    let crc = live.symbol_crc("module_layout");
    say(
        "module_layout",
        crc.is_some() && crc == file.symbol_crc("module_layout"),
        format!("{crc:x?}"),
    );

    let proc = proc_kallsyms();
    let ours = set(live.symbols());
    let theirs = set(&proc);
    let (more, less): (Vec<_>, Vec<_>) = (
        ours.difference(&theirs).collect(),
        theirs.difference(&ours).collect(),
    );
    // Code made at run time (BPF programs, ftrace trampolines) is only in /proc/kallsyms, as are init symbols of a module.
    let less: Vec<_> = less
        .into_iter()
        .filter(|s| !s.contains("__builtin__") && !s.ends_with(" bpf"))
        .collect();
    let detail = format!(
        "{} ours, {} in /proc; only ours {more:?}; only /proc {less:?}",
        ours.len(),
        theirs.len()
    );
    say("symbols", more.is_empty() && less.is_empty(), cut(detail));

    let image = base(&live)..live.symbols().addr_of("_end").unwrap_or(u64::MAX);
    macro_rules! table {
        ($name:ident, $($field:ident),+) => {{
            // Entries of init text are dropped or kept, by kernel version; the file has them all.
            let init = |a: u64| file.off_limits().at(a) == Some(kerninst_kernel::OffLimit::Init);
            let of_file: HashSet<_> = file.tables().$name.entries().iter()
                .filter(|e| !init(e.addr()))
                .map(|e| ($(e.$field,)+)).collect();
            let of_live: HashSet<_> = live.tables().$name.entries().iter()
                .filter(|e| image.contains(&e.addr()))
                .map(|e| { let mut e = e.clone(); $(slid(&mut e.$field, slide);)+ e })
                .filter(|e| !init(e.addr()))
                .map(|e| ($(e.$field,)+)).collect();
            let more: Vec<_> = of_live.difference(&of_file).take(3).collect();
            let less: Vec<_> = of_file.difference(&of_live).take(3).collect();
            let all = live.tables().$name.len();
            let detail = format!("{} core of {all}, {} in file; only live {more:x?}; only file {less:x?}", of_live.len(), of_file.len());
            say(stringify!($name), more.is_empty() && less.is_empty() && !of_live.is_empty(), cut(detail));
        }};
    }
    table!(extable, insn, fixup, data);
    table!(bugs, addr, file, line);
    table!(jump_labels, code, target);
    table!(static_calls, addr, tail);
    table!(fentry, addr);
    let orc = |k: &Kernel, slide: u64| -> Vec<_> {
        let in_image = k
            .tables()
            .orc
            .entries()
            .iter()
            .filter(|e| core(k).contains(&e.ip));
        in_image
            .map(|e| (e.ip.wrapping_sub(slide), e.raw))
            .collect()
    };
    let (a, b) = (orc(&live, slide), orc(&file, 0));
    say(
        "orc",
        a == b && !a.is_empty(),
        format!("{} core of {}", a.len(), live.tables().orc.len()),
    );

    let limits = |k: &Kernel, slide: u64| -> Vec<_> {
        let core = k
            .off_limits()
            .ranges()
            .iter()
            .filter(|r| core(k).contains(&r.range.start));
        core.filter(|r| r.why != kerninst_kernel::OffLimit::Init)
            .map(|r| {
                (
                    r.range.start.wrapping_sub(slide),
                    r.range.end.wrapping_sub(slide),
                    r.why,
                )
            })
            .collect()
    };
    let (a, b) = (limits(&live, slide), limits(&file, 0));
    type Limit = (u64, u64, kerninst_kernel::OffLimit);
    let only = |a: &[Limit], b: &[Limit]| -> Vec<String> {
        let only = a.iter().filter(|r| !b.contains(r)).take(6);
        only.map(|r| format!("{:x}..{:x} {:?}", r.0, r.1, r.2))
            .collect()
    };
    say(
        "off limits",
        a == b,
        cut(format!(
            "{} live, {} file; only live {:?}; only file {:?}; {:?}",
            a.len(),
            b.len(),
            only(&a, &b),
            only(&b, &a),
            live.off_limits().missing()
        )),
    );

    let (t, f) = (&live.text()[0], &file.text()[0]);
    let changed = t.bytes.iter().zip(&f.bytes).filter(|(a, b)| a != b).count();
    let good = t.bytes.len() == f.bytes.len() && changed * 10 < t.bytes.len();
    say(
        "text",
        good,
        format!("{} bytes, {changed} changed at boot", t.bytes.len()),
    );
    Ok(bad)
}

fn cut(mut s: String) -> String {
    s.truncate(1500);
    s
}

fn set(symbols: &Symbols) -> HashSet<String> {
    symbols
        .iter()
        .map(|s| format!("{:x} {} {}", s.addr, s.name, s.module.unwrap_or("-")))
        .collect()
}

fn proc_kallsyms() -> Symbols {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut out = SymbolsBuilder::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(addr), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let module = words.next().map(|m| m.trim_matches(['[', ']']));
        out.add(
            name,
            u64::from_str_radix(addr, 16).unwrap_or(0),
            None,
            b't',
            module,
        );
    }
    out.build()
}

/// Takes the slide out of what is an address.
trait Slid {
    fn slid(&mut self, slide: u64);
}
impl Slid for u64 {
    fn slid(&mut self, slide: u64) {
        if *self >= 0xffff_ffff_8000_0000 {
            *self = self.wrapping_sub(slide);
        }
    }
}
impl Slid for u32 {
    fn slid(&mut self, _: u64) {}
}
impl Slid for u16 {
    fn slid(&mut self, _: u64) {}
}
impl Slid for bool {
    fn slid(&mut self, _: u64) {}
}
fn slid(value: &mut impl Slid, slide: u64) {
    value.slid(slide);
}

//! Scripts and what is understood of them; wrong scripts and what is said about them.
//!
//! `good.txt` and `wrong.txt` hold scripts, each after a line `### TITLE`; a title's `unsafe` allows what is unsafe. What comes
//! out is in `good.golden` and `wrong.golden` (`UPDATE_EXPECT=1` writes them).

mod kernel;
mod lowered;

use expect_test::expect_file;
use kerninst_lang::{Options, check_all, parse};
use proptest::prelude::*;
use std::fmt::Write as _;

const GOOD: &str = include_str!("good.txt");
const WRONG: &str = include_str!("wrong.txt");

fn scripts(all: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = all.split("### ").skip(1);
    parts.map(|p| p.split_once('\n').expect("a title and a script"))
}

fn options(title: &str) -> Options {
    Options {
        allow_unsafe: title.contains("unsafe"),
        params: ["42", "cat", "-7", "0x10"].map(String::from).into(),
    }
}

/// Would catch a script that is understood as something else than what it says: types, conversions, offsets, kinds of maps.
#[test]
fn good_scripts() {
    let kernel = kernel::Kernel::new();
    let mut out = String::new();
    let mut failed = Vec::new();
    for (title, source) in scripts(GOOD) {
        let _ = writeln!(out, "### {title}");
        let script = match parse(source) {
            Ok(script) => script,
            Err(d) => panic!("{title}: {}", d[0].render(source, "x", false)),
        };
        let (checked, diagnostics) = check_all(&script, &kernel, &options(title));
        for d in &diagnostics {
            out.push_str(&d.render(source, "x.ki", false));
        }
        match checked {
            Some(checked) => drop(write!(out, "{checked}")),
            None => failed.push(title),
        }
    }
    expect_file!["good.golden"].assert_eq(&out);
    assert!(failed.is_empty(), "{failed:?}");
}

/// Would catch an error that is not found, found at another place, or does not help.
#[test]
fn wrong_scripts() {
    let kernel = kernel::Kernel::new();
    let mut out = String::new();
    for (title, source) in scripts(WRONG) {
        let _ = writeln!(out, "### {title}");
        let found = match parse(source) {
            Err(found) => found,
            Ok(script) => {
                let (checked, found) = check_all(&script, &kernel, &options(title));
                assert!(checked.is_none(), "{title}: no error");
                found
            }
        };
        for d in found {
            out.push_str(&d.render(source, "x.ki", false));
        }
    }
    expect_file!["wrong.golden"].assert_eq(&out);
}

/// Would catch a place in the source that is not in it, and escapes that are not closed.
#[test]
fn rendering() {
    let source = "entry:f {\n\tprintf(\"é%d\", $x, );\r\n}";
    let d = &parse(source).unwrap_err()[0];
    let coloured = d.render(source, "a.ki", true);
    assert!(coloured.contains("\x1b[1;31merror\x1b[0m"), "{coloured}");
    assert!(d.render("", "a.ki", false).contains("a.ki:1:1"));
    assert!(d.render(source, "a.ki", false).contains("a.ki:2:20"));
}

/// Would catch memory, time or stack that a long script takes without end, and a limit that is not said.
#[test]
fn large_scripts() {
    let kernel = kernel::Kernel::new();
    let said = |source: String, what: &str| {
        let found = match parse(&source) {
            Ok(script) => check_all(&script, &kernel, &Options::default()).1,
            Err(found) => found,
        };
        let errors: Vec<&str> = found.iter().map(|d| d.message.as_str()).collect();
        assert!(
            errors.iter().any(|e| e.contains(what)),
            "{what}: {errors:?}"
        );
        assert!(errors.len() <= 60, "{}", errors.len());
    };
    let many = |form: fn(usize) -> String| (0..30_000).map(form).collect::<String>();
    let body = |text: String| format!("entry:vfs_read {{ {text} }}");
    let clause =
        "entry:vfs_read { @a[pid, comm] = sum(args.count + 1); if (pid) { $x = comm; } }\n";
    said(clause.repeat(2000), "more than 512 clauses");
    said(
        format!("entry:a{} {{ }}", many(|n| format!(",entry:f{n}"))),
        "more than 2048 probes",
    );
    said(body(many(|n| format!("@a{n} = 1;"))), "more than 256 maps");
    said(
        body(many(|n| format!("$a{n} = 1;"))),
        "more than 256 variables",
    );
    said(
        body(many(|n| format!("$a = unknown{n};"))),
        "nothing called `unknown0`",
    );
    said(
        body(many(|n| format!("$a = args.unknown{n};"))),
        "no argument `unknown0`",
    );
    said(body("$x = 1;".repeat(100_000)), "too large");
    said(
        body(format!("printf(\"x\"{})", ", 1".repeat(100_000))),
        "at most 64 arguments",
    );
    said(body("$x = 1;".repeat(200_000)), "longer than 1 MiB");
    said("}".repeat(100_000), "closes nothing");
}

/// Would catch recursion of the checker that needs more stack than a thread has.
#[test]
fn deep_scripts() {
    let deep = [
        format!("$x = {}pid", "- ".repeat(95)),
        format!("$x = pid{}", " + pid".repeat(95)),
        format!("$x = {}pid{}", "(1 ? 2 : ".repeat(45), ")".repeat(45)),
        format!("$x = curtask{}->pid", "->parent".repeat(90)),
        format!("@a = {}1{}", "@b[".repeat(90), "]".repeat(90)),
        format!("{}$x = 1;{}", "if (1) {".repeat(31), "}".repeat(31)),
        format!("if (1) {{ }} {}", "else if (1) { }".repeat(28)),
    ];
    let kernel = kernel::Kernel::new();
    for body in deep {
        let script = parse(&format!("entry:f {{ @b[1] = 1; {body} }}")).expect(&body);
        let (checked, found) = check_all(&script, &kernel, &Options::default());
        let script = checked.unwrap_or_else(|| panic!("{body}: {}", found[0].message));
        assert!(script.to_string().len() > 100);
    }
}

fn fuzz(source: &str) {
    let found = match parse(source) {
        Ok(script) => check_all(&script, &kernel::Kernel::new(), &options("")).1,
        Err(found) => found,
    };
    for d in found {
        let _ = d.render(source, "x", true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Would catch a panic on scripts that are nearly right.
    #[test]
    fn mutated_scripts(
        which in any::<prop::sample::Index>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4u8), 1..8),
    ) {
        let all: Vec<&str> = scripts(GOOD).chain(scripts(WRONG)).map(|s| s.1).collect();
        let mut words: Vec<String> = words(all[which.index(all.len())]);
        let pool = words_of_all(&all);
        for (at, other, what) in edits {
            if words.is_empty() {
                break;
            }
            let at = at.index(words.len());
            match what {
                0 => { words.remove(at); }
                1 => words.insert(at, pool[other.index(pool.len())].clone()),
                2 => words[at] = pool[other.index(pool.len())].clone(),
                _ => { let other = other.index(words.len()); words.swap(at, other); }
            }
        }
        fuzz(&words.concat());
    }
}

/// Words, signs and blanks.
fn words(source: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = false;
    for c in source.chars() {
        let word = c.is_alphanumeric() || c == '_';
        match words.last_mut() {
            Some(w) if word && last => w.push(c),
            _ => words.push(c.to_string()),
        }
        last = word;
    }
    words
}

fn words_of_all(all: &[&str]) -> Vec<String> {
    all.iter().flat_map(|s| words(s)).collect()
}

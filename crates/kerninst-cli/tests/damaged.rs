//! Profile files that are damaged: a sentence that names the file, exit code 2, no output; never a panic, and never half of it.

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::debug;
use common::walk::{ALPHA_WALKS, counted};
use kerninst_cli::cover::{CoverArgs, CoverVerb, DiffArgs, MergeArgs, cover, run as verb};
use proptest::prelude::*;
use serde_json::Value;

/// A directory of this test's own.
fn scratch() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("kerninst-damaged-{number}-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).expect("a directory for temporary files");
    dir
}

/// Writes a good profile, and the debug information that fits it; the profile's text.
fn prepare(dir: &Path) -> String {
    let args = CoverArgs {
        functions: vec!["alpha".into(), "mod:helper".into()],
        output: Some(dir.join("good")),
        ..CoverArgs::default()
    };
    let kernel = common::kernel();
    common::capture(|ui| {
        cover(&kernel, &args, ui, &mut |analysis, targets, _| {
            Ok(counted(analysis, targets, ALPHA_WALKS))
        })
    });
    let text = std::fs::read_to_string(dir.join("good")).expect("it was written");
    let text = text.replace("\"build_id\":\"\"", "\"build_id\":\"0102030405\"");
    std::fs::write(dir.join("good"), &text).expect("a temporary file");
    let vmlinux = debug::vmlinux(&[1, 2, 3, 4, 5]);
    std::fs::write(dir.join("vmlinux"), vmlinux).expect("a temporary file");
    text
}

/// What every verb that takes a profile says of this one.
fn all_verbs(dir: &Path, profile: &[u8]) -> Vec<(&'static str, String)> {
    let bad = dir.join("bad");
    std::fs::write(&bad, profile).expect("a temporary file");
    let _ = std::fs::remove_file(dir.join("sum"));
    let good = dir.join("good");
    let merge = |one: &Path, other: &Path| CoverArgs {
        verb: Some(CoverVerb::Merge(MergeArgs {
            profiles: vec![one.into(), other.into()],
            output: dir.join("sum"),
        })),
        ..CoverArgs::default()
    };
    let diff = |old: &Path, new: &Path, json| CoverArgs {
        verb: Some(CoverVerb::Diff(DiffArgs {
            old: old.into(),
            new: new.into(),
            json,
        })),
        ..CoverArgs::default()
    };
    let read = || CoverArgs {
        read: Some(bad.clone()),
        uncovered: true,
        each: true,
        ..CoverArgs::default()
    };
    let lcov = CoverArgs {
        lcov: Some(dir.join("info")),
        vmlinux: vec![dir.join("vmlinux")],
        ..read()
    };
    let json = CoverArgs {
        json: true,
        ..read()
    };
    let verbs = [
        ("merge", merge(&good, &bad)),
        ("merge twice", merge(&bad, &bad)),
        ("diff", diff(&good, &bad, false)),
        ("diff back", diff(&bad, &good, true)),
        ("read", read()),
        ("read --json", json),
        ("read --lcov", lcov),
    ];
    verbs
        .into_iter()
        .map(|(name, args)| (name, common::capture(|ui| verb(&args, ui))))
        .collect()
}

/// Each verb refuses it with a sentence that names the file and has one of these words.
fn refused(dir: &Path, profile: &[u8], words: &[&str]) {
    for (name, told) in all_verbs(dir, profile) {
        let start = format!("exit 2: {}: ", dir.join("bad").display());
        assert!(
            told.starts_with(&start) && words.iter().any(|w| told.contains(w)),
            "{name}: {told}"
        );
    }
    assert!(!dir.join("sum").exists(), "half a sum");
    assert!(!dir.join("info").exists(), "half of the lines");
}

/// Would catch counts of half a file that are shown as those of the whole.
#[test]
fn cut_short_anywhere() {
    let dir = scratch();
    let text = prepare(&dir);
    let bytes = text.as_bytes();
    let mut cuts: Vec<usize> = (0..bytes.len()).step_by(37).collect();
    // The ends of the lines too, and what is just beside them.
    let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n');
    cuts.extend(
        ends.flat_map(|(n, _)| [n, n + 1])
            .filter(|n| *n < bytes.len()),
    );
    for cut in cuts {
        let words = ["no profile", "cut short"];
        refused(&dir, bytes.get(..cut).unwrap_or_default(), &words);
    }
    std::fs::remove_dir_all(dir).expect("it is ours");
}

#[test]
fn no_profile_at_all() {
    let dir = scratch();
    let text = prepare(&dir);
    let noise: Vec<u8> = (0..20_000u32).map(|n| ((n * 7919) >> 3) as u8).collect();
    let one_line = text.replace('\n', " ");
    let reversed: String = text.lines().rev().map(|l| format!("{l}\n")).collect();
    for bytes in [
        noise.as_slice(),
        &[0; 5000],
        b"\x7fELF",
        b"{}\n",
        b"[1,2,3]\n",
        b"{\"schema\":\"kerninst.profile/2\"}\n",
        one_line.as_bytes(),
        reversed.as_bytes(),
        &[b'['; 100_000],
    ] {
        refused(&dir, bytes, &["no profile"]);
    }
    refused(
        &dir,
        format!("{text}{text}").as_bytes(),
        &["damaged: there is more"],
    );
    let twice: Vec<&str> = text.lines().collect();
    let twice = [twice[0], twice[1], twice[1], twice[2], twice[3]].join("\n") + "\n";
    refused(
        &dir,
        twice.as_bytes(),
        &["damaged: the function is there twice"],
    );
    std::fs::remove_dir_all(dir).expect("it is ours");
}

/// All values in a value, depth first.
fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(count_values).sum(),
        Value::Object(all) => all.values().map(count_values).sum(),
        _ => 0,
    }
}

/// Changes the value of this number, in the same order.
fn change(value: &mut Value, number: &mut usize, with: &Change) {
    if *number == 0 {
        *number = usize::MAX;
        match with {
            Change::To(new) => *value = new.clone(),
            Change::Shorten => {
                if let Value::Array(all) = value {
                    all.pop();
                }
            }
            Change::Lengthen => {
                if let Value::Array(all) = value {
                    all.extend(all.last().cloned());
                }
            }
        }
        return;
    }
    *number = number.saturating_sub(1);
    let inner: Vec<&mut Value> = match value {
        Value::Array(all) => all.iter_mut().collect(),
        Value::Object(all) => all.values_mut().collect(),
        _ => return,
    };
    for one in inner {
        if *number == usize::MAX {
            return;
        }
        change(one, number, with);
    }
}

/// How a value is damaged.
#[derive(Debug, Clone)]
enum Change {
    To(Value),
    Shorten,
    Lengthen,
}

fn damage() -> impl Strategy<Value = Change> {
    let values = [
        "null",
        "true",
        "0",
        "1",
        "-1",
        "7",
        "2147483648",
        "4294967295",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "1e300",
        "-0.5",
        "\"\"",
        "\"é\\u0000\"",
        "\"0f\"",
        "\"4294967295f\"",
        "\"ffffffffffffffff\"",
        "[]",
        "{}",
        "[null]",
    ];
    let values = values.map(|v| Change::To(serde_json::from_str(v).expect("JSON")));
    prop_oneof![
        4 => prop::sample::select(values.to_vec()),
        1 => Just(Change::Shorten),
        1 => Just(Change::Lengthen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Would catch arithmetic on numbers of a file that wraps or panics, and indices that are taken on trust.
    #[test]
    fn any_value(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), damage()), 1..4)) {
        let dir = scratch();
        let text = prepare(&dir);
        let mut lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
        for (line, value, with) in &changes {
            let line = line.get_mut(&mut lines);
            let mut number = value.index(count_values(line));
            change(line, &mut number, with);
        }
        let bad: String = lines.iter().map(|l| format!("{l}\n")).collect();
        for (name, told) in all_verbs(&dir, bad.as_bytes()) {
            let end = told.lines().last().unwrap_or_default();
            let sentence = end.strip_prefix("exit 2: ").or(end.strip_prefix("exit 1: "));
            prop_assert!(sentence.is_none_or(|s| s.len() > 20), "{name}: {told}");
        }
        std::fs::remove_dir_all(dir).expect("it is ours");
    }

    #[test]
    fn any_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let dir = scratch();
        let mut bytes = prepare(&dir).into_bytes();
        for (at, byte) in &changes {
            *at.get_mut(&mut bytes) = *byte;
        }
        all_verbs(&dir, &bytes);
        std::fs::remove_dir_all(dir).expect("it is ours");
    }
}

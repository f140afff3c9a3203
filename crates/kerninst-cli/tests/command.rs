//! The built program: exit codes, messages, pipes, colour.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

fn kerninst(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kerninst"));
    command
        .args(args)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A wrong command line or input: exit code, nothing on stdout, and one sentence on stderr that has these words.
fn check(args: &[&str], code: i32, words: &[&str]) {
    let out = kerninst(args);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert!(err.starts_with("kerninst: "), "{args:?}: {err}");
    assert!(out.stdout.is_empty(), "{args:?}: {}", text(&out.stdout));
    for word in words {
        assert!(err.contains(word), "{args:?}: {word:?} is not in {err:?}");
    }
}

fn file(name: &str, bytes: &[u8]) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("the test's directory can be written");
    path.to_string_lossy().into_owned()
}

#[test]
fn wrong_command_lines() {
    check(&["frobnicate"], 2, &["frobnicate"]);
    check(&["show"], 2, &["FUNCTION"]);
    check(
        &["show", "a", "--json", "--svg"],
        2,
        &["cannot be used with"],
    );
    check(&["count"], 2, &["POINT"]);
    check(&["count", "entry:x", "-d", "soon"], 2, &["soon"]);
    check(
        &["count", "entry:x", "-d", "1", "--", "true"],
        2,
        &["cannot be used with"],
    );
    check(&["completions", "tcsh"], 2, &["tcsh", "bash"]);
    check(
        &["list", "--color", "sometimes"],
        2,
        &["sometimes", "never"],
    );
}

#[test]
fn wrong_probes() {
    let image = file("any", b"whatever");
    check(&["count", "vfs_read"], 2, &["entry:vfs_read"]);
    check(&["count", "bloc:vfs_read/*"], 2, &["bloc", "block"]);
    check(&["count", "insn:f+zz"], 2, &["zz"]);
    let output = ["count", "entry:f", "-o", "/nonexistent/counts"];
    check(&output, 2, &["cannot write /nonexistent/counts"]);
    check(&["count", "entry:f", "--image", &image], 2, &["--plan"]);
}

#[test]
fn wrong_images() {
    check(
        &["list", "--image", "/nonexistent/vmlinuz"],
        2,
        &["/nonexistent/vmlinuz"],
    );
    check(&["show", "x", "--image", "/"], 2, &["/"]);
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("garbage", &[0x5a; 70_000][..]),
        ("elf", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"),
    ] {
        let path = file(name, bytes);
        check(&["list", "--image", &path], 2, &[name]);
        check(
            &["count", "--plan", "entry:x", "--image", &path],
            2,
            &[name],
        );
    }
}

#[test]
fn help_and_version_are_results() {
    for args in [
        &["--help"][..],
        &["help"],
        &["-h"],
        &["list", "--help"],
        &["count", "-h"],
        &["--version"],
    ] {
        let out = kerninst(args);
        assert_eq!(out.status.code(), Some(0), "{args:?}");
        assert!(text(&out.stdout).contains("kerninst"), "{args:?}");
        assert!(out.stderr.is_empty());
        assert!(!text(&out.stdout).contains('\x1b'), "no colour in a pipe");
    }
    let out = kerninst(&[]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("Usage"));
}

#[test]
fn completions_and_manual() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let out = kerninst(&["completions", shell]);
        assert_eq!(out.status.code(), Some(0), "{shell}");
        for verb in ["list", "show", "count", "doctor"] {
            assert!(text(&out.stdout).contains(verb), "{shell}: {verb}");
        }
    }
    let out = kerninst(&["man"]);
    assert!(text(&out.stdout).contains(".TH"));
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("man");
    std::fs::create_dir_all(&dir).expect("a directory for pages");
    let out = kerninst(&["man", &dir.to_string_lossy()]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    for page in [
        "kerninst.1",
        "kerninst-list.1",
        "kerninst-show.1",
        "kerninst-count.1",
    ] {
        let page = std::fs::read_to_string(dir.join(page)).expect(page);
        assert!(page.contains("OPTIONS"));
    }
    check(&["man", "/nonexistent/dir"], 2, &["/nonexistent/dir"]);
}

/// `kerninst … | head`: the reader that goes away is no error, and nothing is printed about it.
#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["completions", "bash"][..], &["man"], &["--help"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kerninst"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        drop(child.stdout.take());
        let mut err = String::new();
        child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut err)
            .expect("readable");
        let status = child.wait().expect("it ends");
        assert_eq!((status.code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let out = Command::new(env!("CARGO_BIN_EXE_kerninst"))
        .args(["completions", "bash"])
        .stdout(full)
        .output()
        .expect("the program runs");
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("cannot write the output"));
}

/// The kernel images of `KERNINST_TEST_KERNELS` (a directory, or files separated by `:`).
fn images() -> Vec<String> {
    let Some(value) = std::env::var_os("KERNINST_TEST_KERNELS") else {
        // Past the test harness, which hides what passing tests print.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: the command on real kernels (KERNINST_TEST_KERNELS is not set)"
        );
        return Vec::new();
    };
    let mut found = Vec::new();
    for path in std::env::split_paths(&value) {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a directory of kernels");
            found.extend(entries.flatten().map(|e| e.path()));
        } else {
            found.push(path);
        }
    }
    let name = |p: &std::path::PathBuf| {
        p.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz"))
    };
    found.retain(name);
    assert!(!found.is_empty(), "KERNINST_TEST_KERNELS names no kernel");
    found
        .iter()
        .map(|p| p.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn real_kernels() {
    for image in images() {
        let run = |args: &[&str]| {
            let out = kerninst(&[args, &["--image", &image]].concat());
            (out.status.code(), text(&out.stdout), text(&out.stderr))
        };
        let (code, out, err) = run(&["list"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{image}");
        assert!(
            out.lines().count() > 20_000 && out.lines().any(|l| l == "vfs_read"),
            "{image}"
        );
        assert_eq!(run(&["list", "no_such_function_*"]).0, Some(1));

        let (code, out, err) = run(&["show", "vfs_read"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{image}");
        for words in [
            "control flow: complete",
            "refused (fentry)",
            "in-place",
            "call rw_verify_area",
        ] {
            assert!(out.contains(words), "{image}: {words}");
        }
        let (code, _, err) = run(&["show", "vfs_raed"]);
        assert!(code == Some(1) && err.contains("vfs_read"), "{err}");
        let (code, _, err) = run(&["show", "jiffies"]);
        assert!(code == Some(2) && err.contains("data"), "{err}");

        let (code, out, _) = run(&["show", "vfs_read", "--json"]);
        assert_eq!(code, Some(0));
        let last = out.lines().last().expect("a line");
        let view: serde_json::Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(view["complete"], true);
        assert!(view["points"].as_u64() > Some(100));

        let (code, out, _) = run(&[
            "count",
            "--plan",
            "block:vfs_read/*",
            "exit:vfs_read",
            "--json",
        ]);
        assert_eq!(code, Some(0));
        let planned = out
            .lines()
            .filter(|l| l.contains("kerninst.plan/1"))
            .count();
        assert!(planned > 20, "{planned}");

        // The largest picture that anybody looks at is still a matter of seconds.
        let (code, out, _) = run(&["show", "path_openat", "--svg"]);
        assert!(code == Some(0) && out.ends_with("</svg>\n"));
    }
}

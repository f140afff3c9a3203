//! `kerninst cover` over a kernel made by hand, with walks in place of an engine.

mod common;

use std::path::PathBuf;

use common::debug;
use common::walk::{ALPHA_WALKS, counted};
use expect_test::{Expect, expect};
use kerninst_cli::cover::{CoverArgs, CoverVerb, DiffArgs, MergeArgs, Sort, cover, run as verb};

fn args(functions: &[&str]) -> CoverArgs {
    CoverArgs {
        functions: functions.iter().map(|f| (*f).to_string()).collect(),
        ..CoverArgs::default()
    }
}

/// Runs `cover`; calls of `alpha` go the ways of `walks`.
fn run_with(args: &CoverArgs, walks: &[(u64, &str)]) -> String {
    let kernel = common::kernel();
    common::capture(|ui| {
        cover(&kernel, args, ui, &mut |analysis, targets, _| {
            Ok(counted(analysis, targets, walks))
        })
    })
}

fn check(args: &CoverArgs, expected: Expect) {
    expected.assert_eq(&run_with(args, ALPHA_WALKS));
}

/// A directory of this test's own.
fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("kerninst-cover-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for temporary files");
    dir
}

/// One block of the loop only.
const FEW: &[(u64, &str)] = &[(90, "0 4")];

#[test]
fn a_table() {
    check(
        &args(&[]),
        expect![[r#"
        CALLS  BLOCKS          EDGES          EXACT  FUNCTION
        1,000     7/7  100.0%  11/11  100.0%  yes    alpha
            3     1/1  100.0%    1/1  100.0%  yes    helper
            3     1/1  100.0%    1/1  100.0%  yes    helper#2
            3     1/1  100.0%    1/1  100.0%  yes    mod:helper

        CALLED          BLOCKS          EDGES          MODULE
           3/3  100.0%     9/9  100.0%  13/13  100.0%  kernel
           1/1  100.0%     1/1  100.0%    1/1  100.0%  mod
           4/4  100.0%   10/10  100.0%  14/14  100.0%  (all)
        in 2.500 s; exact: yes
        stderr: kerninst: not counted: early_entry: noinstr text: must not be instrumented
    "#]],
    );
}

#[test]
fn json_lines() {
    let args = CoverArgs {
        json: true,
        ..args(&["alpha", "mod:helper", "early_entry"])
    };
    // The first line says which machine this is.
    let text = run_with(&args, FEW);
    let (_, text) = text.split_once('\n').expect("lines");
    expect![[r#"
        {"schema":"kerninst.cover/1","function":"alpha","module":null,"entry":"0xffffffff81000010","calls":90,"in_flight":0,"exact":true,"blocks":{"all":7,"hit":2,"unknown":0},"edges":{"all":11,"hit":2,"unknown":0},"uncovered":[[12,29],[32,36]],"violations":[]}
        {"schema":"kerninst.cover/1","function":"mod:helper","module":"mod","entry":"0xffffffffc0000000","calls":3,"in_flight":0,"exact":true,"blocks":{"all":1,"hit":1,"unknown":0},"edges":{"all":1,"hit":1,"unknown":0},"uncovered":[],"violations":[]}
        {"schema":"kerninst.cover-left-out/1","function":"early_entry","reason":"off-limits","why":"noinstr text: must not be instrumented"}
        {"schema":"kerninst.cover-module/1","module":null,"functions":{"all":1,"hit":1,"unknown":0},"blocks":{"all":7,"hit":2,"unknown":0},"edges":{"all":11,"hit":2,"unknown":0},"inexact":0}
        {"schema":"kerninst.cover-module/1","module":"mod","functions":{"all":1,"hit":1,"unknown":0},"blocks":{"all":1,"hit":1,"unknown":0},"edges":{"all":1,"hit":1,"unknown":0},"inexact":0}
        {"schema":"kerninst.cover-summary/1","functions":{"all":2,"hit":2,"unknown":0},"blocks":{"all":8,"hit":3,"unknown":0},"edges":{"all":12,"hit":3,"unknown":0},"inexact":0,"left_out":1,"seconds":2.5,"complete":true,"once":false,"runs":1,"notes":[]}
        stderr: kerninst: not counted: early_entry: noinstr text: must not be instrumented
    "#]].assert_eq(text);
}

#[test]
fn blocks_that_never_ran() {
    let args = CoverArgs {
        uncovered: true,
        sort: Sort::Name,
        strict: true,
        ..args(&["alpha", "helper*"])
    };
    expect![[r#"
        alpha +0xc..+0x1d 0xffffffff8100001c..0xffffffff8100002d: 3 blocks
        alpha +0x20..+0x24 0xffffffff81000030..0xffffffff81000034: 2 blocks

        CALLS  BLOCKS          EDGES          EXACT  FUNCTION
           90     2/7   28.5%   2/11   18.1%  yes    alpha
            3     1/1  100.0%    1/1  100.0%  yes    helper
            3     1/1  100.0%    1/1  100.0%  yes    helper#2
            3     1/1  100.0%    1/1  100.0%  yes    mod:helper

        CALLED          BLOCKS          EDGES          MODULE
           3/3  100.0%     4/9   44.4%   4/13   30.7%  kernel
           1/1  100.0%     1/1  100.0%    1/1  100.0%  mod
           4/4  100.0%    5/10   50.0%   5/14   35.7%  (all)
        in 2.500 s; exact: yes
    "#]]
    .assert_eq(&run_with(&args, FEW));
}

#[test]
fn plan() {
    let args = CoverArgs {
        plan: true,
        ..args(&[])
    };
    check(
        &args,
        expect![[r#"
        BLOCKS  EDGES  COUNTERS  NOT KNOWN  FUNCTION
             7     11         6             alpha
             1      1         2             helper
             1      1         2             helper#2
             1      1         2             mod:helper
        4 functions, 10 blocks, 14 edges: 12 counters give all counts but 0
        stderr: kerninst: not counted: early_entry: noinstr text: must not be instrumented
    "#]],
    );
}

/// Would catch a sum that is not one, and a difference that is none or is the wrong way round.
#[test]
fn profiles_are_added_up_and_compared() {
    let dir = scratch("merge");
    let path = |name: &str| dir.join(name);
    let write = |name: &str, functions: &[&str], walks: &[(u64, &str)]| {
        let args = CoverArgs {
            output: Some(path(name)),
            ..args(functions)
        };
        run_with(&args, walks);
    };
    write("many", &["alpha", "helper#2"], ALPHA_WALKS);
    write("few", &["alpha", "mod:helper"], FEW);
    let merge = |profiles: &[&str], output: &str| {
        let args = CoverArgs {
            verb: Some(CoverVerb::Merge(MergeArgs {
                profiles: profiles.iter().map(|p| path(p)).collect(),
                output: path(output),
            })),
            ..CoverArgs::default()
        };
        common::capture(|ui| verb(&args, ui))
    };
    let read = |name: &str| {
        let args = CoverArgs {
            read: Some(path(name)),
            ..args(&[])
        };
        common::capture(|ui| verb(&args, ui))
    };
    let diff = |old: &str, new: &str, json: bool| {
        let args = CoverArgs {
            verb: Some(CoverVerb::Diff(DiffArgs {
                old: path(old),
                new: path(new),
                json,
            })),
            ..CoverArgs::default()
        };
        common::capture(|ui| verb(&args, ui))
    };
    expect![[r#"
        stderr: 3 profiles of 3 functions: 9/9 blocks ran (100.0%), 13/13 edges (100.0%)
    "#]]
    .assert_eq(&merge(&["many", "few", "few"], "sum"));
    expect![[r#"
        CALLS  BLOCKS          EDGES          EXACT  FUNCTION
        1,180     7/7  100.0%  11/11  100.0%  yes    alpha
            3     1/1  100.0%    1/1  100.0%  yes    helper#2
            6     1/1  100.0%    1/1  100.0%  yes    mod:helper

        CALLED          BLOCKS          EDGES          MODULE
           2/2  100.0%     8/8  100.0%  12/12  100.0%  kernel
           1/1  100.0%     1/1  100.0%    1/1  100.0%  mod
           3/3  100.0%     9/9  100.0%  13/13  100.0%  (all)
        in 7.500 s; exact: yes
    "#]]
    .assert_eq(&read("sum"));
    expect![[r#"
        OLD  NEW  BLOCKS  EDGES  FUNCTION    WHERE
        2/7  7/7  +5      +9     alpha       now: +0xc +0xf +0x18 +0x20 +0x22
          -  1/1  +1      +1     helper#2    newly run
        1/1    -  -1      -1     mod:helper  no longer run
        blocks: 3/8 (37.5%) -> 8/8 (100.0%)
        6 blocks newly run, 1 no longer; 1 function newly run, 1 no longer
        1 function only in the old profile
        1 function only in the new profile
    "#]]
    .assert_eq(&diff("few", "many", false));
    expect![[r#"
        {"schema":"kerninst.profile/1","build_id":"","release":"6.12.0-demo","seconds":2.5,"complete":true,"runs":1,"what":null,"modules":{}}
        {"schema":"kerninst.cover-diff/1","function":"alpha","change":"changed","old":{"all":7,"hit":7,"unknown":0},"new":{"all":7,"hit":2,"unknown":0},"gained":[],"lost":[[12,15],[15,24],[24,29],[32,34],[34,36]],"gained_edges":0,"lost_edges":9}
        {"schema":"kerninst.cover-diff/1","function":"helper#2","change":"no longer run","old":{"all":1,"hit":1,"unknown":0},"new":null,"gained":[],"lost":[[0,8]],"gained_edges":0,"lost_edges":1}
        {"schema":"kerninst.cover-diff/1","function":"mod:helper","change":"newly run","old":null,"new":{"all":1,"hit":1,"unknown":0},"gained":[[0,8]],"lost":[],"gained_edges":1,"lost_edges":0}
        {"schema":"kerninst.cover-diff-summary/1","old":{"functions":{"all":2,"hit":2,"unknown":0},"blocks":{"all":8,"hit":8,"unknown":0},"edges":{"all":12,"hit":12,"unknown":0},"inexact":0},"new":{"functions":{"all":2,"hit":2,"unknown":0},"blocks":{"all":8,"hit":3,"unknown":0},"edges":{"all":12,"hit":3,"unknown":0},"inexact":0},"changed":3,"newly_run":1,"no_longer_run":1,"gained":1,"lost":6,"only_old":1,"only_new":1}
    "#]].assert_eq(&diff("many", "few", true));
    expect![[r#"
        blocks: 9/9 (100.0%) -> 9/9 (100.0%)
        0 blocks newly run, 0 no longer; 0 functions newly run, 0 no longer
    "#]]
    .assert_eq(&diff("sum", "sum", false));

    // What does not go together, and what is damaged: a sentence that names the file, and no output.
    let text = std::fs::read_to_string(path("few")).expect("it was written");
    let damage = |name: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        std::fs::write(path(name), text.replace(from, to)).expect("a temporary file");
    };
    damage("other", "\"build_id\":\"", "\"build_id\":\"00");
    damage("block", "\"blocks\":[", "\"blocks\":[7,");
    damage("edge", "\"ways\":[\"0", "\"ways\":[\"99");
    damage("letter", "\"ways\":[\"0f", "\"ways\":[\"0?");
    let shape = text.split("\"shape\":\"").nth(1).expect("a shape");
    let shape = &shape[..16];
    let (digit, _) = shape.split_at(1);
    let other = if digit == "0" { "1" } else { "0" };
    damage(
        "shape",
        &format!("\"shape\":\"{shape}"),
        &format!("\"shape\":\"{other}{}", &shape[1..]),
    );
    for (name, expected) in [
        (
            "other",
            expect![[r#"
            exit 2: other: profiles of different kernels (build id  and 00) cannot be added up or compared
        "#]],
        ),
        (
            "block",
            expect![[r#"
            exit 2: block: line 2 is damaged: not one count for each block
        "#]],
        ),
        (
            "edge",
            expect![[r#"
            exit 2: edge: line 2 is damaged: an edge of a block that there is not
        "#]],
        ),
        (
            "letter",
            expect![[r#"
            exit 2: letter: line 2 is damaged: "0?" is no edge
        "#]],
        ),
        (
            "shape",
            expect![[r#"
                exit 2: shape: alpha is other code in this profile (its instructions were rewritten at boot in another way)
            "#]],
        ),
        (
            "none",
            expect![[r#"
            exit 2: none: No such file or directory (os error 2)
        "#]],
        ),
    ] {
        let told = merge(&["few", name], "wrong");
        expected.assert_eq(&told.replace(&format!("{}/", dir.display()), ""));
        assert!(!path("wrong").exists());
    }
    std::fs::remove_dir_all(dir).expect("it is ours");
}

#[test]
fn what_cannot_be() {
    let run = |args: &CoverArgs| common::capture(|ui| verb(args, ui));
    expect![[r#"
        exit 2: which functions? Name some (globs too), or give --module NAME, or --all
    "#]]
    .assert_eq(&run(&args(&[])));
    check(
        &args(&["early_entry"]),
        expect![[r#"
        exit 2: nothing can be counted: early_entry: noinstr text: must not be instrumented
    "#]],
    );
    check(
        &args(&["nothing_*"]),
        expect![[r#"
        exit 1: no function matches nothing_*
    "#]],
    );
    let output = CoverArgs {
        output: Some("/nonexistent/profile".into()),
        ..args(&["alpha"])
    };
    check(
        &output,
        expect![[r#"
        exit 2: cannot write /nonexistent/profile: No such file or directory (os error 2)
    "#]],
    );
}

/// Would catch lines of another place (the slide of KASLR), branches that are exchanged, and debug information of another build.
#[test]
fn lines_functions_and_branches() {
    let dir = scratch("lcov");
    let path = |name: &str| dir.join(name);
    let write = CoverArgs {
        output: Some(path("plain")),
        ..args(&["alpha", "mod:helper"])
    };
    run_with(&write, ALPHA_WALKS);
    let text = std::fs::read_to_string(path("plain")).expect("it was written");
    let text = text.replace("\"build_id\":\"\"", "\"build_id\":\"0102030405\"");
    std::fs::write(path("profile"), text).expect("a temporary file");
    let lcov = |vmlinux: &str| {
        let args = CoverArgs {
            read: Some(path("profile")),
            lcov: Some(path("info")),
            vmlinux: vec![path(vmlinux)],
            ..args(&[])
        };
        let text = common::capture(|ui| verb(&args, ui));
        text.replace(&format!("{}/", dir.display()), "")
    };
    std::fs::write(path("vmlinux"), debug::vmlinux(&[1, 2, 3, 4, 5])).expect("a temporary file");
    let told = lcov("vmlinux");
    expect![[r#"
        stderr: kerninst: not in the lcov file: 1 function of which no --vmlinux file has the source
    "#]]
    .assert_eq(told.split("exact: yes\n").nth(1).expect("messages"));
    expect![[r#"
        TN:kerninst
        SF:fs/demo.c
        FN:10,alpha
        FNDA:1000,alpha
        FNF:1
        FNH:1
        BRDA:13,0,0,910
        BRDA:13,0,1,90
        BRDA:13,1,0,902
        BRDA:13,1,1,1801
        BRF:4
        BRH:4
        DA:10,1000
        DA:12,1000
        DA:13,2703
        DA:14,2711
        DA:16,2
        DA:17,999
        LF:6
        LH:6
        end_of_record
        TN:kerninst
        SF:include/jump_label.h
        FNF:0
        FNH:0
        BRDA:30,0,0,900
        BRDA:30,0,1,2
        BRF:2
        BRH:2
        DA:30,902
        LF:1
        LH:1
        end_of_record
    "#]]
    .assert_eq(&std::fs::read_to_string(path("info")).expect("it was written"));

    // A module's file, with sections that all start at 0 and relocations.
    let text = std::fs::read_to_string(path("profile")).expect("it is there");
    let text = text
        .replace("\"modules\":{}", "\"modules\":{\"mod\":\"0909\"}")
        .replace("\"base\":\"\"", "\"base\":\".text\"")
        .replace(&format!("\"at\":{}", 0xffff_ffff_c000_0000u64), "\"at\":0");
    std::fs::write(path("profile"), text).expect("a temporary file");
    std::fs::write(path("mod.ko"), debug::module(&[9, 9])).expect("a temporary file");
    lcov("mod.ko");
    expect![[r#"
        TN:kerninst
        SF:mod.c
        FN:3,helper
        FNDA:3,helper
        FNF:1
        FNH:1
        BRF:0
        BRH:0
        DA:3,3
        DA:4,3
        DA:5,3
        LF:3
        LH:3
        end_of_record
    "#]]
    .assert_eq(&std::fs::read_to_string(path("info")).expect("it was written"));

    // Files that are of no use: a sentence.
    let good = std::fs::read(path("vmlinux")).expect("it is there");
    std::fs::write(path("other"), debug::vmlinux(&[7, 7])).expect("a temporary file");
    std::fs::write(path("text"), "no ELF file").expect("a temporary file");
    std::fs::write(path("bare"), debug::bare(&[1, 2, 3, 4, 5])).expect("a temporary file");
    for (name, expected) in [
        (
            "other",
            expect![[r#"
            exit 2: other: its build id is 0707; that of the kernel is 0102030405, and no module that was counted has it
        "#]],
        ),
        (
            "text",
            expect![[r#"
            exit 2: text: not an ELF file that can be read: Could not read file magic
        "#]],
        ),
        (
            "bare",
            expect![[r#"
            exit 2: bare: it has no debug information: the vmlinux (or .ko) of the distribution's -dbg package is wanted
        "#]],
        ),
        (
            "missing",
            expect![[r#"
            exit 2: missing: No such file or directory (os error 2)
        "#]],
        ),
    ] {
        expected.assert_eq(&lcov(name));
    }
    // Damaged anywhere: never a panic.
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        std::fs::write(path("bad"), &bad).expect("a temporary file");
        lcov("bad");
        std::fs::write(path("bad"), &good[..at]).expect("a temporary file");
        lcov("bad");
    }
    std::fs::remove_dir_all(dir).expect("it is ours");
}

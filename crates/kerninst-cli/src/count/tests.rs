//! Plans and counts over a kernel made by hand, as they are shown.

use std::time::Duration;

use expect_test::{Expect, expect};
use kerninst::{Count, Counts, Owners};

use super::rows::{Display, Span};
use super::*;
use crate::paint::Paint;

#[path = "../../tests/common/mod.rs"]
mod common;

fn args(points: &[&str]) -> CountArgs {
    CountArgs {
        points: points.iter().map(|p| (*p).into()).collect(),
        plan: true,
        ..CountArgs::default()
    }
}

fn plan_of(args: &CountArgs) -> String {
    let kernel = common::kernel();
    let text = common::capture(|ui| planned(&kernel, args, ui));
    // The first line of JSON names this machine.
    let kept = text
        .split_inclusive('\n')
        .filter(|l| !l.contains("kerninst.kernel/1"));
    kept.collect()
}

fn check(args: &CountArgs, expected: Expect) {
    expected.assert_eq(&plan_of(args));
}

#[test]
fn a_plan() {
    check(
        &args(&["entry:alpha", "block:alpha/*"]),
        expect![[r#"
            POINT       WHAT     TACTIC   COST  PROBE
            alpha+0x5   entry    version    +1  entry:alpha
            alpha+0x5   block 0  version    +1  block:alpha/*
            alpha+0xc   block 1  version    +1  block:alpha/*
            alpha+0xf   block 2  version    +1  block:alpha/*
            alpha+0x18  block 3  version    +1  block:alpha/*
            alpha+0x1d  block 4  version    +1  block:alpha/*
            alpha+0x20  block 5  version    +1  block:alpha/*
            alpha+0x22  block 6  version    +1  block:alpha/*
            8 points in 1 version, 103 bytes of code, 0 refused; cost: instructions per execution
        "#]],
    );
    check(
        &args(&["exit:helper#1"]),
        expect![[r#"
            POINT       WHAT             TACTIC    COST
            helper+0xc  tail call alpha  in-place    +2
            1 point in 1 splice, 14 bytes of code, 0 refused; cost: instructions per execution
        "#]],
    );
}

#[test]
fn a_plan_with_refusals() {
    let points = [
        "insn:alpha+0x18",
        "insn:alpha+0x6",
        "insn:alpha",
        "insn:alpha+0x5",
    ];
    check(
        &args(&points),
        expect![[r#"
            POINT       WHAT  TACTIC   COST  PROBE
            alpha+0x18        version    +1  insn:alpha+0x18
            alpha             version    +1  insn:alpha
            alpha+0x5         version    +1  insn:alpha+0x5
            3 points in 1 version, 67 bytes of code, 1 refused; cost: instructions per execution
            refused: alpha+0x6: +0x6 lies inside the instruction at +0x5; the next one starts at +0x7; the nearest instruction that works is insn:alpha+0x7
        "#]],
    );
    check(
        &CountArgs {
            strict: true,
            json: true,
            ..args(&points)
        },
        expect![[r#"
            {"schema":"kerninst.plan/1","point":"alpha+0x18","function":"alpha","addr":"0xffffffff81000028","kind":"insn","probe":"insn:alpha+0x18","tactic":"version","cost":1,"site":"0xffffffff81000015","refused":null}
            {"schema":"kerninst.plan/1","point":"alpha","function":"alpha","addr":"0xffffffff81000010","kind":"insn","probe":"insn:alpha","tactic":"version","cost":1,"site":"0xffffffff81000015","refused":null}
            {"schema":"kerninst.plan/1","point":"alpha+0x5","function":"alpha","addr":"0xffffffff81000015","kind":"insn","probe":"insn:alpha+0x5","tactic":"version","cost":1,"site":"0xffffffff81000015","refused":null}
            {"schema":"kerninst.plan/1","point":"alpha+0x6","function":"alpha","addr":"0xffffffff81000016","kind":"insn","probe":"insn:alpha+0x6","tactic":null,"cost":null,"site":null,"refused":{"reason":"not-an-instruction","text":"0xffffffff81000016 lies inside the instruction at 0xffffffff81000015; the next one starts at 0xffffffff81000017","nearest":"0xffffffff81000017"}}
            exit 3: 1 points cannot be instrumented
        "#]],
    );
    check(
        &args(&["insn:alpha+0x18"]),
        expect![[r#"
            POINT       WHAT  TACTIC       COST
            alpha+0x18        hoist-short    +4
            1 point in 1 splice, 20 bytes of code, 0 refused; cost: instructions per execution
        "#]],
    );
}

#[test]
fn points_that_are_not_there() {
    for (point, expected) in [
        (
            "entry:alhpa",
            expect![[r#"
                exit 1: entry:alhpa: there is no function alhpa; did you mean alpha?
            "#]],
        ),
        (
            "entry:nothing*",
            expect![[r#"
            exit 1: entry:nothing*: no function matches nothing*
        "#]],
        ),
        (
            "entry:helper",
            expect![[r#"
                exit 2: entry:helper: 3 functions are called helper: choose one of helper#1, helper#2, mod:helper, or all with helper#*
            "#]],
        ),
        (
            "entry:jiffies",
            expect![[r#"
            exit 2: entry:jiffies: jiffies is data, not a function
        "#]],
        ),
        (
            "insn:alpha+0x1000",
            expect![[r#"
            exit 2: insn:alpha+0x1000: alpha is 0x24 bytes long; its last instruction is at +0x22
        "#]],
        ),
        (
            "insn:0xffffffff00000000",
            expect![[r#"
            exit 1: insn:0xffffffff00000000: there is no kernel function at 0xffffffff00000000
        "#]],
        ),
        (
            "block:alpha/99",
            expect![[r#"
            exit 2: block:alpha/99: alpha has blocks 0 to 6
        "#]],
        ),
        (
            "alpha",
            expect![[r#"
            exit 2: alpha: say what of it to count: insn:alpha, entry:alpha, exit:alpha or block:alpha/*
        "#]],
        ),
        (
            "entry:early_entry",
            expect![[r#"
                exit 2: early_entry: noinstr text: must not be instrumented
            "#]],
        ),
    ] {
        check(&args(&[point]), expected);
    }
}

/// Counts as a session would give them: 1000, 1001 … in the order of the points, then zeros.
fn counted(points: &[&str], zeros: usize, args: &CountArgs) -> (Display, Outcome) {
    let kernel = common::kernel();
    let analysis = Analysis::new(&kernel);
    let probes: Vec<Probe> = points.iter().map(|p| p.parse().expect("a probe")).collect();
    let resolved = kerninst::resolve(&analysis, &probes, None).expect("points");
    let planned = kerninst::plan(
        &analysis,
        &resolved.points,
        &Owners::default(),
        kerninst::Means::Splices,
    );
    let args = CountArgs {
        points: points.iter().map(|p| (*p).into()).collect(),
        ..args.clone()
    };
    let display = Display::new(&kernel, &planned.points, planned.refused.len(), &args);
    let executed = planned.points.len().saturating_sub(zeros);
    let count = |n: usize| Count {
        by_cpu: if n < executed {
            vec![1000, n as u64]
        } else {
            vec![0, 0]
        },
    };
    let counts = Counts {
        counts: (0..planned.points.len()).map(count).collect(),
        complete: true,
        notes: Vec::new(),
    };
    (
        display,
        Outcome {
            counts,
            span: Span(Duration::from_millis(1500)),
        },
    )
}

fn last(points: &[&str], zeros: usize, args: &CountArgs) -> String {
    let (display, outcome) = counted(points, zeros, args);
    common::capture(|ui| display.last(&outcome, ui.out, Paint(false)))
}

#[test]
fn counts_as_a_table() {
    let few = ["entry:alpha", "exit:helper#1", "insn:alpha+0x18"];
    expect![[r#"
        COUNT  POINT       WHAT             PROBE            TACTIC
         1001  helper+0xc  tail call alpha  exit:helper#1    in-place
         1000  alpha+0x5   entry            entry:alpha      springboard
            0  alpha+0x18                   insn:alpha+0x18  hoist-short
        total 2001 at 3 points in 1.500 s; complete: yes
    "#]]
    .assert_eq(&last(&few, 1, &CountArgs::default()));
}

#[test]
fn many_points_that_were_not_executed_are_only_counted() {
    let many = ["block:alpha/*"; 4];
    let text = last(&many, 22, &CountArgs::default());
    assert!(
        text.contains("22 points were not executed (--zeros lists them)\n"),
        "{text}"
    );
    let rows = |t: &str| t.lines().filter(|l| l.contains("block:alpha/*")).count();
    let all = CountArgs {
        zeros: true,
        ..CountArgs::default()
    };
    let shown = last(&many, 22, &all);
    assert_eq!(rows(&shown), rows(&text) + 22);
}

#[test]
fn counts_as_json() {
    let args = CountArgs {
        json: true,
        ..CountArgs::default()
    };
    expect![[r#"
        {"schema":"kerninst.count/1","point":"alpha+0x5","function":"alpha","addr":"0xffffffff81000015","kind":"entry","what":"entry","probe":"entry:alpha","tactic":"springboard","cost":4,"count":1000,"by_cpu":[1000,0]}
        {"schema":"kerninst.summary/1","points":1,"refused":0,"total":1000,"seconds":1.5,"complete":true,"notes":[]}
    "#]].assert_eq(&last(&["entry:alpha"], 0, &args));
    let (display, mut outcome) = counted(&["entry:alpha"], 0, &args);
    outcome.counts.complete = false;
    outcome.counts.notes.push("why".into());
    let text = common::capture(|ui| display.last(&outcome, ui.out, Paint(false)));
    assert!(
        text.contains(r#""complete":false,"notes":["why"]"#),
        "{text}"
    );
}

#[test]
fn interim_counts_show_what_is_new() {
    let args = CountArgs {
        json: true,
        ..CountArgs::default()
    };
    let (mut display, mut outcome) = counted(&["entry:alpha"], 0, &args);
    let mut text =
        common::capture(|ui| display.interval(&outcome.counts, Span(Duration::from_secs(1)), ui));
    outcome.counts.counts[0].by_cpu[1] += 5;
    text +=
        &common::capture(|ui| display.interval(&outcome.counts, Span(Duration::from_secs(2)), ui));
    let parts: Vec<&str> = text
        .lines()
        .filter_map(|l| Some(l.split_once("\"count\"")?.1))
        .collect();
    expect![[r#"
        :1000,"by_cpu":[1000,0],"at":1.0,"delta":1000}
        :1005,"by_cpu":[1000,5],"at":2.0,"delta":5}"#]]
    .assert_eq(&parts.join("\n"));
}

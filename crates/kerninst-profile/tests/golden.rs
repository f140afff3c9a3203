//! Flow graphs, placements and derivations of small listings.

#[path = "../../kerninst-analysis/tests/listing/mod.rs"]
mod listing;

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use kerninst_analysis::Analysis;
use kerninst_profile::{Derivation, Flow, Placement, Weights};

/// Every edge of every function: its spot, its estimated weight for one call, whether it is counted, checked or derived from
/// counters, and whether KernInst's rule derives it from block counts.
fn check(text: &str, expected: Expect) {
    let kernel = listing::kernel(text);
    let analysis = Analysis::new(&kernel);
    let mut out = String::new();
    for id in analysis.functions() {
        let Some(function) = analysis.function_at(id.start) else {
            continue;
        };
        let flow = Flow::new(&function);
        let weights = Weights::estimate(&function, &flow, |_| None);
        let placement = Placement::new(&flow, &weights);
        let derivation = Derivation::from_blocks(&function, &flow);
        writeln!(out, "{}", function.id).expect("a String");
        for (n, edge) in flow.edges().iter().enumerate() {
            let spot = edge.spot.map_or("-".to_string(), |s| {
                s.to_string().replace("0xffffffff810000", "+")
            });
            let counter = placement.counters().iter().find(|c| c.edge as usize == n);
            let how = match counter {
                Some(c) if c.redundant => "checks",
                Some(_) => "counted",
                None if placement.missing().contains(&(n as u32)) => "unknown",
                None => "derived",
            };
            let known = if derivation.knows(n) { "by blocks" } else { "" };
            let edges = format!("{} -> {}", edge.from, edge.to);
            let line = format!(
                "  {edges:<14} {spot:<24} {:>8.4} {how:<8} {known}",
                weights.of(n) as f64 / 1e6
            );
            writeln!(out, "{}", line.trim_end()).expect("a String");
        }
    }
    expected.assert_eq(&out);
}

/// Would catch a counter on the wrong side of a branch, a static key or a fault.
#[test]
fn spots() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  74 <.out
  48 8b 07 | fixup .fault
  0f 1f 44 00 00 | key .on
.out:
  c3
.on:
  0f 0b | warn
  eb <.out
.fault:
  75 <.out
  e9 <<g
g:
  0f 1f 44 00 00 | fentry
  0f 1f 44 00 00 | key- .off
  c3
.off:
  0f 84 <<f
  0f 0b | bug
",
        expect![[r#"
            f
              b0 -> b1       after +05                  0.5882 derived  by blocks
              b0 -> b3       taken branch of +05        0.4118 counted  by blocks
              b1 -> b2       after +07                  0.5882 derived  by blocks
              b1 -> b6       fault at +07               0.0000 derived  by blocks
              b2 -> b3       after +0a                  0.5882 derived  by blocks
              b2 -> b4       taken branch of +0a        0.0000 derived  by blocks
              b3 -> exit     before +0f                 1.0000 counted  by blocks
              b4 -> b5       after +10                  0.0000 derived  by blocks
              b5 -> b3       taken branch of +12        0.0000 counted  by blocks
              b6 -> b7       after +14                  0.0000 derived  by blocks
              b6 -> b3       taken branch of +14        0.0000 counted  by blocks
              b7 -> exit     before +16                 0.0000 counted  by blocks
              entry -> b0    entry at +00               1.0000 checks   by blocks
              exit -> entry  -                          1.0000 derived
            g
              b0 -> b1       after +20                  0.0909 derived  by blocks
              b0 -> b2       taken branch of +20        0.9091 derived  by blocks
              b1 -> exit     before +25                 0.0909 counted  by blocks
              b2 -> b3       after +26                  0.0001 derived  by blocks
              b2 -> exit     taken branch of +26        0.9090 counted  by blocks
              b3 -> exit     before +2c                 0.0001 counted  by blocks
              entry -> b0    entry at +1b               1.0000 checks   by blocks
              exit -> entry  -                          1.0000 derived
        "#]],
    );
}

/// Would catch an entry that is confused with the way around a loop, and a loop without a counter.
#[test]
fn loops() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
.again:
  31 c0
.inner:
  ff c8
  75 <.inner
  ff c9
  75 <.again
  c3
h:
  31 c0
  eb <h
",
        expect![[r#"
            f
              b0 -> b1       after +00                  1.0000 derived  by blocks
              b1 -> b2       after +05                  3.3710 derived  by blocks
              b2 -> b3       after +09                  2.9206 derived  by blocks
              b2 -> b2       taken branch of +09       14.9926 counted  by blocks
              b3 -> b4       after +0d                  0.4762 derived  by blocks
              b3 -> b1       taken branch of +0d        2.4444 counted  by blocks
              b4 -> exit     before +0f                 0.4762 counted  by blocks
              entry -> b0    entry at +00               1.0000 checks   by blocks
              exit -> entry  -                          1.0000 derived
            h
              b0 -> b0       taken branch of +12       24.0000 counted  by blocks
              entry -> b0    entry at +10               1.0000 checks   by blocks
              exit -> entry  -                          1.0000 derived
        "#]],
    );
}

/// Would catch a way in that has no edge and is taken for nothing; two faults that cannot be told apart.
#[test]
fn what_cannot_be_counted() {
    check(
        "
f:
  48 8d 05 <<.taken
  48 8b 07 | fixup .one
  c3
.one:
  c3
.taken:
  c3
",
        expect![[r#"
            f
              b0 -> b1       after +07                  1.0000 derived  by blocks
              b0 -> b2       fault at +07               0.0000 derived  by blocks
              b1 -> exit     before +0a                 1.0000 counted  by blocks
              b2 -> exit     before +0b                 0.0000 counted  by blocks
              b3 -> exit     before +0c                 0.0010 counted  by blocks
              entry -> b0    entry at +00               1.0000 checks   by blocks
              entry -> b3    -                          1.0000 derived  by blocks
              exit -> entry  -                          1.0000 derived
        "#]],
    );
}

/// Would catch an edge that is called derivable from block counts although another count would fit as well.
#[test]
fn what_block_counts_do_not_give() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  74 <.a
.b:
  74 <.c
.d:
  31 c0
  c3
.a:
  75 <.d
.c:
  c3
",
        expect![[r#"
            f
              b0 -> b1       after +05                  0.5882 derived  by blocks
              b0 -> b3       taken branch of +05        0.4118 derived  by blocks
              b1 -> b2       after +07                  0.3460 derived
              b1 -> b4       taken branch of +07        0.2422 derived
              b2 -> exit     before +0b                 0.5156 counted  by blocks
              b3 -> b4       after +0c                  0.2422 counted
              b3 -> b2       taken branch of +0c        0.1696 counted
              b4 -> exit     before +0e                 0.4844 counted  by blocks
              entry -> b0    entry at +00               1.0000 checks   by blocks
              exit -> entry  -                          1.0000 derived
        "#]],
    );
}

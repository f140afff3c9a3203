//! `kerninst stats` over a kernel made by hand.

mod common;

use expect_test::{Expect, expect};
use kerninst_cli::stats::{StatsArgs, stats};

fn check(args: &StatsArgs, expected: Expect) {
    let kernel = common::kernel();
    expected.assert_eq(&common::capture(|ui| stats(&kernel, args, ui)));
}

#[test]
fn a_whole_kernel() {
    check(
        &StatsArgs::default(),
        expect![[r#"
        Control flow  (running kernel 6.12.0-demo)
          functions                                  5
            control flow known                       5  100.0 %
            nothing may be inserted                  1  20.0 %
          instructions                              23
          calls                                      0
          through pointers, with tail calls          0
          blocks                                    11
            in the largest function                  7  alpha
          edges                                     20  ways in and out are edges too
          loops                                      1  in 1 function, at most 1 deep
          blocks entered from elsewhere              0
        Edges whose counts follow from block counts alone (KernInst's way)
          edges                                     20  100.0 %
          functions, all edges                       5  100.0 %
        Counters for exact profiles
          one for each block                        10  give blocks only
          one for each edge                         18
          spanning tree                             12  1.20 for each block: give all blocks and edges, checked
        Instructions that one counter adds, on edges of the spanning tree
          instructions        near                 far
          1                     12 100.0 %           0   0.0 %
          2                      0   0.0 %          12 100.0 %
          on average         1.000               2.000
        Instructions that one counter adds, at the start of a block
          instructions        near                 far
          1                     10 100.0 %           0   0.0 %
          2                      0   0.0 %          10 100.0 %
          on average         1.000               2.000
    "#]],
    );
}

#[test]
fn json() {
    let args = StatsArgs {
        patterns: vec!["alpha".into()],
        json: true,
        ..StatsArgs::default()
    };
    let kernel = common::kernel();
    let text = common::capture(|ui| stats(&kernel, &args, ui));
    // The first line says which machine this is.
    let (_, text) = text.split_once('\n').expect("lines");
    expect![[r#"
        {"schema":"kerninst.stats/1","functions":1,"complete":1,"off_limits":0,"instructions":12,"calls":0,"indirect":0,"blocks":7,"edges":12,"loops":1,"looping":1,"deepest":1,"largest_blocks":7,"largest":"alpha","foreign":0,"derivable_edges":12,"derivable_functions":1,"counters":{"functions":1,"blocks":7,"edges":12,"exact":6,"unknown":0},"edge_cost":{"near":[0,6,0,0,0,0,0,0],"far":[0,0,6,0,0,0,0,0]},"block_cost":{"near":[0,7,0,0,0,0,0,0],"far":[0,0,7,0,0,0,0,0]}}
    "#]].assert_eq(text);
}

#[test]
fn nothing() {
    let args = StatsArgs {
        patterns: vec!["nowhere".into()],
        ..StatsArgs::default()
    };
    check(
        &args,
        expect![[r#"
        exit 1: no function is called nowhere; `kerninst list '*nowhere*'` lists names that contain it
    "#]],
    );
}

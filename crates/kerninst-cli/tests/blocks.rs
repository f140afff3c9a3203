//! `kerninst blocks` over a kernel made by hand, with walks in place of an engine.

mod common;

use std::collections::HashMap;
use std::path::PathBuf;

use common::walk::{ALPHA_WALKS, walk};
use expect_test::{Expect, expect, expect_file};
use kerninst_cli::args::Source;
use kerninst_cli::blocks::{BlocksArgs, Report, Run, Target, blocks};
use kerninst_patch::Spot;

fn args(functions: &[&str]) -> BlocksArgs {
    BlocksArgs {
        functions: functions.iter().map(|f| (*f).to_string()).collect(),
        ..BlocksArgs::default()
    }
}

fn run_with(args: &BlocksArgs, edit: impl Fn(&mut HashMap<Spot, u64>), refuse: bool) -> String {
    let kernel = common::kernel();
    common::capture(|ui| {
        blocks(&kernel, args, ui, &mut |analysis, targets, _| {
            let report = |mut target: Target| -> Report {
                let (mut counts, inside) = match target.function.name.as_str() {
                    "alpha" => walk(&target.flow, ALPHA_WALKS),
                    _ => walk(&target.flow, &[(3, "0")]),
                };
                edit(&mut counts);
                if refuse {
                    // Both ways out of the entry block, and one into the last: a way around without a counter.
                    let block = target.function.blocks[0].clone();
                    let last = target
                        .function
                        .block_insns(&block)
                        .last()
                        .expect("one")
                        .addr;
                    for spot in [Spot::After(last), Spot::Taken(last)] {
                        target.refuse([(spot, "somebody else has it".to_string())]);
                    }
                    let fixup = target.function.blocks[1].start;
                    target.refuse([(Spot::Fixup(fixup), "nothing fits".to_string())]);
                }
                let of = |spot| counts.get(&spot).copied().unwrap_or(0);
                target.report(analysis, of, &inside).expect("counts fit")
            };
            let run = Run {
                seconds: 2.5,
                complete: true,
                ..Run::default()
            };
            Ok((targets.into_iter().map(report).collect(), run))
        })
    })
}

fn run(args: &BlocksArgs) -> String {
    run_with(args, |_| {}, false)
}

fn check(args: &BlocksArgs, expected: Expect) {
    expected.assert_eq(&run(args));
}

/// A directory of this test's own.
fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("kerninst-blocks-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for temporary files");
    dir
}

#[test]
fn a_table() {
    check(
        &args(&["alpha"]),
        expect![[r#"
            ENTERED  LEFT  INSIDE  BLOCKS RUN  COUNTERS  EXACT  FUNCTION
              1,000   999       1         7/7         6  yes    alpha

            COUNT  PER CALL  BLOCK  AT     INSNS  LOOP  WAYS OUT
            2,711      2.7x  b1     +0xc       1     1  b2:2,703  b4:7  (inside:1)
            2,703      2.7x  b2     +0xf       3     1  b3:902  ↺b1:1,801
            1,000    100.0%  b0     +0x0       4        b1:910  b4:90
              999     99.9%  b4     +0x1d      1        return:999
              902     90.2%  b3     +0x18      1        b4:900  b5:2
                2      0.2%  b5     +0x20      1        b6:2
                2      0.2%  b6     +0x22      1        b4:2
            in 2.500 s; exact: yes
        "#]],
    );
}

#[test]
fn several_functions() {
    check(
        &args(&["alpha", "helper#2"]),
        expect![[r#"
            ENTERED  LEFT  INSIDE  BLOCKS RUN  COUNTERS  EXACT  FUNCTION
              1,000   999       1         7/7         6  yes    alpha
                  3     3       0         1/1         2  yes    helper#2

            COUNT  PER CALL  BLOCK  AT     INSNS  LOOP  WAYS OUT                    FUNCTION
            2,711      2.7x  b1     +0xc       1     1  b2:2,703  b4:7  (inside:1)  alpha
            2,703      2.7x  b2     +0xf       3     1  b3:902  ↺b1:1,801           alpha
            1,000    100.0%  b0     +0x0       4        b1:910  b4:90               alpha
              999     99.9%  b4     +0x1d      1        return:999                  alpha
              902     90.2%  b3     +0x18      1        b4:900  b5:2                alpha
                3    100.0%  b0     +0x0       3        return:3                    helper#2
                2      0.2%  b5     +0x20      1        b6:2                        alpha
                2      0.2%  b6     +0x22      1        b4:2                        alpha
            in 2.500 s; exact: yes
        "#]],
    );
}

#[test]
fn annotated() {
    let args = BlocksArgs {
        annotate: true,
        ..args(&["alpha"])
    };
    check(
        &args,
        expect![[r#"
            alpha  (running kernel 6.12.0-demo)
              entered 1,000, left 999, 1 inside; 7 of 7 blocks ran; 6 counters
              exact: yes

            b0: 1,000 (100.0%)  entry
              1,000 |  +0x0  nopl (%rax,%rax)
              1,000 |  +0x5  xor %eax, %eax
              1,000 |  +0x7  test %rdi, %rdi
              1,000 |  +0xa  je +0x1d
                910 -> fall-through: b1 (91.0%)
                 90 -> taken: b4 (9.0%)

            b1: 2,711 (2.7x)  1 still inside; head of loop 0; loop depth 1; from b0: 910, b2: 1,801
              2,711 |  +0xc  add (%rdi), %rax
                             ^ may fault: goes on at +0x1d then
              2,703 -> fall-through: b2 (99.7%)
                  7 -> fixup: b4 (0.3%)

            b2: 2,703 (2.7x)  loop depth 1; from b1: 2,703
              2,703 |  +0xf  add $8, %rdi
              2,703 | +0x13  dec %rsi
              2,703 | +0x16  jne +0xc
                902 -> fall-through: b3 (33.4%)
              1,801 -> taken: b1 (back edge) (66.6%)

            b3: 902 (90.2%)  from b2: 902
                902 | +0x18  nopl (%rax,%rax)
                             ^ static key demo_key: jumps to +0x20 while it is on
                900 -> key-off: b4 (99.8%)
                  2 -> key-on: b5 (0.2%)

            b4: 999 (99.9%)  from b0: 90, b1: 7, b3: 900, b6: 2
                999 | +0x1d  ret
                999 -> return (100.0%)

            b5: 2 (0.2%)  from b3: 2
                  2 | +0x20  ud2
                             ^ WARN at fs/demo.c:42
                  2 -> trap-resume: b6 (100.0%)

            b6: 2 (0.2%)  from b5: 2
                  2 | +0x22  jmp +0x1d
                  2 -> jump: b4 (100.0%)
            in 2.500 s; exact: yes
        "#]],
    );
}

#[test]
fn json_lines() {
    let args = BlocksArgs {
        json: true,
        ..args(&["alpha"])
    };
    // The first line says which machine this is.
    let text = run(&args);
    let (_, text) = text.split_once('\n').expect("lines");
    expect![[r#"
        {"schema":"kerninst.blocks/1","function":"alpha","module":null,"entry":"0xffffffff81000010","entered":1000,"left":999,"in_flight":1,"counters":6,"exact":true,"violations":[],"missing":[],"blocks":[{"start":"0xffffffff81000010","end":"0xffffffff8100001c","at":"+0x0","instructions":4,"depth":0,"cold":false,"count":1000,"inside":0},{"start":"0xffffffff8100001c","end":"0xffffffff8100001f","at":"+0xc","instructions":1,"depth":1,"cold":false,"count":2711,"inside":1},{"start":"0xffffffff8100001f","end":"0xffffffff81000028","at":"+0xf","instructions":3,"depth":1,"cold":false,"count":2703,"inside":0},{"start":"0xffffffff81000028","end":"0xffffffff8100002d","at":"+0x18","instructions":1,"depth":0,"cold":false,"count":902,"inside":0},{"start":"0xffffffff8100002d","end":"0xffffffff8100002e","at":"+0x1d","instructions":1,"depth":0,"cold":false,"count":999,"inside":0},{"start":"0xffffffff81000030","end":"0xffffffff81000032","at":"+0x20","instructions":1,"depth":0,"cold":false,"count":2,"inside":0},{"start":"0xffffffff81000032","end":"0xffffffff81000034","at":"+0x22","instructions":1,"depth":0,"cold":false,"count":2,"inside":0}],"edges":[{"from":0,"to":1,"kind":"fall-through","back":false,"count":910},{"from":0,"to":4,"kind":"taken","back":false,"count":90},{"from":1,"to":2,"kind":"fall-through","back":false,"count":2703},{"from":1,"to":4,"kind":"fixup","back":false,"count":7},{"from":2,"to":3,"kind":"fall-through","back":false,"count":902},{"from":2,"to":1,"kind":"taken","back":true,"count":1801},{"from":3,"to":4,"kind":"key-off","back":false,"count":900},{"from":3,"to":5,"kind":"key-on","back":false,"count":2},{"from":4,"to":null,"exit":"return","kind":"exit","back":false,"count":999},{"from":5,"to":6,"kind":"trap-resume","back":false,"count":2},{"from":6,"to":4,"kind":"jump","back":false,"count":2}]}
        {"schema":"kerninst.blocks-summary/1","functions":1,"exact":1,"left_out":[],"seconds":2.5,"complete":true,"notes":[]}
    "#]].assert_eq(text);
}

#[test]
fn plan() {
    let args = BlocksArgs {
        plan: true,
        source: Source::default(),
        ..args(&["alpha"])
    };
    check(
        &args,
        expect![[r#"
        alpha: 7 blocks, 12 edges; 6 counters give all counts
        PER CALL  EDGE         SPOT    INSTRUCTION
            0.41  b0 -> b4     taken   alpha+0xa
               0  b1 -> b4     fixup   alpha+0xc
            2.87  b2 -> b1     taken   alpha+0x16
            0.97  b4 -> exit   before  alpha+0x1d
               0  b6 -> b4     taken   alpha+0x22
            1.00  entry -> b0  enter   alpha+0x0    checks
    "#]],
    );
}

/// Would catch a count that is wrong and is smoothed over.
#[test]
fn what_does_not_add_up_is_shown() {
    let lose = |counts: &mut HashMap<Spot, u64>| {
        for (spot, count) in counts.iter_mut() {
            if matches!(spot, Spot::Enter(_)) {
                *count -= 5;
            }
        }
    };
    let args = BlocksArgs {
        strict: true,
        ..args(&["alpha"])
    };
    expect![[r#"
        ENTERED  LEFT  INSIDE  BLOCKS RUN  COUNTERS  EXACT  FUNCTION
            995   999       1         7/7         6  no     alpha

        COUNT  PER CALL  BLOCK  AT     INSNS  LOOP  WAYS OUT
        2,711      2.7x  b1     +0xc       1     1  b2:2,703  b4:7  (inside:1)
        2,703      2.7x  b2     +0xf       3     1  b3:902  ↺b1:1,801
          999      1.0x  b4     +0x1d      1        return:999
          995    100.0%  b0     +0x0       4        b1:910  b4:90
          902     90.7%  b3     +0x18      1        b4:900  b5:2
            2      0.2%  b5     +0x20      1        b6:2
            2      0.2%  b6     +0x22      1        b4:2
        does not add up: alpha: edge entry -> b0 was counted 995 times, the counters around it give 1000
        in 2.500 s; exact: no (0 of 1 functions)
        exit 3: not all counts are exact
    "#]].assert_eq(&run_with(&args, lose, false));
}

/// Would catch a guess in place of a count that is missing.
#[test]
fn what_is_not_counted_is_shown() {
    let args = BlocksArgs {
        annotate: true,
        ..args(&["alpha"])
    };
    expect![[r#"
        alpha  (running kernel 6.12.0-demo)
          entered 1,000, left 999, 1 inside; 6 of 7 blocks ran; 5 counters
          exact: no
          no counter: edge b1 -> b4, at alpha+0xc: nothing fits

        b0: 1,000 (100.0%)  entry
          1,000 |  +0x0  nopl (%rax,%rax)
          1,000 |  +0x5  xor %eax, %eax
          1,000 |  +0x7  test %rdi, %rdi
          1,000 |  +0xa  je +0x1d
              ? -> fall-through: b1
              ? -> taken: b4

        b1: ?  1 still inside; head of loop 0; loop depth 1; from b0: ?, b2: 1,801
              ? |  +0xc  add (%rdi), %rax
                         ^ may fault: goes on at +0x1d then
          2,703 -> fall-through: b2
              ? -> fixup: b4

        b2: 2,703 (2.7x)  loop depth 1; from b1: 2,703
          2,703 |  +0xf  add $8, %rdi
          2,703 | +0x13  dec %rsi
          2,703 | +0x16  jne +0xc
            902 -> fall-through: b3 (33.4%)
          1,801 -> taken: b1 (back edge) (66.6%)

        b3: 902 (90.2%)  from b2: 902
            902 | +0x18  nopl (%rax,%rax)
                         ^ static key demo_key: jumps to +0x20 while it is on
            900 -> key-off: b4 (99.8%)
              2 -> key-on: b5 (0.2%)

        b4: 999 (99.9%)  from b0: ?, b1: ?, b3: 900, b6: 2
            999 | +0x1d  ret
            999 -> return (100.0%)

        b5: 2 (0.2%)  from b3: 2
              2 | +0x20  ud2
                         ^ WARN at fs/demo.c:42
              2 -> trap-resume: b6 (100.0%)

        b6: 2 (0.2%)  from b5: 2
              2 | +0x22  jmp +0x1d
              2 -> jump: b4 (100.0%)
        in 2.500 s; exact: no (0 of 1 functions)
    "#]]
    .assert_eq(&run_with(&args, |_| {}, true));
}

#[test]
fn pictures_and_graphs() {
    let dir = scratch("pictures");
    let args = BlocksArgs {
        svg: Some(dir.join("alpha.svg")),
        dot: Some(dir.join("alpha.dot")),
        ..args(&["alpha"])
    };
    run(&args);
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("it was written");
    expect_file!["data/blocks-alpha.svg"].assert_eq(&read("alpha.svg"));
    expect_file!["data/blocks-alpha.dot"].assert_eq(&read("alpha.dot"));
    std::fs::remove_dir_all(dir).expect("it is ours");
}

/// Would catch a profile that says something else when it is read again.
#[test]
fn a_profile_is_read_again() {
    let dir = scratch("profile");
    let path = dir.join("p");
    let write = BlocksArgs {
        output: Some(path.clone()),
        ..args(&["alpha", "helper#2"])
    };
    let first = run(&write);
    let read = BlocksArgs {
        read: Some(path.clone()),
        ..args(&["alpha", "helper#2"])
    };
    assert_eq!(run(&read), first);
    // As weights: counters move to where they cost least.
    let weighted = BlocksArgs {
        weights: Some(path.clone()),
        plan: true,
        ..args(&["alpha"])
    };
    assert!(run(&weighted).contains("7 blocks"));
    // Damaged in every way that is cheap to think of: an error, never a panic, never half a profile.
    let good = std::fs::read_to_string(&path).expect("it was written");
    for damaged in [
        String::new(),
        "nonsense\n".into(),
        good.replace("kerninst.profile/1", "kerninst.profile/9"),
        good[..good.len() / 2].into(),
        good[..good.len() - 1].into(),
        good.lines().take(2).map(|l| format!("{l}\n")).collect(),
        good.replace("\"blocks\":[", "\"blocks\":[7,"),
        good.replace("\"functions\":2", "\"functions\":3"),
    ] {
        std::fs::write(&path, damaged).expect("a temporary file");
        let text = run(&read);
        assert!(text.starts_with("exit 2: "), "{text}");
    }
    std::fs::write(&path, good.replace("\"build_id\":\"", "\"build_id\":\"00"))
        .expect("a temporary file");
    let text = run(&read);
    assert!(text.contains("not of this kernel"), "{text}");
    std::fs::remove_dir_all(dir).expect("it is ours");
}

#[test]
fn what_cannot_be_counted() {
    let check = |functions: &[&str], expected: Expect| {
        expected.assert_eq(&run(&args(functions)));
    };
    check(
        &["early_entry"],
        expect![[r#"
        exit 2: nothing can be counted: early_entry: noinstr text: must not be instrumented
    "#]],
    );
    check(
        &["nowhere"],
        expect![[r#"
        exit 1: no function is called nowhere; `kerninst list '*nowhere*'` lists names that contain it
    "#]],
    );
    let args = BlocksArgs {
        svg: Some(PathBuf::from("/nonexistent/x.svg")),
        ..args(&["alpha"])
    };
    expect![[r#"
        exit 2: cannot write /nonexistent/x.svg: No such file or directory (os error 2)
    "#]]
    .assert_eq(&run(&args));
}

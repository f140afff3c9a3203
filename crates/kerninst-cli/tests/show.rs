//! `kerninst show` over a kernel made by hand, in all its forms.

mod common;

use expect_test::{Expect, expect, expect_file};
use kerninst_cli::args::{ShowArgs, Source, Syntax};
use kerninst_cli::show::show;

fn args(function: &str) -> ShowArgs {
    ShowArgs {
        function: function.into(),
        ..ShowArgs::default()
    }
}

fn run(args: &ShowArgs) -> String {
    let kernel = common::kernel();
    common::capture(|ui| show(&kernel, args, ui))
}

fn check(function: &str, expected: Expect) {
    expected.assert_eq(&run(&args(function)));
}

#[test]
fn a_function_with_everything() {
    check(
        "alpha",
        expect![[r#"
            alpha  (running kernel 6.12.0-demo)
              also called alpha_alias
              ffffffff81000010..ffffffff81000034; 36 bytes, 12 instructions, 7 blocks, 1 loop
              fentry site at +0x0
              control flow: complete
              11 of 12 instructions can be instrumented

            b0  entry
               +0x0  nopl (%rax,%rax)  refused          dead rax r10-r11 flags          live rcx rdx rbx rbp rsi rdi r8-r9 r12-r15
                     ^ refused (fentry): this is the function's fentry site, which ftrace owns; use the next instruction, at +0x5
               +0x5  xor %eax, %eax    springboard      dead rax rcx r8-r11 flags       live rdx rbx rbp rsi rdi r12-r15
               +0x7  test %rdi, %rdi   springboard      dead rcx r8-r11 flags           live rax rdx rbx rbp rsi rdi r12-r15
               +0xa  je +0x1d          springboard      dead rcx r8-r11 CF PF AF SF OF  live rax rdx rbx rbp rsi rdi r12-r15 ZF
                -> fall-through: b1
                -> taken: b4

            b1  head of loop 0; loop depth 1; from b0 b2
               +0xc  add (%rdi), %rax  springboard      dead rcx r8-r11 flags           live rax rdx rbx rbp rsi rdi r12-r15
                     ^ may fault: goes on at +0x1d then
                -> fall-through: b2
                -> fixup: b4

            b2  loop depth 1; from b1
               +0xf  add $8, %rdi      springboard      dead rcx r8-r11 flags           live rax rdx rbx rbp rsi rdi r12-r15
              +0x13  dec %rsi          springboard      dead rcx r8-r11 flags           live rax rdx rbx rbp rsi rdi r12-r15
              +0x16  jne +0xc          springboard      dead rcx r8-r11 CF PF AF SF OF  live rax rdx rbx rbp rsi rdi r12-r15 ZF
                -> fall-through: b3
                -> taken: b1 (back edge)

            b3  from b2
              +0x18  nopl (%rax,%rax)  hoist-short      dead rcx rsi rdi r8-r11 flags   live rax rdx rbx rbp r12-r15
                     ^ static key demo_key: jumps to +0x20 while it is on
                -> key-off: b4
                -> key-on: b5

            b4  from b0 b1 b3 b6
              +0x1d  ret               springboard      dead rcx rsi rdi r8-r11 flags   live rax rdx rbx rbp r12-r15
                -> return

            b5  unlikely; from b3
              +0x20  ud2               springboard      dead rcx rsi rdi r8-r11 flags   live rax rdx rbx rbp r12-r15
                     ^ WARN at fs/demo.c:42
                -> trap-resume: b6

            b6  unlikely; from b5
              +0x22  jmp +0x1d         in-place-padded  dead rcx rsi rdi r8-r11 flags   live rax rdx rbx rbp r12-r15
                -> jump: b4
        "#]],
    );
}

#[test]
fn a_string_and_a_tail_call() {
    check(
        "helper#1",
        expect![[r#"
            helper  (running kernel 6.12.0-demo)
              ffffffff81000040..ffffffff81000051; 17 bytes, 3 instructions, 1 block, 0 loops
              fentry site at +0x0
              control flow: complete
              2 of 3 instructions can be instrumented

            b0  entry
              +0x0  nopl (%rax,%rax)           refused   dead rax r10-r11 flags      live rcx rdx rbx rbp rsi rdi r8-r9 r12-r15
                    ^ refused (fentry): this is the function's fentry site, which ftrace owns; use the next instruction, at +0x5
              +0x5  mov $demo_key+0x1f0, %rdi  in-place  dead rax rdi r10-r11 flags  live rcx rdx rbx rbp rsi r8-r9 r12-r15
                    ^ "hello & <bye>"
              +0xc  jmp alpha                  in-place  dead rax r10-r11 flags      live rcx rdx rbx rbp rsi rdi r8-r9 r12-r15
                -> tail call alpha
        "#]],
    );
}

#[test]
fn a_function_that_cannot_be_instrumented_says_why_once() {
    check(
        "early_entry",
        expect![[r#"
        early_entry  (running kernel 6.12.0-demo)
          ffffffff81000070..ffffffff81000072; 2 bytes, 2 instructions, 1 block, 0 loops
          no fentry site: may not follow the C calling convention
          control flow: complete
          no instruction can be instrumented: noinstr text: must not be instrumented

        b0  entry
          +0x0  nop  -        dead -  live rax rcx rdx rbx rbp rsi rdi r8-r15 flags
          +0x1  ret  -        dead -  live rax rcx rdx rbx rbp rsi rdi r8-r15 flags
            -> return
    "#]],
    );
}

#[test]
fn bytes_and_intel_syntax() {
    let args = ShowArgs {
        bytes: true,
        syntax: Syntax::Intel,
        ..args("mod:helper")
    };
    expect![[r#"
        mod:helper  (module mod, running kernel 6.12.0-demo)
          ffffffffc0000000..ffffffffc0000008; 8 bytes, 3 instructions, 1 block, 0 loops
          fentry site at +0x0
          control flow: complete
          2 of 3 instructions can be instrumented

        b0  entry
          +0x0  0f1f440000  nop dword [rax+rax]  refused  dead rax r10-r11 flags             live rcx rdx rbx rbp rsi rdi r8-r9 r12-r15
                ^ refused (fentry): this is the function's fentry site, which ftrace owns; use the next instruction, at +0x5
          +0x5  31c0        xor eax, eax         int3     dead rax rcx rsi rdi r8-r11 flags  live rdx rbx rbp r12-r15
          +0x7  c3          ret                  int3     dead rcx rsi rdi r8-r11 flags      live rax rdx rbx rbp r12-r15
            -> return
    "#]].assert_eq(&run(&args));
}

#[test]
fn json() {
    let text = run(&ShowArgs {
        json: true,
        ..args("alpha")
    });
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).expect("each line is JSON"))
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["schema"], "kerninst.kernel/1");
    assert_eq!(lines[1]["schema"], "kerninst.show/1");
    // What docs/json.md promises, on one instruction in full.
    let insn = &lines[1]["blocks"][1]["insns"][0];
    expect![[r#"
        {
          "addr": "0xffffffff8100001c",
          "bytes": "480307",
          "dead": [
            "rcx",
            "r8",
            "r9",
            "r10",
            "r11",
            "CF",
            "PF",
            "AF",
            "ZF",
            "SF",
            "OF"
          ],
          "kind": "plain",
          "live": [
            "rax",
            "rdx",
            "rbx",
            "rbp",
            "rsi",
            "rdi",
            "r12",
            "r13",
            "r14",
            "r15"
          ],
          "notes": [
            "may fault: goes on at +0x1d then"
          ],
          "point": "alpha+0xc",
          "refused": null,
          "sites": [
            "extable"
          ],
          "tactic": "springboard",
          "text": "add (%rdi), %rax"
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(insn).expect("serialises"));
    let text = serde_json::to_string(&lines[1]["edges"]).expect("serialises");
    expect![[r#"
        [{"back":false,"from":0,"kind":"fall-through","to":1},
        {"back":false,"from":0,"kind":"taken","to":4},
        {"back":false,"from":1,"kind":"fall-through","to":2},
        {"back":false,"from":1,"kind":"fixup","to":4},
        {"back":false,"from":2,"kind":"fall-through","to":3},
        {"back":true,"from":2,"kind":"taken","to":1},
        {"back":false,"from":3,"kind":"key-off","to":4},
        {"back":false,"from":3,"kind":"key-on","to":5},
        {"back":false,"exit":"return","from":4,"kind":"exit","to":null},
        {"back":false,"from":5,"kind":"trap-resume","to":6},
        {"back":false,"from":6,"kind":"jump","to":4}]"#]]
    .assert_eq(&text.replace("},", "},\n"));
}

#[test]
fn graphviz() {
    expect![[r#"
        digraph "alpha" {
          node [shape=box, fontname=monospace, fontsize=10];
          edge [fontname=monospace, fontsize=9];
          label="alpha"; labelloc=t;
          b0 [label="b0\l+0x0  nopl (%rax,%rax)\l+0x5  xor %eax, %eax\l+0x7  test %rdi, %rdi\l+0xa  je +0x1d\l", style="filled", fillcolor=white, penwidth=2];
          b1 [label="b1\l+0xc  add (%rdi), %rax\l", style="filled", fillcolor=lightyellow];
          b2 [label="b2\l+0xf  add $8, %rdi\l+0x13  dec %rsi\l+0x16  jne +0xc\l", style="filled", fillcolor=lightyellow];
          b3 [label="b3\l+0x18  nopl (%rax,%rax)\l", style="filled", fillcolor=white];
          b4 [label="b4\l+0x1d  ret\l", style="filled", fillcolor=white];
          b5 [label="b5\l+0x20  ud2\l", style="filled,dashed", fillcolor=gray92];
          b6 [label="b6\l+0x22  jmp +0x1d\l", style="filled,dashed", fillcolor=gray92];
          b0 -> b1 [color=black, label=""];
          b0 -> b4 [color=darkgreen, label=""];
          b1 -> b2 [color=black, label=""];
          b1 -> b4 [color=red, label="fixup"];
          b2 -> b3 [color=black, label=""];
          b2 -> b1 [color=darkgreen, label="", constraint=false, style=bold];
          b3 -> b4 [color=purple, label="key-off"];
          b3 -> b5 [color=purple, label="key-on"];
          x8 [label="return", shape=plaintext];
          b4 -> x8 [style=dotted, label=""];
          b5 -> b6 [color=black, label=""];
          b6 -> b4 [color=blue, label=""];
        }
    "#]].assert_eq(&run(&ShowArgs { dot: true, ..args("alpha") }));
}

#[test]
fn picture() {
    let svg = run(&ShowArgs {
        svg: true,
        ..args("alpha")
    });
    expect_file!["data/alpha.svg"].assert_eq(&svg);
    let svg = run(&ShowArgs {
        svg: true,
        ..args("helper#1")
    });
    assert!(svg.contains("hello &amp; &lt;bye&gt;"), "text is escaped");
    assert!(!svg.contains("<bye>"));
}

#[test]
fn names_that_name_several_or_nothing() {
    let names = [
        "helper",
        "h*",
        "nothing*",
        "alhpa",
        "zzzzzzzz",
        "helper#7",
        "jiffies",
        "_stext",
        "0xffffffff82000000",
        "0x12",
        "0xzz",
        "",
        "alpha+0x4",
        "mod:alpha",
        "mod:helper",
    ];
    let mut all = String::new();
    for name in names {
        let text = run(&args(name));
        let failed = text.lines().find(|l| l.starts_with("exit"));
        all += &format!(
            "{name}: {}\n",
            failed.or(text.lines().next()).unwrap_or_default()
        );
    }
    expect![[r#"
        helper: exit 2: helper matches 3 functions: helper#1, helper#2, mod:helper; name one of them
        h*: exit 2: h* matches 3 functions: helper#1, helper#2, mod:helper; name one of them
        nothing*: exit 1: no function matches nothing*
        alhpa: exit 1: no function is called alhpa; did you mean alpha?
        zzzzzzzz: exit 1: no function is called zzzzzzzz; `kerninst list '*zzzzzzzz*'` lists names that contain it
        helper#7: exit 1: there is no helper#7: there are 2 of helper
        jiffies: exit 2: jiffies is a data symbol (writable, at 0xffffffff82000000), not a function
        _stext: exit 2: _stext is a symbol (a label that marks a place, at 0xffffffff81000000), not a function
        0xffffffff82000000: exit 1: 0xffffffff82000000 is not code: jiffies is a data symbol (writable, at 0xffffffff82000000)
        0x12: exit 1: no kernel function is at 0x12
        0xzz: exit 2: 0xzz is not an address: write 0x and up to 16 hexadecimal digits
        : exit 2: the name of the function is missing
        alpha+0x4: exit 2: a function is wanted, not a place in one: try alpha
        mod:alpha: exit 1: no function is called mod:alpha; did you mean alpha?
        mod:helper: mod:helper  (module mod, running kernel 6.12.0-demo)
    "#]].assert_eq(&all);
}

#[test]
fn addresses_and_aliases_find_their_function() {
    for name in [
        "0xffffffff8100001c",
        "alpha_alias",
        "alph?",
        "kernel:alpha",
        "alpha#1",
    ] {
        let text = run(&args(name));
        assert!(text.starts_with("alpha  ("), "{name}: {text}");
    }
}

#[test]
fn a_module_restricts_names() {
    let of = |module: &str, name: &str| {
        let source = Source {
            module: Some(module.into()),
            image: None,
        };
        let text = run(&ShowArgs {
            source,
            ..args(name)
        });
        text.lines().next().unwrap_or_default().to_string()
    };
    assert!(of("mod", "helper").starts_with("mod:helper  (module mod"));
    expect!["exit 2: alpha is in the core kernel, not in module mod"]
        .assert_eq(&of("mod", "alpha"));
    expect!["exit 1: no loaded module is called mud; did you mean mod?"]
        .assert_eq(&of("mud", "alpha"));
}

proptest::proptest! {
    /// Whatever is asked for: an answer or a sentence, never a panic.
    #[test]
    fn any_name_is_answered(name in "[a-z0-9#:*?+_.x -]{0,24}|\\PC{0,12}", svg: bool) {
        let text = run(&ShowArgs { svg, ..args(&name) });
        proptest::prop_assert!(!text.is_empty());
    }
}

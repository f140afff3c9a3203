//! Which bytes count as free.

mod listing;

use expect_test::{Expect, expect};
use kerninst_analysis::Analysis;
use listing::BASE;

/// All free ranges of a listing, as offsets.
fn check(code: &str, expected: Expect) {
    let kernel = listing::kernel(code);
    let analysis = Analysis::new(&kernel);
    let free: Vec<String> = analysis
        .padding_near(BASE, 0x10000)
        .iter()
        .map(|r| format!("{:x}..{:x}", r.start - BASE, r.end - BASE))
        .collect();
    expected.assert_eq(&free.join(" "));
}

#[test]
fn behind_a_return_and_in_front_of_a_function() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  c3
  66 90 90
__pfx_g:
  90x16
g:
  0f 1f 44 00 00 | fentry
  c3
  ccx9
",
        expect!["6..19 1f..28"],
    );
}

#[test]
fn prefix_with_code_is_not_free() {
    // Call depth tracking and FineIBT put code there.
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  c3
  cc
__pfx_g:
  90x10
  41 ba 01 00 00 00
g:
  0f 1f 44 00 00 | fentry
  c3
",
        expect!["6..7"],
    );
}

#[test]
fn fill_that_is_run_through_is_not_free() {
    // Alignment of a loop; assembly that runs into the next function; the return of a WARN.
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  85 ff
  66 90
.loop:
  ff cf
  75 <.loop
  c3
asm:
  31 c0
  90x4
__pfx_g:
  90x16
g:
  0f 1f 44 00 00 | fentry
  0f 0b | warn
  90x3
",
        expect![""],
    );
}

#[test]
fn fill_behind_calls() {
    // panic does not return: free. Nothing is known of h but that fill follows: not free.
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  e8 <<panic
  ccx3
g:
  0f 1f 44 00 00 | fentry
  e8 <<h
  ccx3
h:
  0f 1f 44 00 00 | fentry
  c3
panic:
  0f 1f 44 00 00 | fentry
  eb fe
",
        expect!["a..d"],
    );
}

#[test]
fn bytes_that_the_kernel_rewrites_are_not_free() {
    // The site of a static tail call is 5 bytes long; a jump label's target lies in the second gap.
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  c3 cc cc cc cc cc cc | static-tail tp
g:
  0f 1f 44 00 00 | fentry
  c3
  cc cc
.t:
  cc cc
h:
  66 90 | key .t
  c3
",
        expect!["a..c"],
    );
}

#[test]
fn alignment_inside_a_function() {
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  85 ff
  74 <.far
  c3
  0f 1f 40 00
.far:
  31 c0
  c3
asm:
  85 ff
  74 <.away
  c3
  90x4
.away:
  c3
",
        expect!["a..e"],
    );
}

#[test]
fn code_of_others_behind_a_function() {
    // A cold part of f behind g: it starts with a nop that g does not reach.
    check(
        "
f:
  0f 1f 44 00 00 | fentry
  0f 84 <<.cold
  c3
g:
  0f 1f 44 00 00 | fentry
  c3
  90
.cold:
  90
  31 c0
  c3
",
        expect![""],
    );
}

#[test]
fn the_window_cuts() {
    let kernel = listing::kernel(
        "
f:
  0f 1f 44 00 00 | fentry
  c3
  ccx32
g:
  0f 1f 44 00 00 | fentry
  c3
",
    );
    let analysis = Analysis::new(&kernel);
    assert_eq!(
        analysis.padding_near(BASE + 16, 4),
        vec![BASE + 12..BASE + 20]
    );
    assert_eq!(analysis.padding_near(BASE, 2), vec![]);
    assert_eq!(analysis.padding_near(0, u64::MAX), vec![]);
    assert_eq!(
        analysis.padding_near(BASE, u64::MAX),
        vec![BASE + 6..BASE + 38]
    );
}

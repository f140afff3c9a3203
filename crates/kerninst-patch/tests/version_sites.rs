//! What a version does with sites that the kernel rewrites.

mod common;

use common::{Case, F};
use kerninst_analysis::Analysis;
use kerninst_patch::{Boards, NoVersion, Options, Planner, Version};

fn version(case: &Case) -> Version {
    let kernel = case.kernel();
    let analysis = Analysis::new(&kernel);
    let f = analysis.function_at(F).expect("a function");
    let planner = Planner::new(&analysis, Options::default());
    let made = planner.version(&f, &[], None, &mut Boards::new());
    made.expect("a version").0
}

/// fentry site; mov $1,%eax, which the entry splice takes; a static key's site at +0xa, which leads to +0x12
const NOP: &str = "0f1f440000 b801000000 0f1f440000 31c0 c3 31c9 c3";
const JUMP: &str = "0f1f440000 b801000000 e903000000 31c0 c3 31c9 c3";

/// Would catch a table entry whose key the kernel's loader would write to: kernels before 6.10 crash of it.
#[test]
fn sealed_keys_have_no_entry_and_keep_their_state() {
    for (code, jumps) in [(NOP, false), (JUMP, true)] {
        let open = version(&Case::new(code).jump_label(0xa, 0x12).in_a_file());
        assert_eq!(
            open.splice.patch.jump_labels.len(),
            1,
            "an entry for a key that can change"
        );
        let sealed = version(&Case::new(code).jump_label(0xa, 0x12).sealed());
        assert!(sealed.splice.patch.jump_labels.is_empty());
        let bytes = &sealed.splice.patch.bytes;
        let site = if jumps {
            &[0xe9][..]
        } else {
            &[0x0f, 0x1f, 0x44][..]
        };
        assert!(bytes[5..].starts_with(site), "{bytes:02x?}");
    }
}

/// Would catch a site that the kernel was rewriting when its text was read (its first byte an int3) and that is taken for an
/// instruction of one byte, with rubbish behind it.
#[test]
fn a_site_that_is_being_rewritten_is_no_instruction() {
    for site in ["cc1f440000", "cc03000000", "0f03000000"] {
        let code = format!("0f1f440000 b801000000 {site} 31c0 c3 31c9 c3");
        let cases = [
            Case::new(&code).jump_label(0xa, 0x12),
            Case::new(&code).static_call(0xa),
        ];
        let cases = cases
            .iter()
            .take(if site.starts_with("cc") { 2 } else { 1 });
        for case in cases {
            let kernel = case.kernel();
            let analysis = Analysis::new(&kernel);
            let f = analysis.function_at(F).expect("a function");
            assert!(!f.incomplete.is_empty(), "{site}");
            let planner = Planner::new(&analysis, Options::default());
            let made = planner.version(&f, &[], None, &mut Boards::new());
            assert!(matches!(made, Err(NoVersion::Incomplete(_))), "{site}");
        }
    }
}

//! Owners of addresses, loops and dominators, call graph, and the whole-kernel run, on small listings.

mod listing;

use expect_test::{Expect, expect};
use kerninst_analysis::Analysis;
use listing::BASE;

const COLD: &str = "
f:
  0f 1f 44 00 00 | fentry
  0f 84 <<.cold
.back:
  c3
g:
  0f 1f 44 00 00 | fentry
  e8 <<f
  c3
.cold:
  31 c0
  e9 <<.back
h:
  0f 1f 44 00 00 | fentry
  85 ff
  0f 84 <<h.cold
  e9 <<f
  cc
h.cold:
  ff d0
  c3
";

#[test]
fn owners() {
    let kernel = listing::kernel(COLD);
    let analysis = Analysis::new(&kernel);
    let owner = |offset: u64| analysis.function_at(BASE + offset).map(|f| f.name.clone());
    let names: Vec<String> = (0..0x34)
        .map(|n| owner(n).unwrap_or_else(|| "-".to_string()))
        .collect();
    expect!["f f f f f f f f f f f f g g g g g g g g g g g f f f f f f f h h h h h h h h h h h h h h h h h h - h h h"].assert_eq(&names.join(" "));
    assert_eq!(owner(0x1000), None);
    assert!(analysis.function_at(0).is_none());
    assert!(analysis.function_at(u64::MAX).is_none());
}

#[test]
fn calls() {
    let kernel = listing::kernel(COLD);
    let analysis = Analysis::new(&kernel);
    let graph = analysis.call_graph();
    let list = |calls: Vec<&kerninst_analysis::Call>| -> Vec<String> {
        calls
            .iter()
            .map(|c| {
                format!(
                    "{:x} -> {:x} tail {}",
                    c.insn - BASE,
                    c.callee - BASE,
                    c.tail
                )
            })
            .collect()
    };
    expect![[r#"["11 -> 0 tail false", "2b -> 0 tail true"]"#]]
        .assert_eq(&format!("{:?}", list(graph.callers(BASE).collect())));
    let h = analysis
        .functions()
        .iter()
        .find(|f| f.name == "h")
        .map(|f| f.start)
        .unwrap();
    expect![[r#"["2b -> 0 tail true"]"#]]
        .assert_eq(&format!("{:?}", list(graph.callees(h).iter().collect())));
    assert_eq!(graph.indirect_calls(h), 1);
    assert_eq!(graph.indirect_calls(BASE), 0);
}

#[test]
fn the_whole_is_its_parts() {
    let kernel = listing::kernel(COLD);
    let analysis = Analysis::new(&kernel);
    let seen = std::sync::Mutex::new(Vec::new());
    let totals = analysis.all(|f| seen.lock().unwrap().push(f.clone()));
    let mut seen = seen.into_inner().unwrap();
    seen.sort_by_key(|f| f.entry());
    let ids = analysis.functions();
    assert_eq!(totals.functions, ids.len() as u64);
    assert_eq!(
        totals.insns,
        seen.iter().map(|f| f.insns.len() as u64).sum::<u64>()
    );
    for (f, id) in seen.iter().zip(&ids) {
        assert_eq!((f.entry(), &f.id), (id.start, &id.id));
        // On demand, from a fresh cache, it is the same.
        let fresh = Analysis::new(&kernel);
        assert_eq!(&*fresh.function_at(id.start).unwrap(), f);
    }
}

fn graph(code: &str, expected: Expect) {
    let kernel = listing::kernel(code);
    let analysis = Analysis::new(&kernel);
    let f = analysis.function_at(BASE).unwrap();
    let dominators = f.dominators();
    let mut out = String::new();
    for (n, idom) in dominators.idom.iter().enumerate() {
        let idom = idom.map_or("-".to_string(), |d| format!("b{d}"));
        out.push_str(&format!(
            "b{n} +{:x} idom {idom}\n",
            f.blocks[n].start - BASE
        ));
    }
    for l in f.loops() {
        out.push_str(&format!(
            "loop b{} blocks {:?} latches {:?} parent {:?} depth {}\n",
            l.header, l.blocks, l.latches, l.parent, l.depth
        ));
    }
    expected.assert_eq(&out);
}

#[test]
fn nested_loops() {
    graph(
        "
f:
  0f 1f 44 00 00 | fentry
.outer:
  85 ff
  74 <.skip
.inner:
  ff c9
  75 <.inner
  78 <.out
.skip:
  ff ca
  75 <.outer
.out:
  c3
",
        expect![[r#"
            b0 +0 idom -
            b1 +5 idom b0
            b2 +9 idom b1
            b3 +d idom b2
            b4 +f idom b1
            b5 +13 idom b1
            loop b1 blocks [1, 2, 3, 4] latches [4] parent None depth 1
            loop b2 blocks [2] latches [2] parent Some(0) depth 2
        "#]],
    );
}

#[test]
fn irreducible() {
    graph(
        "
f:
  0f 1f 44 00 00 | fentry
  85 ff
  74 <.b
.a:
  ff c9
.b:
  ff ca
  75 <.a
  c3
",
        expect![[r#"
            b0 +0 idom -
            b1 +9 idom b0
            b2 +b idom b0
            b3 +f idom b2
        "#]],
    );
}

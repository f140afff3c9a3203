//! Pictures of functions that are made by hand.

use super::*;
use crate::json::Hex;
use crate::show::model::Refused;

fn block(n: u64, lines: &[&str]) -> Block {
    let insn = |text: &&str| Insn {
        text: (*text).into(),
        offset: "+0x0".into(),
        tactic: Some("in-place"),
        ..Insn::default()
    };
    Block {
        start: Hex(n * 16),
        end: Hex(n * 16 + 16),
        entry: n == 0,
        insns: lines.iter().map(insn).collect(),
        ..Block::default()
    }
}

fn edge(from: usize, to: usize, count: Option<u64>) -> Edge {
    Edge {
        from,
        to: Some(to),
        kind: "taken",
        count,
        ..Edge::default()
    }
}

fn draw(view: &View) -> String {
    let mut out = Vec::new();
    write(view, "6.12", &mut out).expect("a Vec takes everything");
    String::from_utf8(out).expect("UTF-8")
}

/// Every opened element is closed, in order: enough to know that a viewer takes it.
fn check_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "unescaped: {text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap_or_default());
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn counts_are_heat_and_labels() {
    let mut view = View {
        id: "f".into(),
        blocks: vec![block(0, &["a"]), block(1, &["b"]), block(2, &["c"])],
        edges: vec![
            edge(0, 1, Some(1_234_567)),
            edge(0, 2, Some(0)),
            edge(1, 1, Some(9)),
        ],
        ..View::default()
    };
    assert!(
        !draw(&view).contains("class=\"heat\""),
        "no counts of blocks, no heat"
    );
    view.blocks[1].count = Some(1_234_567);
    view.blocks[2].count = Some(0);
    let svg = draw(&view);
    check_well_formed(&svg);
    // One that never ran is grey, and one line.
    assert_eq!(svg.matches("class=\"heat\"").count(), 1);
    assert!(svg.contains("fill=\"#f03b20\"") && svg.contains("never ran (1 instruction)"));
    assert_eq!(
        svg.matches(">1,234,567</text>").count(),
        1,
        "the edge's label"
    );
    assert!(svg.contains("stroke-width:5.0") && svg.contains("stroke-width:0.8"));
}

#[test]
fn anything_in_names_and_text_stays_text() {
    let mut evil = block(0, &["<script>&\"'\u{1}\u{ffff}", &"x".repeat(500)]);
    evil.insns[0].notes = vec!["]]>".into()];
    evil.insns[1].tactic = None;
    evil.insns[1].refused = Some(Refused {
        reason: "unsafe",
        text: "a<b".into(),
        nearest: None,
    });
    let exit = Edge {
        exit: Some("tail call <x>".into()),
        to: None,
        kind: "exit",
        ..Edge::default()
    };
    let view = View {
        id: "</svg>".into(),
        blocks: vec![evil],
        edges: vec![exit],
        ..View::default()
    };
    let svg = draw(&view);
    check_well_formed(&svg);
    assert!(!svg.contains("<script") && !svg.contains('\u{1}'));
    assert!(svg.contains("&lt;script&gt;&amp;&quot;"));
}

#[test]
fn edges_that_name_no_block_are_left_out() {
    let view = View {
        blocks: vec![block(0, &[])],
        edges: vec![edge(0, 9, None), edge(9, 0, None)],
        ..View::default()
    };
    check_well_formed(&draw(&view));
    check_well_formed(&draw(&View::default()));
}

/// An edge past many ranks is one path with few pieces, or pictures of large functions would have no end.
#[test]
fn long_edges_have_few_pieces() {
    let count = 400;
    let mut edges: Vec<Edge> = (0..count - 1).map(|n| edge(n, n + 1, None)).collect();
    edges.extend((0..count - 2).map(|n| edge(n, count - 1, None)));
    let view = View {
        blocks: (0..count as u64).map(|n| block(n, &["x"])).collect(),
        edges,
        ..View::default()
    };
    let svg = draw(&view);
    check_well_formed(&svg);
    assert!(svg.len() < 3_000 * count, "{} bytes", svg.len());
}

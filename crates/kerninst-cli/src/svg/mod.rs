//! A picture of a function's control flow: a self-contained SVG file, no scripts, no fonts of its own.
//!
//! Boxes are basic blocks with their disassembly, tinted by loop depth, grey where unlikely; lines are edges, coloured
//! by kind, those that close a loop in a colour of their own. Where blocks and edges have counts, boxes and lines show heat,
//! and blocks that never ran are one grey line each.

mod heading;
mod heat;

use std::fmt::Write as _;
use std::io::{self, Write};

pub use heat::{colour, heat, thousands};

use crate::layout::{self, Layout, Piece, Placed, Route, Spacing};
use crate::show::model::{Block, Edge, Insn, View};

const STYLE: &str = include_str!("style.css");
/// Height of a line of text, width of a character (11 px monospace: 0.602 em), and room around text in a box.
const LINE: f64 = 15.0;
const CHAR: f64 = 6.63;
const PAD: f64 = 8.0;
/// Longer lines are cut; the whole text is in the tooltip.
const LONGEST: usize = 72;
/// Writes the picture. `kernel` goes into the heading.
///
/// # Errors
/// What the writer says.
pub fn write(view: &View, kernel: &str, out: &mut dyn Write) -> io::Result<()> {
    let picture = Picture::new(view);
    let head = heading::height(view);
    let (width, height) = (
        picture.layout.width.max(720.0),
        picture.layout.height + head,
    );
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" xml:space="preserve">"#
    )?;
    writeln!(out, "<title>{}</title>", escape(&view.id))?;
    writeln!(out, "<style>\n{STYLE}</style>")?;
    writeln!(out, r#"<rect class="paper" width="100%" height="100%"/>"#)?;
    heading::write(view, kernel, out)?;
    writeln!(out, r#"<g transform="translate(0 {head})">"#)?;
    for (edge, route) in picture.edges.iter().zip(&picture.layout.edges) {
        picture.edge(edge, route, out)?;
    }
    for (n, placed) in picture.order.iter().zip(&picture.layout.nodes) {
        if let Some(block) = view.blocks.get(*n) {
            picture.block(*n, block, placed, out)?;
        }
    }
    // Labels last, so that no line runs over them.
    for (n, (edge, route)) in picture.edges.iter().zip(&picture.layout.edges).enumerate() {
        picture.label(n, edge, route, out)?;
    }
    writeln!(out, "</g>\n</svg>")
}

/// The function, laid out.
struct Picture<'a> {
    view: &'a View,
    /// Blocks as the layout has them: the entry first.
    order: Vec<usize>,
    /// The edges that lead to a block.
    edges: Vec<&'a Edge>,
    layout: Layout,
    /// The highest counts of blocks and edges.
    most: u64,
    most_edge: u64,
}

impl<'a> Picture<'a> {
    fn new(view: &'a View) -> Picture<'a> {
        let mut order: Vec<usize> = (0..view.blocks.len()).collect();
        order.sort_by_key(|n| (!view.blocks.get(*n).is_some_and(|b| b.entry), *n));
        let mut place = vec![0; order.len()];
        for (at, n) in order.iter().enumerate() {
            if let Some(p) = place.get_mut(*n) {
                *p = at;
            }
        }
        let unlikely = |n: usize| view.blocks.get(n).is_none_or(|b| b.unlikely);
        let mut edges = Vec::new();
        let mut links = Vec::new();
        for edge in &view.edges {
            let Some(to) = edge.to else { continue };
            let (Some(&a), Some(&b)) = (place.get(edge.from), place.get(to)) else {
                continue;
            };
            let weight = match edge.kind {
                _ if unlikely(to) && !unlikely(edge.from) => 0.3,
                "fall-through" | "call-return" => 3.0,
                _ => 1.0,
            };
            edges.push(edge);
            links.push(layout::Edge {
                from: a,
                to: b,
                weight,
            });
        }
        let blocks = order
            .iter()
            .filter_map(|n| Some((*n, view.blocks.get(*n)?)));
        let nodes: Vec<_> = blocks.map(|(n, b)| size(view, n, b)).collect();
        Picture {
            layout: layout::layout(&nodes, &links, Spacing::default()),
            most: view
                .blocks
                .iter()
                .filter_map(|b| b.count)
                .max()
                .unwrap_or(0),
            most_edge: edges.iter().filter_map(|e| e.count).max().unwrap_or(0),
            view,
            order,
            edges,
        }
    }

    fn block(&self, n: usize, block: &Block, at: &Placed, out: &mut dyn Write) -> io::Result<()> {
        let size = size(self.view, n, block);
        let class = match (block.unlikely || never(block), block.depth) {
            (true, _) => "unlikely".to_string(),
            (false, depth) => format!("d{}", depth.min(4)),
        };
        let entry = if block.entry { " entry" } else { "" };
        writeln!(
            out,
            r#"<g id="b{n}" transform="translate({:.1} {:.1})">"#,
            at.x, at.y
        )?;
        writeln!(
            out,
            r#"<rect class="box {class}{entry}" width="{:.1}" height="{:.1}" rx="4"/>"#,
            size.width, size.height
        )?;
        if let Some(count) = block.count.filter(|n| *n > 0) {
            let colour = colour(heat(count, self.most));
            writeln!(
                out,
                r#"<rect class="heat" x="1" y="1" width="{:.1}" height="{LINE}" rx="3" fill="{colour}"/>"#,
                size.width - 2.0
            )?;
        }
        // One bar for each loop around the block.
        for level in 0..block.depth.min(8) {
            let x = f64::from(level) * 4.0 - f64::from(block.depth.min(8)) * 4.0;
            writeln!(
                out,
                r#"<rect class="bar" x="{x:.0}" y="0" width="2.5" height="{:.1}"/>"#,
                size.height
            )?;
        }
        let (name, remarks) = head(self.view, n, block);
        // Dark text on heat, whatever the reader's colours are.
        let (name_class, class, y) = match (self.view.profile.is_some(), block.count) {
            (true, None) => ("name", "lost", LINE),
            (_, Some(n)) if n > 0 => ("name hot", "hot", LINE - 2.5),
            _ => ("name", "grey", LINE),
        };
        writeln!(
            out,
            r#"<text x="{PAD}" y="{y}"><tspan class="{name_class}">{name}</tspan><tspan class="{class}">{}</tspan></text>"#,
            escape(&remarks)
        )?;
        if never(block) {
            let lines: Vec<String> = block
                .insns
                .iter()
                .map(|i| format!("{}  {}", i.offset, i.text))
                .collect();
            writeln!(out, "<title>{}</title>", escape(&lines.join("\n")))?;
            return writeln!(out, "</g>");
        }
        let mut y = LINE * 2.0;
        let faint = if block.unlikely {
            r#" class="grey""#
        } else {
            ""
        };
        for i in &block.insns {
            // How an instruction would be instrumented is no news where counts are shown.
            let mark = match self.view.profile {
                Some(_) => String::new(),
                None => format!(
                    r#"<circle class="{}" cx="{PAD}" cy="{:.1}" r="2.6"/>"#,
                    mark(i),
                    y - 3.8
                ),
            };
            writeln!(
                out,
                r#"<g><title>{}</title>{mark}<text{faint} x="{:.1}" y="{y:.1}"><tspan class="grey">{}</tspan> {}</text></g>"#,
                escape(&tooltip(i)),
                PAD + 7.0,
                escape(&format!("{:<1$}", i.offset, offset_width(block))),
                escape(&cut(&i.text)),
            )?;
            y += LINE;
        }
        for exit in exits(self.view, n) {
            writeln!(
                out,
                r#"<text class="exit" x="{:.1}" y="{y:.1}">{}</text>"#,
                PAD + 7.0,
                escape(&exit)
            )?;
            y += LINE;
        }
        writeln!(out, "</g>")
    }

    fn edge(&self, edge: &Edge, route: &Route, out: &mut dyn Write) -> io::Result<()> {
        let Some(Piece::Line(x, y) | Piece::Curve([_, _, (x, y)])) = route.pieces.last() else {
            return Ok(());
        };
        let class = class(edge);
        let back = match (edge.back, route.back) {
            (true, _) => " back loops",
            (false, true) => " back",
            (false, false) => "",
        };
        let unlikely = |n: usize| self.view.blocks.get(n).is_some_and(|b| b.unlikely);
        let faint = if edge.count == Some(0) {
            " never"
        } else if edge.count.is_none() && edge.to.is_some_and(unlikely) {
            " faint"
        } else {
            ""
        };
        let mut d = format!("M{:.1} {:.1}", route.start.0, route.start.1);
        for piece in &route.pieces {
            // Writing to a String cannot fail.
            let _ = match piece {
                Piece::Line(x, y) => write!(d, "L{x:.1} {y:.1}"),
                Piece::Curve([a, b, c]) => {
                    write!(
                        d,
                        "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
                        a.0, a.1, b.0, b.1, c.0, c.1
                    )
                }
            };
        }
        let width = edge.count.map_or(String::new(), |c| {
            let width = 0.8 + 4.2 * heat(c, self.most_edge);
            format!(r#" style="stroke-width:{width:.1}""#)
        });
        let to = edge.to.unwrap_or_default();
        let count = edge
            .count
            .map_or(String::new(), |c| format!(", {} times", thousands(c)));
        writeln!(
            out,
            r#"<g class="edge{faint}"><title>b{} to b{to}: {}{count}</title><path class="e {class}{back}"{width} d="{d}"/><path class="tip {class}{back}" d="M{x:.1} {y:.1}l-4 -8h8z"/></g>"#,
            edge.from, edge.kind,
        )
    }

    fn label(&self, n: usize, edge: &Edge, route: &Route, out: &mut dyn Write) -> io::Result<()> {
        if route.pieces.is_empty() {
            return Ok(());
        }
        let text = match (edge.kind, edge.count) {
            // A thin grey line says it.
            (_, Some(0)) => return Ok(()),
            (_, Some(c)) => thousands(c),
            (_, None) if self.view.profile.is_some() => "?".into(),
            ("key-on", None) => "on".into(),
            ("key-off", None) => "off".into(),
            ("fixup", None) => "fault".into(),
            _ => return Ok(()),
        };
        // Labels of one block's ways out stand side by side: the first to the left of its line, the last to the right.
        let others = self.edges.iter().zip(&self.layout.edges).enumerate();
        let others = others.filter(|(_, (e, r))| e.from == edge.from && !r.pieces.is_empty());
        let place = |n: usize, r: &Route| (r.start.0, n);
        let before = others.filter(|(m, (_, r))| place(*m, r) < place(n, route));
        let before = before.count();
        let several = self.edges.iter().filter(|e| e.from == edge.from).count() > 1;
        let (x, y) = route.label;
        let (anchor, dx, dy) = match before {
            0 if several => (" end", -3.0, 11.0),
            0 | 1 => ("", 3.0, 11.0),
            more => ("", 3.0, 11.0 + 11.0 * (more - 1) as f64),
        };
        let lost = match edge.count {
            None if self.view.profile.is_some() => " lost",
            _ => "",
        };
        writeln!(
            out,
            r#"<text class="label halo{anchor}{lost}" x="{:.1}" y="{:.1}">{text}</text>"#,
            x + dx,
            y + dy
        )
    }
}

/// CSS class of an edge.
fn class(edge: &Edge) -> &'static str {
    match edge.kind {
        "taken" => "taken",
        "jump" => "jump",
        "key-on" | "key-off" => "key",
        "fixup" => "fixup",
        _ => "fall",
    }
}

/// CSS class of an instruction's mark.
fn mark(i: &Insn) -> &'static str {
    match i.tactic {
        Some("int3") => "trap",
        Some(_) => "ok",
        None => "no",
    }
}

fn head(view: &View, n: usize, block: &Block) -> (String, String) {
    let mut remarks = Vec::new();
    if block.entry {
        remarks.push("entry".to_string());
    } else if block.root {
        remarks.push("entered from elsewhere".into());
    }
    if let Some(l) = view.loops.iter().find(|l| l.header == n) {
        remarks.push(format!("loop head, depth {}", l.depth));
    }
    if block.cold {
        remarks.push("cold".into());
    }
    if block.inside > 0 {
        remarks.insert(0, format!("{} still inside", thousands(block.inside)));
    }
    match block.count {
        Some(0) => remarks.push(format!(
            "never ran ({})",
            crate::short::number(block.insns.len(), "instruction")
        )),
        Some(c) => remarks.insert(0, thousands(c)),
        None if view.profile.is_some() => remarks.insert(0, "count not known".into()),
        None => {}
    }
    let remarks = remarks.join(", ");
    let gap = if remarks.is_empty() { "" } else { "  " };
    (format!("b{n}"), format!("{gap}{remarks}"))
}

fn offset_width(block: &Block) -> usize {
    block
        .insns
        .iter()
        .map(|i| i.offset.len())
        .max()
        .unwrap_or(0)
}

/// Ways out of the function, a line each.
fn exits(view: &View, n: usize) -> Vec<String> {
    let out = view.edges.iter().filter(|e| e.from == n && e.to.is_none());
    let text = |e: &Edge| {
        let count = e
            .count
            .map_or(String::new(), |c| format!(": {}", thousands(c)));
        let kind = if e.kind == "exit" {
            String::new()
        } else {
            format!(" ({})", e.kind)
        };
        format!(
            "\u{2192} {}{kind}{count}",
            cut(e.exit.as_deref().unwrap_or("unknown"))
        )
    };
    out.map(text).collect()
}

/// Is it known that the block never ran?
fn never(block: &Block) -> bool {
    block.count == Some(0)
}

fn size(view: &View, n: usize, block: &Block) -> layout::Node {
    let (name, remarks) = head(view, n, block);
    if never(block) {
        let characters = name.len() + remarks.chars().count();
        return layout::Node {
            width: characters as f64 * CHAR + 2.0 * PAD,
            height: LINE + 7.0,
        };
    }
    let offset = offset_width(block);
    let insns = block
        .insns
        .iter()
        .map(|i| offset + 1 + cut(&i.text).chars().count());
    let exits = exits(view, n);
    let lines = insns.chain(exits.iter().map(|e| e.chars().count()));
    let widest = lines
        .max()
        .unwrap_or(0)
        .max(name.len() + remarks.chars().count());
    layout::Node {
        width: widest as f64 * CHAR + 2.0 * PAD + 7.0,
        height: (1 + block.insns.len() + exits.len()) as f64 * LINE + 7.0,
    }
}

fn tooltip(i: &Insn) -> String {
    let mut lines = vec![format!("{}  {}", i.point, i.text)];
    match (&i.tactic, &i.refused) {
        (Some(t), _) => lines.push(format!("tactic: {t}")),
        (None, Some(r)) => lines.push(format!("refused ({}): {}", r.reason, r.text)),
        (None, None) => {}
    }
    lines.push(format!("dead: {}", i.dead.join(" ")));
    lines.push(format!("live: {}", i.live.join(" ")));
    lines.extend(i.notes.iter().cloned());
    lines.join("\n")
}

fn cut(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_string();
    }
    text.chars().take(LONGEST - 1).chain(['\u{2026}']).collect()
}

/// For XML text and attributes. Control characters, which XML forbids, are replaced.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;

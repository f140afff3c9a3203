//! A function as a Graphviz graph.

use std::io::{self, Write};

use super::model::View;

/// Writes it.
pub fn write(view: &View, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "digraph {} {{", quote(&view.id))?;
    writeln!(out, "  node [shape=box, fontname=monospace, fontsize=10];")?;
    writeln!(out, "  edge [fontname=monospace, fontsize=9];")?;
    writeln!(out, "  label={}; labelloc=t;", quote(&view.id))?;
    for (n, block) in view.blocks.iter().enumerate() {
        let mut label = format!("b{n}");
        if let Some(c) = block.count {
            label.push_str(&format!("  count {c}"));
        }
        let mut text = escape(&label) + "\\l";
        for i in &block.insns {
            text += &escape(&format!("{}  {}", i.offset, i.text));
            // Lines end left-aligned.
            text += "\\l";
        }
        let mut style = vec!["filled"];
        if block.unlikely {
            style.push("dashed");
        }
        let fill = match (block.unlikely, block.depth) {
            (true, _) => "gray92",
            (false, 0) => "white",
            (false, 1) => "lightyellow",
            (false, 2) => "khaki1",
            (false, _) => "gold1",
        };
        let bold = if block.entry { ", penwidth=2" } else { "" };
        writeln!(
            out,
            "  b{n} [label=\"{text}\", style=\"{}\", fillcolor={fill}{bold}];",
            style.join(",")
        )?;
    }
    for (n, e) in view.edges.iter().enumerate() {
        let colour = match e.kind {
            "taken" => "darkgreen",
            "fall-through" | "call-return" | "trap-resume" => "black",
            "key-on" | "key-off" => "purple",
            "fixup" => "red",
            _ => "blue",
        };
        let mut label = match e.kind {
            "key-on" | "key-off" | "fixup" => e.kind.to_string(),
            _ => String::new(),
        };
        if let Some(c) = e.count {
            label = format!("{label} {c}").trim().to_string();
        }
        let label = quote(&label);
        match (&e.to, &e.exit) {
            (Some(to), _) => {
                // Back edges must not pull their target down.
                let free = if e.back {
                    ", constraint=false, style=bold"
                } else {
                    ""
                };
                writeln!(
                    out,
                    "  b{} -> b{to} [color={colour}, label={label}{free}];",
                    e.from
                )?;
            }
            (None, exit) => {
                let exit = quote(exit.as_deref().unwrap_or("unknown"));
                writeln!(out, "  x{n} [label={exit}, shape=plaintext];")?;
                writeln!(out, "  b{} -> x{n} [style=dotted, label={label}];", e.from)?;
            }
        }
    }
    writeln!(out, "}}")
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn quote(text: &str) -> String {
    format!("\"{}\"", escape(text))
}

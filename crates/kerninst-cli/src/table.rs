//! Tables with aligned columns.

use std::io::{self, Write};

use crate::paint::{Paint, Style};

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table: columns, then rows of as many cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    /// An empty table with these columns.
    #[must_use]
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// No rows?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes it. The last column is not padded, so that no line ends in blanks.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&self, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
        // A heading over nothing says nothing.
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut widths: Vec<usize> = self.columns.iter().map(|c| c.0.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.0.chars().count());
            }
        }
        let head = self.columns.iter().map(|c| (c.0.to_string(), Style::Bold));
        self.line(out, &head.collect::<Vec<_>>(), &widths, paint)?;
        for row in &self.rows {
            self.line(out, row, &widths, paint)?;
        }
        Ok(())
    }

    fn line(
        &self,
        out: &mut dyn Write,
        cells: &[(String, Style)],
        widths: &[usize],
        paint: Paint,
    ) -> io::Result<()> {
        // Blanks are held back until something follows them.
        let mut blanks = 0;
        for (n, ((text, style), (column, width))) in cells
            .iter()
            .zip(self.columns.iter().zip(widths))
            .enumerate()
        {
            if n > 0 {
                blanks += 2;
            }
            let pad = width.saturating_sub(text.chars().count());
            if column.1 == Align::Right {
                blanks += pad;
            }
            if !text.is_empty() {
                write!(out, "{:blanks$}{}", "", paint.paint(*style, text))?;
                blanks = 0;
            }
            if column.1 == Align::Left {
                blanks += pad;
            }
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let mut t = Table::new(&[
            ("COUNT", Align::Right),
            ("POINT", Align::Left),
            ("NOTE", Align::Left),
        ]);
        for (count, point, note) in [("7", "a", ""), ("1234567", "insn:b+0x1", "x")] {
            t.row(
                [count, point, note]
                    .map(|c| (c.to_string(), Style::Plain))
                    .to_vec(),
            );
        }
        let mut out = Vec::new();
        t.write(&mut out, Paint(false))
            .expect("a Vec takes everything");
        expect_test::expect![[r#"
              COUNT  POINT       NOTE
                  7  a
            1234567  insn:b+0x1  x
        "#]]
        .assert_eq(&String::from_utf8_lossy(&out));
    }
}

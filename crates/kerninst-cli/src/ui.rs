//! What a verb writes to.

use std::io::{self, Write};

use crate::paint::{Paint, Style};

/// Results, messages, and whether to colour them.
pub struct Ui<'a> {
    /// Results: stdout.
    pub out: &'a mut dyn Write,
    /// Everything else: stderr.
    pub err: &'a mut dyn Write,
    /// Colour of results.
    pub paint: Paint,
    /// Colour of messages.
    pub err_paint: Paint,
}

impl Ui<'_> {
    /// A message about something that is not as it should be.
    pub fn warn(&mut self, text: &str) {
        let name = self.err_paint.paint(Style::Warn, "kerninst:");
        // There is nobody to tell that stderr is closed.
        let _ = writeln!(self.err, "{name} {text}");
    }

    /// A message that explains.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}");
    }

    /// Passes results on to the reader.
    ///
    /// # Errors
    /// What stdout says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

//! The events that a session's programs send, numbered.

use crate::layout::{Event, record};

/// All events of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events(Vec<Event>);

impl Events {
    /// By number.
    pub fn get(&self, number: u16) -> Option<&Event> {
        self.0.get(usize::from(number))
    }

    /// All, in the order of their numbers.
    pub fn all(&self) -> &[Event] {
        &self.0
    }

    /// The number of an event, which is new or was there; `None`: there are too many.
    pub(super) fn add(&mut self, event: Event) -> Option<u16> {
        let known = self.0.iter().position(|e| *e == event);
        let number = u16::try_from(known.unwrap_or(self.0.len())).ok()?;
        if number == record::VOID {
            return None;
        }
        if known.is_none() {
            self.0.push(event);
        }
        Some(number)
    }
}

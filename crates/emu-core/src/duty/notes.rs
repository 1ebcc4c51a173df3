//! What threads have to tell the user.

use std::sync::{Arc, Mutex, PoisonError};

/// What a thread has to tell the user, each thing once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

/// No more than so many: a program that gives cause for a note can give it again and again.
const NOTES_MAX: usize = 20;

impl Notes {
    /// Adds one, unless it is there already.
    pub(crate) fn add(&self, note: String) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < NOTES_MAX && !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

//! What threads have to tell the user.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What threads have to tell the user, each thing once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    problems: Vec<String>,
    notes: Vec<String>,
}

/// The most of each kind: a program that gives cause for a note can give it again and again.
const NOTES_MAX: usize = 20;

impl Notes {
    pub(crate) fn add(&self, note: String) {
        add(&mut self.lists().notes, note);
    }

    /// A problem lets tasks or CPUs escape the limit.
    pub(crate) fn add_problem(&self, problem: String) {
        add(&mut self.lists().problems, problem);
    }

    /// Without the problems.
    pub(crate) fn list(&self) -> Vec<String> {
        self.lists().notes.clone()
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.lists().problems.clone()
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(list: &mut Vec<String>, text: String) {
    if list.len() < NOTES_MAX && !list.contains(&text) {
        list.push(text);
    }
}

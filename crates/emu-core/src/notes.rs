//! What threads have to tell the user.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a thread has to tell the user, each thing once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    /// What lets something escape the limit.
    problems: Vec<String>,
    /// The rest.
    notes: Vec<String>,
}

/// No more than so many of each: a program that gives cause for a note can give it again and again.
const NOTES_MAX: usize = 20;

impl Notes {
    /// Adds one, unless it is there already.
    pub(crate) fn add(&self, note: String) {
        add(&mut self.lists().notes, note);
    }

    /// Adds something that lets tasks or CPUs escape the limit, unless it is there already.
    pub(crate) fn add_problem(&self, problem: String) {
        add(&mut self.lists().problems, problem);
    }

    /// All of them but the problems.
    pub(crate) fn list(&self) -> Vec<String> {
        self.lists().notes.clone()
    }

    /// All problems.
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

//! What threads have to tell the user.

use std::sync::{Arc, Mutex};

use crate::sys::lock;

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
        add(&mut lock(&self.0).notes, note);
    }

    /// A problem lets tasks or CPUs escape the limit.
    pub(crate) fn add_problem(&self, problem: String) {
        add(&mut lock(&self.0).problems, problem);
    }

    /// Without the problems.
    pub(crate) fn list(&self) -> Vec<String> {
        lock(&self.0).notes.clone()
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        lock(&self.0).problems.clone()
    }
}

fn add(list: &mut Vec<String>, text: String) {
    if list.len() < NOTES_MAX && !list.contains(&text) {
        list.push(text);
    }
}

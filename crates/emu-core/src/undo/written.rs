//! What a session knows of a control file that it has changed.

use std::path::Path;

use super::form::Form;
use super::recent::Recent;
use super::record::Undo;

#[derive(Debug, Clone)]
pub(super) struct Written {
    form: Form,
    /// The value when the session first read the file.
    pub(super) found: String,
    /// The value to restore: `found`, or the one from before another live session changed it.
    pub(super) old: String,
    ours: Recent,
}

impl Written {
    pub(super) fn new(form: Form, found: &str, original: Option<&str>) -> Self {
        Self { form, found: found.into(), old: original.unwrap_or(found).into(), ours: Recent::default() }
    }

    pub(super) fn knows(&self, value: &str) -> bool {
        self.old == value || self.ours.has(value)
    }

    pub(super) fn add<'a>(&mut self, values: impl IntoIterator<Item = &'a str>) {
        self.ours.add(values.into_iter().map(str::trim));
    }

    pub(super) fn undo(&self, path: &Path) -> Undo {
        self.undo_with(path, self.ours.values().to_vec())
    }

    /// The record for a write whose result is not known yet.
    pub(super) fn undo_under_way(&self, path: &Path) -> Undo {
        self.undo_with(path, Vec::new())
    }

    fn undo_with(&self, path: &Path, new: Vec<String>) -> Undo {
        let (path, old) = (path.into(), self.old.clone());
        match self.form {
            Form::Plain => Undo::File { path, old, new },
            Form::Choice => Undo::Choice { path, old, new },
        }
    }
}

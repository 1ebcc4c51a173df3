//! What a session knows of a control file that it has changed.

use std::path::Path;

use super::file::Form;
use super::record::Undo;

/// So many values of a file are known as ours, or as many as were given at once.
const OURS_MAX: usize = 16;

#[derive(Debug, Clone)]
pub(super) struct Written {
    form: Form,
    /// What it held when the session came to it.
    pub(super) found: String,
    /// What is put back: as found, or what another session found that had changed it before.
    pub(super) old: String,
    /// The one written last is the last one.
    ours: Vec<String>,
}

impl Written {
    pub(super) fn new(form: Form, found: &str, original: Option<&str>) -> Self {
        Self { form, found: found.into(), old: original.unwrap_or(found).into(), ours: Vec::new() }
    }

    pub(super) fn knows(&self, value: &str) -> bool {
        self.old == value || self.ours.iter().any(|ours| ours == value)
    }

    /// Takes in values that the file may have by us. Of those before, the file can only have one that was written last, so
    /// a few are kept: whoever takes turns between them needs no record each time.
    pub(super) fn add<'a>(&mut self, values: impl IntoIterator<Item = &'a str>) {
        let mut count = 0;
        for value in values {
            let value = value.trim();
            self.ours.retain(|ours| ours != value);
            self.ours.push(value.into());
            count += 1;
        }
        self.ours.drain(..self.ours.len().saturating_sub(OURS_MAX.max(count)));
    }

    pub(super) fn undo(&self, path: &Path) -> Undo {
        self.undo_with(path, self.ours.clone())
    }

    /// For a write whose result is not known yet.
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

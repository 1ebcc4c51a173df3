//! A file for a result that takes its time: whether it can be written shows before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use emu_core::{Error, ErrorKind, Result};

/// A file that can be written, held open until there is something to write.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    file: File,
    /// The file was not there before and has nothing in it, or a part only.
    new: bool,
}

impl OutputFile {
    /// Opens or creates the file and leaves its contents alone.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let new = !path.exists();
        let mut options = OpenOptions::new();
        let opened = super::open(path, options.write(true).create(true).truncate(false));
        let file = opened.map_err(|e| {
            let error = Error::file("write", path, e);
            let kind = if error.kind() == ErrorKind::NotPermitted {
                ErrorKind::NotPermitted
            } else {
                ErrorKind::Usage
            };
            error.with_kind(kind).hint("name a file that can be written")
        })?;
        // Whoever has opened it may be in another folder when it is removed. A link to it may lead nowhere by then.
        let whole = path.canonicalize().or_else(|_| std::path::absolute(path));
        let path = whole.map_err(|e| Error::file("find", path, e))?;
        Ok(Self { path, file, new })
    }

    pub(crate) fn write(&mut self, text: &str) -> Result<()> {
        // A pipe or a terminal has no length to cut.
        let regular = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let ready = if regular { self.empty() } else { Ok(()) };
        let written = ready.and_then(|()| self.file.write_all(text.as_bytes()));
        self.new &= written.is_err();
        written.map_err(|e| Error::file("write", &self.path, e))
    }

    /// Empties the file, or makes it anew where it was removed meanwhile: a build cleans its folder.
    fn empty(&mut self) -> io::Result<()> {
        if self.is_there() {
            return self.file.set_len(0).and_then(|()| self.file.rewind());
        }
        let made = File::create_new(&self.path).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                io::Error::other("something else was put there meanwhile, and is left as it is")
            }
            io::ErrorKind::NotFound => io::Error::other("it was removed meanwhile, and so was its folder"),
            _ => e,
        });
        (self.file, self.new) = (made?, true);
        Ok(())
    }

    /// Whether the path still leads to this file.
    fn is_there(&self) -> bool {
        let of = |metadata: io::Result<fs::Metadata>| metadata.map(|it| (it.dev(), it.ino()));
        matches!((of(self.file.metadata()), of(self.path.metadata())), (Ok(ours), Ok(there)) if ours == there)
    }
}

impl Drop for OutputFile {
    /// A run that did not come about leaves no empty file, a full disk no part of one.
    fn drop(&mut self) {
        if self.new && self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_when_there_is_something_to_write() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::write(&old, "old and long").unwrap();
        drop(OutputFile::open(&old).unwrap());
        assert_eq!(fs::read_to_string(&old).unwrap(), "old and long");
        drop(OutputFile::open(&new).unwrap());
        assert!(!new.exists());
        for path in [&old, &new] {
            OutputFile::open(path).unwrap().write("{}").unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), "{}");
        }
    }

    #[test]
    fn a_file_that_is_removed_meanwhile_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, link) = (dir.path().join("folder"), dir.path().join("link"));
        let path = folder.join("file");
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for through in [&path, &link] {
            let mut file = OutputFile::open(through).unwrap();
            fs::remove_dir_all(&folder).unwrap();
            let error = file.write("{}").unwrap_err().in_words();
            assert!(error.contains("so was its folder"), "{error}");
            fs::create_dir(&folder).unwrap();
            file.write("{}").unwrap();
            drop(file);
            assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
        }
    }

    #[test]
    fn what_somebody_else_has_put_there_is_left_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        for is_new in [true, false] {
            let mut file = OutputFile::open(&path).unwrap();
            assert_eq!(file.new, is_new);
            fs::write(&other, "theirs").unwrap();
            fs::rename(&other, &path).unwrap();
            let error = file.write("{}").unwrap_err().in_words();
            assert!(error.contains("something else"), "{error}");
            drop(file);
            assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        }
    }

    #[test]
    fn a_new_file_that_cannot_be_written_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        for is_new in [true, false] {
            let path = dir.path().join("file");
            fs::write(&path, "").unwrap();
            let file = File::open(&path).unwrap();
            assert!(OutputFile { path: path.clone(), file, new: is_new }.write("{}").is_err());
            assert_eq!(path.exists(), !is_new);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("none/x")] {
            let error = OutputFile::open(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.hint_text().is_some());
        }
        assert!(OutputFile::open(Path::new("/dev/null")).unwrap().write("{}").is_ok());
    }
}

//! Files that somebody names, read whole: they may be of any kind, and of any size.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The most bytes of settings or figures.
pub const SIZE_MAX: u64 = 16 << 20;

/// The most bytes of a trace, or of a record with as many steps.
pub const TRACE_MAX: u64 = 64 << 20;

/// Reads a regular file of at most `most` bytes. Never waits: a FIFO would be opened when somebody writes to it, and emu takes
/// its signals from a descriptor, between two steps.
///
/// # Errors
/// The file cannot be read, is of another kind, is larger, or is not UTF-8.
pub fn read(path: &Path, most: u64) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    read_all(file, most)
}

/// As [`read`], of any kind of file, such as a pipe of the shell's: it waits for what has nothing to read yet.
///
/// # Errors
/// As [`read`], but for the kind.
pub fn read_any(path: &Path, most: u64) -> io::Result<String> {
    read_all(File::open(path)?, most)
}

/// Reads at most `most` bytes of whatever it is, until its end.
///
/// # Errors
/// It cannot be read, has more, or is not UTF-8.
pub fn read_all(source: impl Read, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    let length = source.take(most + 1).read_to_end(&mut bytes)?;
    if length as u64 > most {
        let why = format!("it has more than {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text (UTF-8)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let [fifo, file] = ["fifo", "file"].map(|name| dir.path().join(name));
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        fs::write(&file, "text").unwrap();
        for path in [fifo.as_path(), dir.path(), Path::new("/dev/zero")] {
            let error = read(path, SIZE_MAX).unwrap_err();
            assert_eq!(error.to_string(), "it is no regular file", "{}", path.display());
        }
        assert_eq!(read(&file, 4).unwrap(), "text");
    }

    #[test]
    fn what_is_larger_than_stated_is_refused() {
        assert_eq!(read_all(&b"text"[..], 4).unwrap(), "text");
        assert_eq!(read_all(&b"text"[..], 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_all(io::repeat(b'0'), 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_all(&b"\xff"[..], 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

//! Reading and writing the small files by which the kernel is asked and told things. Every failure names operation, path and
//! value.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::str::FromStr;

use crate::cpu_list::CpuList;
use crate::error::{Error, ErrorKind, Result};

/// The contents without surrounding white space.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(|e| Error::file("read", path, e))
}

/// As [`read`], but a file that does not exist is `None`.
///
/// # Errors
/// Any other failure than that the file does not exist (`ENOENT`, `ENODEV`, `ENOTDIR`).
pub fn read_if_present(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ENOTDIR)) => Ok(None),
        Err(e) => Err(Error::file("read", path, e)),
    }
}

/// Reads one value; a file that is absent, unreadable or holds something else is `None`. For facts that only describe the host,
/// where a strange file must not stop anybody.
pub fn probe<T: FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The choice in force in a file that reads as all of them with that one in brackets: `madvise` of `always [madvise] never`.
pub fn chosen(text: &[u8]) -> Option<&[u8]> {
    let from = text.iter().position(|&byte| byte == b'[')? + 1;
    let length = text.get(from..)?.iter().position(|&byte| byte == b']')?;
    text.get(from..from + length)
}

/// As [`probe`], for a file in the kernel's list format, in which an empty line means no CPU.
pub fn probe_cpus(path: &Path) -> Option<CpuList> {
    CpuList::from_kernel(&probe::<String>(path)?)
}

/// With a single `write(2)`, as kernel files expect.
pub(crate) fn write(path: &Path, value: &str) -> Result<()> {
    // The kernel's own files have no length to cut; a recorded tree is made of files that do.
    let opened = fs::OpenOptions::new().write(true).truncate(true).open(path);
    let mut file = opened.map_err(|e| write_error(path, value, e))?;
    file.write_all(value.as_bytes()).map_err(|e| write_error(path, value, e))
}

fn write_error(path: &Path, value: &str, cause: io::Error) -> Error {
    Error::io(format!("cannot write `{value}` to {}", path.display()), cause)
}

pub(crate) fn unexpected(text: &str, path: &Path) -> Error {
    Error::new(ErrorKind::Failed, format!("unexpected `{}` in {}", text.trim(), path.display()))
}

/// Whether this process may write to the file or folder, judged by its effective identity: a binary with file capabilities has
/// more than the user who started it.
pub fn is_writable(path: &Path) -> bool {
    use nix::fcntl::{AT_FDCWD, AtFlags};
    nix::unistd::faccessat(AT_FDCWD, path, nix::unistd::AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_none_only_where_that_is_asked_for() {
        let path = Path::new("/nonexistent/emu");
        assert_eq!(read_if_present(path).unwrap(), None);
        assert_eq!(read(path).unwrap_err().to_string(), "cannot read /nonexistent/emu");
    }

    #[test]
    fn a_failed_write_names_value_and_path() {
        let error = write(Path::new("/nonexistent/cpu.max"), "20000 100000").unwrap_err();
        assert_eq!(error.to_string(), "cannot write `20000 100000` to /nonexistent/cpu.max");
    }

    #[test]
    fn a_probe_takes_what_makes_no_sense_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        fs::write(&path, "<unsupported>\n").unwrap();
        assert_eq!(read(&path).unwrap(), "<unsupported>");
        assert_eq!(probe::<u64>(&path), None);
        assert_eq!(probe_cpus(&path), None);
        for (text, cpus) in [("0-2,5\n", &[0, 1, 2, 5][..]), ("\n", &[])] {
            fs::write(&path, text).unwrap();
            assert_eq!(probe_cpus(&path), Some(cpus.iter().copied().collect()));
        }
        fs::write(&path, "12\n").unwrap();
        assert_eq!(probe::<u64>(&path), Some(12));
        assert_eq!(read(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::Failed);
    }
}

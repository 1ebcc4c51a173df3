//! Whether the command can be run, looked up before anything is changed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use emu_core::{Error, ErrorKind};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::exit::{Exit, Failure};

/// Where programs are looked for without `PATH` (execvp(3), glibc).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Looks the program up as `execvp` does; emu ends as `env(1)` does. A wrong format, say, shows when it is executed.
pub(crate) fn check(program: &OsStr) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let failed = |exit, cause: io::Error, hint: &'static str| {
        let message = format!("cannot run `{}`", program.to_string_lossy());
        Failure::new(exit, Error::new(ErrorKind::Usage, message).caused_by(cause).hint(hint))
    };
    match look_up(program, &path) {
        Ok(()) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Err(failed(
            Exit::NotFound,
            cause,
            "check its spelling, PATH, and that options of emu come before it",
        )),
        Err(cause) => Err(failed(Exit::NotExecutable, cause, "make it executable, or name its interpreter")),
    }
}

/// The first executable file wins; else one that is not executable explains more than one that is not there.
fn look_up(program: &OsStr, path: &OsStr) -> io::Result<()> {
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![program.into()]
    } else if program.is_empty() {
        vec![]
    } else {
        std::env::split_paths(path).map(|dir| dir.join(program)).collect()
    };
    let mut worst = io::Error::from(rustix::io::Errno::NOENT);
    for candidate in candidates {
        match executable(&candidate) {
            Ok(()) => return Ok(()),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(e) => worst = e,
        }
    }
    Err(worst)
}

fn executable(path: &Path) -> io::Result<()> {
    if !path.metadata()?.is_file() {
        // What the kernel says of a folder.
        return Err(rustix::io::Errno::ACCESS.into());
    }
    Ok(accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (run, plain) = (file("a/run", 0o755), file("a/plain", 0o644));
        file("b/plain", 0o755);
        let kind = |program: &OsStr, dirs: &[&str]| {
            let path = std::env::join_paths(dirs.iter().map(|name| dir.path().join(name))).unwrap();
            look_up(program, &path).map_err(|e| e.kind())
        };
        let (denied, missing) = (Err(io::ErrorKind::PermissionDenied), Err(io::ErrorKind::NotFound));
        assert_eq!(kind(OsStr::new("run"), &["b", "a"]), Ok(()));
        assert_eq!(kind(OsStr::new("plain"), &["a"]), denied);
        assert_eq!(kind(OsStr::new("plain"), &["a", "b"]), Ok(()));
        assert_eq!(kind(OsStr::new("other"), &["a", "b"]), missing);
        assert_eq!(kind(OsStr::new(""), &["a"]), missing);
        assert_eq!(kind(run.as_os_str(), &[]), Ok(()));
        assert_eq!(kind(plain.as_os_str(), &["b"]), denied);
        assert_eq!(kind(dir.path().as_os_str(), &[]), denied);
        assert_eq!(kind(run.join("x").as_os_str(), &[]), missing);
    }
}

//! The only parts of the file system in which a record may act: sysfs and procfs. Nothing here allocates.

use crate::sys::Pid;
use std::ffi::CStr;
use std::fmt::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, open, openat2, unlinkat};
use rustix::io::Errno;

use super::field::Field;
use crate::error::{Error, Result};
use crate::roots::Roots;

/// Linux's `PATH_MAX`, including the final NUL.
const PATH_MAX: usize = 4096;

/// The longest text of a control file that can be restored; the limit of sysfs is a page, too.
pub(super) const VALUE_MAX: usize = 4096;

pub(super) struct FixedText {
    bytes: [u8; PATH_MAX],
    length: usize,
}

impl FixedText {
    pub(super) fn new() -> Self {
        Self { bytes: [0; PATH_MAX], length: 0 }
    }

    /// Appends bytes; `None` when the text would become too long or contain a NUL.
    pub(super) fn extend(&mut self, bytes: impl Iterator<Item = u8>) -> Option<()> {
        for byte in bytes {
            if byte == 0 || self.length + 1 >= PATH_MAX {
                return None;
            }
            *self.bytes.get_mut(self.length)? = byte;
            self.length += 1;
        }
        Some(())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The text with this byte in the place of the final NUL.
    pub(super) fn ended_by(&mut self, end: u8) -> &[u8] {
        self.bytes.get_mut(self.length).into_iter().for_each(|last| *last = end);
        self.bytes.get(..=self.length).unwrap_or_default()
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    pub(super) fn name(&self) -> &[u8] {
        self.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// The path without its last component: `.` where there is only one.
    pub(super) fn parent(&self) -> Self {
        let mut parent = Self::new();
        let length = self.length - self.name().len();
        let folder = self.as_bytes().get(..length.saturating_sub(1)).filter(|folder| !folder.is_empty());
        // A part of a path that fits also fits.
        let _ = parent.extend(folder.unwrap_or(b".").iter().copied());
        parent
    }

    pub(super) fn join(&self, name: &[u8]) -> Option<Self> {
        let mut joined = Self::new();
        joined.extend(self.as_bytes().iter().chain(b"/").chain(name).copied())?;
        Some(joined)
    }
}

impl fmt::Write for FixedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend(text.bytes()).ok_or(fmt::Error)
    }
}

#[derive(Debug)]
struct Place {
    path: Vec<u8>,
    folder: OwnedFd,
}

#[derive(Debug)]
pub(super) struct Places {
    proc: Place,
    /// `None` where there is no sysfs; records of its files are refused then.
    sys: Option<Place>,
}

pub(super) struct Located<'a> {
    pub(super) folder: BorrowedFd<'a>,
    pub(super) path: FixedText,
}

impl Places {
    pub(super) fn open(roots: &Roots) -> Result<Self> {
        let place = |path: &Path| -> rustix::io::Result<Place> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = open(path, flags, Mode::empty())?;
            Ok(Place { path: path.as_os_str().as_bytes().to_vec(), folder })
        };
        let failed = |path: &Path, cause: Errno| Error::file("open", path, cause.into());
        let sys = match place(&roots.sys) {
            Ok(sys) => Some(sys),
            Err(Errno::NOENT) => None,
            Err(cause) => return Err(failed(&roots.sys, cause)),
        };
        let proc = place(&roots.proc).map_err(|cause| {
            failed(&roots.proc, cause).hint("emu needs the proc file system to know processes by")
        })?;
        Ok(Self { proc, sys })
    }

    pub(super) fn proc(&self) -> BorrowedFd<'_> {
        self.proc.folder.as_fd()
    }

    pub(super) fn sys_file(&self, file: &str) -> Option<Located<'_>> {
        let mut path = FixedText::new();
        path.extend(file.bytes())?;
        self.sys.as_ref().map(|sys| Located { folder: sys.folder.as_fd(), path })
    }

    /// The open folders, for a child that closes all other descriptors.
    pub(super) fn folders(&self) -> [BorrowedFd<'_>; 2] {
        let sys = self.sys.as_ref().unwrap_or(&self.proc);
        [self.proc.folder.as_fd(), sys.folder.as_fd()]
    }

    /// `None` when the path is outside sysfs and procfs or not valid. Opening the file checks symbolic links.
    pub(super) fn locate(&self, path: Field<'_>) -> Option<Located<'_>> {
        let below = |place: &Place| {
            let mut bytes = path.bytes();
            (place.path.iter().all(|&byte| bytes.next() == Some(byte)) && bytes.next() == Some(b'/'))
                .then_some(bytes)
        };
        for place in [Some(&self.proc), self.sys.as_ref()].into_iter().flatten() {
            if let Some(relative) = below(place) {
                let mut path = FixedText::new();
                path.extend(relative)?;
                let plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
                return path
                    .as_bytes()
                    .split(|&byte| byte == b'/')
                    .all(plain)
                    .then(|| Located { folder: place.folder.as_fd(), path });
            }
        }
        None
    }
}

impl Located<'_> {
    pub(super) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open_below(self.folder, self.path.as_c_str(), flags)
    }

    pub(super) fn parent(&self) -> Self {
        Self { folder: self.folder, path: self.path.parent() }
    }

    pub(super) fn join(&self, name: &[u8]) -> rustix::io::Result<Self> {
        let path = self.path.join(name).ok_or(Errno::NAMETOOLONG)?;
        Ok(Self { folder: self.folder, path })
    }

    pub(super) fn remove_folder(&self) -> rustix::io::Result<()> {
        let mut name = FixedText::new();
        name.extend(self.path.name().iter().copied()).ok_or(Errno::NAMETOOLONG)?;
        let parent = self.parent().open(OFlags::PATH | OFlags::DIRECTORY)?;
        unlinkat(parent, name.as_c_str(), AtFlags::REMOVEDIR)
    }

    /// Reads the whole file, without surrounding white space.
    pub(super) fn read<'b>(&self, buffer: &'b mut [u8]) -> rustix::io::Result<&'b [u8]> {
        let file = self.open(OFlags::RDONLY)?;
        let mut length = 0;
        loop {
            match rustix::io::read(&file, buffer.get_mut(length..).unwrap_or_default()) {
                Ok(0) if length == buffer.len() => return Err(Errno::FBIG),
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(buffer.get(..length).unwrap_or_default().trim_ascii())
    }

    /// Writes the value with a single `write(2)`, as kernel files expect.
    pub(super) fn write(&self, value: &[u8]) -> rustix::io::Result<()> {
        // Kernel files have no length to cut, but the files of a recorded tree do.
        let file = self.open(OFlags::WRONLY | OFlags::TRUNC)?;
        // An empty write would not reach the kernel.
        let value = if value.is_empty() { b"\n" } else { value };
        write_once(&file, value)
    }
}

/// One `write(2)`, repeated only if a signal interrupted it before it did anything.
pub(super) fn write_once(file: impl AsFd, value: &[u8]) -> rustix::io::Result<()> {
    loop {
        match rustix::io::write(&file, value) {
            Ok(count) if count == value.len() => return Ok(()),
            Ok(_) => return Err(Errno::IO),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
    }
}

/// `openat2(2)`: fails with `EXDEV` or `ELOOP` instead of leaving `folder` by a symbolic link. Needs Linux 5.6.
pub(super) fn open_below(folder: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut flags = flags | OFlags::CLOEXEC;
    if !flags.contains(OFlags::PATH) {
        // A FIFO or terminal, which sysfs does not have, must not block.
        flags |= OFlags::NOCTTY | OFlags::NONBLOCK;
    }
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match openat2(folder, path, flags, Mode::empty(), inside) {
            // EAGAIN: a folder was renamed while `..` was resolved; openat2(2) says to try again.
            Err(Errno::AGAIN | Errno::INTR) if attempts < 100 => {}
            // What is gone needs no undoing, which is for good: it is looked for twice.
            Err(Errno::NOENT) if attempts == 1 => {}
            result => return result,
        }
    }
}

pub(super) fn of_process(pid: crate::sys::Pid, file: &str) -> FixedText {
    let mut path = FixedText::new();
    // Ten digits and a short name always fit.
    let _ = write!(path, "{pid}/{file}");
    path
}

/// The failure of a system call in words, without the C library, which allocates.
pub(super) struct Cause(pub(super) Errno);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            Errno::ACCESS => "permission denied",
            Errno::BUSY => "device or resource busy",
            Errno::INVAL => "invalid argument",
            Errno::IO => "input/output error",
            Errno::LOOP | Errno::XDEV => "the path leads elsewhere",
            Errno::NODEV => "no such device",
            Errno::NOENT => "no such file or directory",
            Errno::NOSPC => "no space left",
            Errno::NOTEMPTY => "directory not empty",
            Errno::OPNOTSUPP => "operation not supported",
            Errno::PERM => "operation not permitted",
            Errno::ROFS => "read-only file system",
            other => return write!(f, "os error {}", other.raw_os_error()),
        };
        write!(f, "{text} (os error {})", self.0.raw_os_error())
    }
}

/// Calls `each` with every number in a file; stops at its first error.
pub(super) fn each_number(
    file: &OwnedFd,
    mut each: impl FnMut(Pid) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let mut buffer = [0; 4096];
    let mut number = None::<Pid>;
    loop {
        let count = match rustix::io::read(file, &mut buffer[..]) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(cause) => return Err(cause),
        };
        for &byte in buffer.get(..count).unwrap_or_default() {
            if byte.is_ascii_digit() {
                let digit = Pid::from(byte - b'0');
                number = number.unwrap_or(0).checked_mul(10).and_then(|value| value.checked_add(digit));
            } else if let Some(pid) = number.take() {
                each(pid)?;
            }
        }
        if count == 0 {
            return number.map_or(Ok(()), each);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::super::field::push_all;
    use super::*;

    fn roots() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        fs::create_dir_all(roots.sys.join("a/b")).unwrap();
        fs::create_dir_all(&roots.proc).unwrap();
        (dir, roots)
    }

    fn escaped(path: &Path) -> Vec<u8> {
        let mut line = Vec::new();
        push_all(&mut line, [path.as_os_str().as_bytes()]);
        line
    }

    #[test]
    fn only_plain_paths_below_the_roots_are_located() {
        let (_dir, roots) = roots();
        let places = Places::open(&roots).unwrap();
        let sys = roots.sys.to_str().unwrap();
        for good in ["a", "a/b", "a/..b", "a/...", "a/b c"] {
            let path = format!("{sys}/{good}");
            assert_eq!(places.locate(path.as_bytes().into()).unwrap().path.as_bytes(), good.as_bytes());
        }
        let long = "x".repeat(PATH_MAX);
        for bad in ["", "/", "/..", "/a/../b", "/a//b", "/a/", "/./a", "x/a", "/a\0b", &format!("/{long}")] {
            let path = format!("{sys}{bad}");
            assert!(places.locate(path.as_bytes().into()).is_none(), "{bad:?}");
        }
        for bad in ["", "a", "/", "/etc/passwd", "sys/a", "../sys/a"] {
            assert!(places.locate(bad.as_bytes().into()).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn links_are_followed_inside_a_root_and_nowhere_else() {
        let (dir, roots) = roots();
        fs::write(dir.path().join("secret"), "1").unwrap();
        fs::write(roots.sys.join("a/b/value"), "2\n").unwrap();
        symlink("a/b", roots.sys.join("inside")).unwrap();
        symlink("../secret", roots.sys.join("up")).unwrap();
        symlink(dir.path(), roots.sys.join("absolute")).unwrap();
        let places = Places::open(&roots).unwrap();
        let read = |path: &str| {
            let path = escaped(&roots.sys.join(path));
            let mut buffer = [0; 16];
            places.locate(path.as_slice().into()).unwrap().read(&mut buffer).map(<[u8]>::to_vec)
        };
        assert_eq!(read("inside/value"), Ok(b"2".to_vec()));
        assert_eq!(read("up"), Err(Errno::XDEV));
        assert_eq!(read("absolute/secret"), Err(Errno::XDEV));
    }

    #[test]
    fn the_links_of_procfs_into_other_trees_are_not_followed() {
        let places = Places::open(&Roots { proc: "/proc".into(), ..roots().1 }).unwrap();
        for path in ["/proc/self/root/etc/passwd", "/proc/self/cwd/Cargo.toml", "/proc/self/fd/0"] {
            let located = places.locate(path.as_bytes().into()).unwrap();
            assert_eq!(located.read(&mut [0; 64]), Err(Errno::LOOP), "{path}");
        }
    }

    #[test]
    fn a_shorter_value_replaces_a_longer_one_whole() {
        let (_dir, roots) = roots();
        let path = roots.sys.join("a/value");
        fs::write(&path, "userspace\n").unwrap();
        let places = Places::open(&roots).unwrap();
        let line = escaped(&path);
        let located = places.locate(line.as_slice().into()).unwrap();
        located.write(b"ondemand").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ondemand");
        assert_eq!(located.read(&mut [0; 4]), Err(Errno::FBIG));
    }

    proptest! {
        #[test]
        fn whatever_is_located_lies_below_a_root(path in super::super::record::tests::any_path()) {
            let (_dir, roots) = roots();
            let places = Places::open(&roots).unwrap();
            for whole in [path.clone(), roots.sys.join(&path), roots.proc.join(&path)] {
                let line = escaped(&whole);
                if let Some(located) = places.locate(line.as_slice().into()) {
                    let relative = Path::new(std::str::from_utf8(b"").unwrap())
                        .join(std::ffi::OsStr::from_bytes(located.path.as_bytes()));
                    prop_assert!(relative.is_relative());
                    prop_assert!(relative.components().all(|part| matches!(part, std::path::Component::Normal(_))));
                    prop_assert!(whole.starts_with(&roots.sys) || whole.starts_with(&roots.proc));
                }
            }
        }
    }
}

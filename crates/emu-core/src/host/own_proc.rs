//! This process's folder of procfs, where that is of this PID namespace.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::roots::Roots;

/// An error without procfs, or with one of another PID namespace: its numbers are those of other processes.
pub(super) fn find(roots: &Roots) -> Result<PathBuf> {
    let own = roots.proc.join("self");
    let proc = roots.proc.display();
    if !own.exists() {
        return Err(Error::unavailable(format!("cannot read this host: there is no {}", own.display()))
            .hint(format!("mount procfs: mount -t proc proc {proc}")));
    }
    // In a recorded tree it is no link.
    let listed = fs::read_link(&own).ok().and_then(|link| link.to_str()?.parse::<u32>().ok());
    let actual = std::process::id();
    match listed.filter(|listed| *listed != actual) {
        Some(listed) => Err(Error::unavailable(format!(
            "cannot read this host: {proc} is of another PID namespace; process {actual} is {listed} there"
        ))
        .hint(format!("mount one of this namespace: mount -t proc proc {proc}"))),
        None => check_descriptors(&own).map(|()| own),
    }
}

/// The most files and folders that are open at once while a host is read.
const OPEN_MAX: usize = 4;

/// A file that cannot be read leaves its field empty: a lack of descriptors would pass for a host without CPUs.
fn check_descriptors(own: &Path) -> Result<()> {
    let opened: io::Result<Vec<File>> = (0..OPEN_MAX).map(|_| File::open(own)).collect();
    match opened {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            Err(Error::file("read this host: cannot open", own, e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::test_name;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn a_lack_of_descriptors_is_told_as_such() {
        const HELPER: &str = "EMU_TEST_FEW_DESCRIPTORS";
        // In a process of its own: other tests open files, too.
        if std::env::var_os(HELPER).is_none() {
            let name = test_name(module_path!(), "a_lack_of_descriptors_is_told_as_such");
            let mut process = std::process::Command::new(std::env::current_exe().unwrap());
            process.args(["--exact", &name, "--test-threads=1"]).env(HELPER, "1");
            let ended = process.output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
            return;
        }
        let next = std::os::fd::AsRawFd::as_raw_fd(&File::open("/dev/null").unwrap()) as u64;
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum }).unwrap();
        let error = crate::host::Host::detect(&Roots::system()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
    }
}

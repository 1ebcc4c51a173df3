//! Containers of Podman whose root is a folder: no registry is needed.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::common::{Ended, run, words};

/// Podman with the options that work in any container, on each layout of cgroups.
pub(crate) fn podman(line: &str) -> Ended {
    let mut command = Command::new("podman");
    command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"]).args(words(line));
    run(&mut command, "")
}

/// A folder that can be the root of a container, with a shell and some commands.
pub(crate) fn root() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for folder in ["bin", "dev", "etc", "lib", "lib64", "proc", "run", "sys", "tmp"] {
        fs::create_dir(root.path().join(folder)).unwrap();
    }
    let bin = root.path().join("bin");
    fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", bin.join("sh")).unwrap();
    root
}

/// Options of `podman run` with this root; the limits of podman's own are above those of many machines.
pub(crate) fn options(root: &Path) -> String {
    format!("--ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --network none --rootfs {}", root.display())
}

/// A container that computes.
pub(crate) struct Container {
    pub(crate) name: String,
    _root: TempDir,
}

impl Container {
    pub(crate) fn start() -> Self {
        let (name, root) = (format!("emu-test-{}", std::process::id()), root());
        let line = format!("run -d --name {name} {} /bin/sh -c while␣:;␣do␣:;␣done", options(root.path()));
        let ended = podman(&line);
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        Self { name, _root: root }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.running().expect("the container runs")
    }

    /// Its first process; `None` where it does not run.
    fn running(&self) -> Option<i32> {
        let said = podman(&format!("inspect -f {{{{.State.Pid}}}} {}", self.name)).stdout;
        said.trim().parse().ok().filter(|pid| *pid > 0)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(pid) = self.running() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        podman(&format!("wait {}", self.name));
        podman(&format!("rm -f -t 0 {}", self.name));
    }
}

//! The mounted cgroup hierarchies, the controllers of each, and this process's group in them.
//!
//! References: `cgroups(7)`, `cgroup_namespaces(7)`, `proc_pid_mountinfo(5)`, Documentation/admin-guide/cgroup-v2.rst.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use procfs::process::MountInfo;
use serde::{Deserialize, Serialize};

use super::controller::Controller;
use super::delegation::{CONTROLLERS, PROCS, granted, is_open, lineage};
use super::text;
use crate::control_file;
use crate::roots::Roots;

/// How the hierarchies are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    /// Only per-controller hierarchies.
    V1,
    /// One unified hierarchy of version 2.
    V2,
    /// Both; each controller is in one of them.
    Hybrid,
    /// None mounted.
    None,
}

/// One mounted hierarchy, and this process's group in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Hierarchy {
    /// 1 or 2.
    pub version: u8,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The part of the hierarchy that the mount shows: `/` unless bind-mounted. It is mountinfo's
    /// fourth field and counts, as `/proc/self/cgroup`, from the root of this cgroup namespace.
    pub shown: PathBuf,
    /// The controllers that emu uses. On v2 those within reach: in the `cgroup.controllers` of this
    /// group or of its nearest ancestor that has them. `Cpuacct` and `Freezer` need no controller
    /// there: `Cpuacct` is always included, `Freezer` where the kernel has `cgroup.freeze` (Linux
    /// 5.2).
    pub controllers: Vec<Controller>,
    /// Those of them that groups made by this process can have together. On v2, a group that this
    /// process may use has to pass them on. Controllers within reach are often not delegated.
    pub granted: Vec<Controller>,
    /// The folder of this process's group, as seen through the mount.
    pub own: PathBuf,
    /// Whether this process may create groups below `own`; on v2 also whether it may move its tasks
    /// there, for which the kernel requires write permission on `own/cgroup.procs`.
    pub writable: bool,
}

impl Hierarchy {
    /// This process's group and its ancestors, innermost first, as far as the mount shows them. On v2, groups with a controller
    /// can be made below the first of them whose `cgroup.controllers` names the controller.
    pub fn lineage(&self) -> impl Iterator<Item = &Path> {
        lineage(&self.own, &self.mount)
    }

    /// The smallest number in the files `name` of this process's group and its ancestors, which is the limit in force, and the
    /// file that has it. `None` where no file has a number; `max` is none.
    pub fn least(&self, name: &str) -> Option<(u64, &Path)> {
        let number = |group: &Path| control_file::probe::<u64>(&group.join(name));
        self.lineage().filter_map(|group| Some((number(group)?, group))).min_by_key(|(number, _)| *number)
    }
}

/// The cgroup hierarchies of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Cgroups {
    /// Every mounted hierarchy that has a controller of interest, and the v2 one; v1 first. Mounts
    /// that do not show this process's group, or are outside of sysfs, are left out. Of several mounts of one hierarchy the
    /// writable one is taken.
    pub hierarchies: Vec<Hierarchy>,
    /// How the hierarchies are mounted, not counting those without a controller of interest.
    pub layout: CgroupLayout,
}

impl Cgroups {
    /// The hierarchy that has the controller. A controller is in one hierarchy only; v1 is searched first.
    pub fn with(&self, controller: Controller) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|hierarchy| hierarchy.controllers.contains(&controller))
    }
}

/// `kernel` is the version's first two numbers.
pub(super) fn read(roots: &Roots, kernel: Option<(u32, u32)>) -> Cgroups {
    let own = fs::read(roots.proc.join("self/cgroup")).unwrap_or_default();
    let mut hierarchies: Vec<_> = text(&roots.proc.join("self/mountinfo"))
        .lines()
        .filter_map(Mount::parse)
        .filter_map(|mount| hierarchy(roots, mount, &own, kernel))
        .collect();
    // The sort is stable: the order of mountinfo stays among equals.
    hierarchies.sort_by_key(|hierarchy| (hierarchy.version, !hierarchy.writable));
    let mut seen = Vec::new();
    hierarchies.retain(|hierarchy| {
        // The controllers within reach depend on what a mount shows, but there is only one v2 hierarchy.
        let identity = (hierarchy.version == 1).then(|| hierarchy.controllers.clone());
        let new = !seen.contains(&identity);
        seen.push(identity);
        new
    });
    let has = |version| hierarchies.iter().any(|hierarchy| hierarchy.version == version);
    let layout = match (has(1), has(2)) {
        (true, false) => CgroupLayout::V1,
        (false, true) => CgroupLayout::V2,
        (true, true) => CgroupLayout::Hybrid,
        (false, false) => CgroupLayout::None,
    };
    Cgroups { hierarchies, layout }
}

/// `None` where the mount does not show this process's group.
fn hierarchy(roots: &Roots, mount: Mount, own: &[u8], kernel: Option<(u32, u32)>) -> Option<Hierarchy> {
    let Mount { version, point, shown, controllers } = mount;
    let path = group_in(own, version, &controllers)?;
    let mount = relocate(roots, &point)?;
    let own = below(&mount, path.strip_prefix(&shown).ok()?)?;
    // Another file system may be mounted over it, and the group may have been removed.
    if !own.join(PROCS).exists() {
        return None;
    }
    let writable = is_open(&own, version);
    let controllers = if version == 2 { in_reach(&own, &mount, kernel) } else { controllers };
    let granted = if version == 2 { granted(&own, &mount, &controllers) } else { controllers.clone() };
    Some(Hierarchy { version, mount, shown, controllers, granted, own, writable })
}

fn in_reach(own: &Path, mount: &Path, kernel: Option<(u32, u32)>) -> Vec<Controller> {
    let offered: String = lineage(own, mount).map(|group| text(&group.join(CONTROLLERS)) + " ").collect();
    // The root group cannot be frozen and has no such file, but groups below it can.
    let freezes = own.join("cgroup.freeze").exists() || (own == mount && kernel >= Some((5, 2)));
    Controller::ALL
        .into_iter()
        .filter(|controller| match controller {
            Controller::Cpuacct => true,
            Controller::Freezer => freezes,
            Controller::Cpu | Controller::Cpuset | Controller::Memory | Controller::Pids => {
                controller.is_in(&offered)
            }
        })
        .collect()
}

/// The path of a hierarchy's group in the text of `/proc/<pid>/cgroup` (`cgroups(7)`). It counts, as `shown`, from
/// the root of this cgroup namespace, with `..` for what lies outside of it.
pub(crate) fn group_in<'a>(text: &'a [u8], version: u8, controllers: &[Controller]) -> Option<&'a Path> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_known = |name: &[u8]| controllers.iter().any(|known| known.as_str().as_bytes() == name);
        let is_it = if version == 2 {
            number == b"0" && names.is_empty()
        } else {
            names.split(|&byte| byte == b',').any(is_known)
        };
        is_it.then_some(Path::new(OsStr::from_bytes(path)))
    })
}

/// `None` when `path` would lead out of `mount`.
pub(crate) fn below(mount: &Path, path: &Path) -> Option<PathBuf> {
    path.components().try_fold(mount.to_owned(), |folder, part| match part {
        Component::Normal(name) => Some(folder.join(name)),
        Component::RootDir | Component::CurDir => Some(folder),
        Component::ParentDir | Component::Prefix(_) => None,
    })
}

/// A mount point of the running system as found below `roots`; `None` outside of sysfs, where nothing could be undone.
fn relocate(roots: &Roots, point: &Path) -> Option<PathBuf> {
    Some(roots.sys.join(point.strip_prefix(Roots::system().sys).ok()?))
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: u8,
    point: PathBuf,
    shown: PathBuf,
    /// On v1; a v2 mount does not list its controllers.
    controllers: Vec<Controller>,
}

impl Mount {
    /// `None` for other file systems and for lines that cannot be parsed: a strange mount must not hide the others.
    fn parse(line: &str) -> Option<Self> {
        // Most hosts have many other mounts.
        if !line.contains(" - cgroup") {
            return None;
        }
        let info = MountInfo::from_line(line).ok()?;
        let (version, controllers) = match info.fs_type.as_str() {
            "cgroup2" => (2, vec![]),
            "cgroup" => {
                let named = |controller: &Controller| info.super_options.contains_key(controller.as_str());
                (1, Controller::ALL.into_iter().filter(named).collect())
            }
            _ => return None,
        };
        if version == 1 && controllers.is_empty() {
            return None;
        }
        Some(Self {
            version,
            point: unescape(info.mount_point.to_str()?).into(),
            shown: unescape(&info.root).into(),
            controllers,
        })
    }
}

/// Decodes mountinfo's octal escapes of white space and backslash (`\040`).
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        plain.push(code.map_or('\\', char::from));
        rest = code.and_then(|_| after.get(3..)).unwrap_or(after);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::super::testing::{tree, unified, write};
    use super::*;

    /// Reads a tree with these `/proc/self/cgroup`, mountinfo and other files, as on Linux 6.1.
    fn cgroups(own: &str, mounts: &str, files: &[&str]) -> (tempfile::TempDir, Cgroups) {
        let mut all = vec![("proc/self/cgroup", own), ("proc/self/mountinfo", mounts)];
        all.extend(files.iter().map(|path| (*path, "")));
        let dir = tree(&all);
        let cgroups = read(&Roots::below(dir.path()), Some((6, 1)));
        (dir, cgroups)
    }

    fn mount_of(dir: &tempfile::TempDir, path: &str) -> PathBuf {
        dir.path().join("sys/fs/cgroup").join(path)
    }

    #[test]
    fn separate_and_shared_v1_hierarchies_are_recognized() {
        // cgroups(7), "Mounting v1 controllers": systemd's legacy layout, where cpu and cpuacct
        // share a mount.
        let (dir, cgroups) = cgroups(
            "4:freezer:/\n3:cpuset:/\n2:cpu,cpuacct:/user.slice\n1:name=systemd:/user.slice\n",
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
             33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
             34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             35 31 0:32 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
             36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            &[
                "sys/fs/cgroup/cpu,cpuacct/user.slice/cgroup.procs",
                "sys/fs/cgroup/cpuset/cgroup.procs",
                "sys/fs/cgroup/freezer/cgroup.procs",
            ],
        );
        assert_eq!(cgroups.layout, CgroupLayout::V1);
        assert_eq!(cgroups.hierarchies.len(), 3);
        let cpu = cgroups.with(Controller::Cpu).unwrap();
        assert_eq!(cpu.controllers, [Controller::Cpu, Controller::Cpuacct]);
        assert_eq!(cpu.mount, mount_of(&dir, "cpu,cpuacct"));
        assert_eq!(cpu.own, mount_of(&dir, "cpu,cpuacct/user.slice"));
        assert_eq!((cpu.version, cpu.writable), (1, true));
        assert_eq!(cgroups.with(Controller::Cpuacct), Some(cpu));
        assert!(unified(&cgroups).is_none());
    }

    #[test]
    fn a_v2_controller_is_in_reach_where_an_ancestor_shows_it() {
        // Documentation/admin-guide/cgroup-v2.rst, "Enabling and Disabling": a controller is shown
        // in a group when its parent enables it in cgroup.subtree_control.
        let own = "sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope";
        let dir = tree(&[
            ("proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
            ("sys/fs/cgroup/user.slice/cgroup.controllers", "memory pids\n"),
        ]);
        for name in ["cgroup.procs", "cgroup.freeze", "cgroup.controllers"] {
            write(dir.path(), &format!("{own}/{name}"), b"");
        }
        let cgroups = read(&Roots::below(dir.path()), None);
        assert_eq!(cgroups.layout, CgroupLayout::V2);
        let unified = unified(&cgroups).unwrap();
        assert_eq!(unified.controllers, Controller::ALL);
        assert_eq!(unified.own, dir.path().join(own));
        assert_eq!(unified.lineage().count(), 4, "the session, two slices and the root");
        assert_eq!(unified.lineage().last(), Some(unified.mount.as_path()));
    }

    #[test]
    fn systemds_hybrid_layout_has_its_controllers_on_v1() {
        let (dir, cgroups) = cgroups(
            "2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n",
            "32 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
            &["sys/fs/cgroup/unified/cgroup.procs", "sys/fs/cgroup/cpu,cpuacct/cgroup.procs"],
        );
        assert_eq!(cgroups.layout, CgroupLayout::Hybrid);
        assert_eq!(cgroups.hierarchies.iter().map(|h| h.version).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(cgroups.with(Controller::Cpu).unwrap().version, 1);
        let unified = unified(&cgroups).unwrap();
        assert_eq!(unified.mount, mount_of(&dir, "unified"));
        // The root group has no cgroup.freeze, but a kernel 6.1 gives one to the groups below.
        assert_eq!(unified.controllers, [Controller::Cpuacct, Controller::Freezer]);
        assert_eq!(cgroups.with(Controller::Freezer), Some(unified));
        assert!(cgroups.with(Controller::Cpuset).is_none());
    }

    #[test]
    fn freezing_on_v2_needs_linux_5_2() {
        let dir = tree(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
        ]);
        for (kernel, freezes) in
            [(None, false), (Some((5, 1)), false), (Some((5, 2)), true), (Some((6, 0)), true)]
        {
            let cgroups = read(&Roots::below(dir.path()), kernel);
            assert_eq!(cgroups.with(Controller::Freezer).is_some(), freezes, "{kernel:?}");
        }
    }

    #[test]
    fn a_host_without_cgroups_has_none() {
        let (_dir, cgroups) = cgroups("", "22 27 0:21 / /proc rw - proc proc rw\n", &[]);
        assert_eq!(cgroups.layout, CgroupLayout::None);
        assert!(cgroups.hierarchies.is_empty());
    }

    #[test]
    fn in_a_cgroup_namespace_our_group_is_the_mounts_root() {
        // cgroup_namespaces(7): both files count from the namespace's root.
        let (dir, cgroups) = cgroups(
            "0::/\n",
            "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
            &["sys/fs/cgroup/cgroup.procs", "sys/fs/cgroup/cgroup.freeze"],
        );
        assert_eq!(unified(&cgroups).unwrap().own, mount_of(&dir, ""));
    }

    #[test]
    fn a_container_sees_its_group_through_a_bind_mount() {
        let (dir, cgroups) = cgroups(
            "2:cpu,cpuacct:/docker/3f2a/inner\n",
            "33 31 0:30 /docker/3f2a /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
            &["sys/fs/cgroup/cpu,cpuacct/inner/cgroup.procs"],
        );
        let cpu = cgroups.with(Controller::Cpu).unwrap();
        assert_eq!(cpu.own, mount_of(&dir, "cpu,cpuacct/inner"));
        assert_eq!(cpu.shown, Path::new("/docker/3f2a"));
    }

    #[test]
    fn a_mount_that_does_not_show_our_group_is_left_out() {
        for (own, shown) in [("/a/b", "/c"), ("/", "/.."), ("/..", "/"), ("/ab", "/a"), ("/a (deleted)", "/")]
        {
            let (_dir, cgroups) = cgroups(
                &format!("0::{own}\n"),
                &format!("30 23 0:26 {shown} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
                &["sys/fs/cgroup/cgroup.procs", "sys/fs/cgroup/b/cgroup.procs"],
            );
            assert_eq!(cgroups.layout, CgroupLayout::None, "{own} through {shown}");
        }
    }

    #[test]
    fn of_two_mounts_the_one_that_shows_our_group_is_taken() {
        let (dir, cgroups) = cgroups(
            "0::/a\n",
            "29 23 0:26 /b /sys/fs/cgroup/one rw - cgroup2 cgroup2 rw\n\
             30 23 0:26 / /sys/fs/cgroup/two rw - cgroup2 cgroup2 rw\n\
             31 23 0:26 /a /sys/fs/cgroup/three rw - cgroup2 cgroup2 rw\n",
            &[
                "sys/fs/cgroup/one/cgroup.procs",
                "sys/fs/cgroup/two/a/cgroup.procs",
                "sys/fs/cgroup/three/cgroup.procs",
            ],
        );
        assert_eq!(cgroups.hierarchies.len(), 1);
        assert_eq!(unified(&cgroups).unwrap().own, mount_of(&dir, "two/a"));
    }

    #[test]
    fn strange_lines_do_not_hide_the_others() {
        let (dir, cgroups) = cgroups(
            "x\n9\nfour:cpu:/\n0:cpu:/\n\n0::/\n",
            "junk - cgroup2\n\n30 23 0:26 / /sys/fs/cgroup/my\\040groups rw - cgroup2 cgroup2 rw\n31 - cgroup - -\n",
            &["sys/fs/cgroup/my groups/cgroup.procs"],
        );
        assert_eq!(unified(&cgroups).unwrap().mount, mount_of(&dir, "my groups"));
    }

    #[test]
    fn octal_escapes_of_mountinfo_are_undone() {
        for (escaped, plain) in [
            ("/a\\040b", "/a b"),
            ("\\011\\012\\134", "\t\n\\"),
            ("/a\\", "/a\\"),
            ("\\04", "\\04"),
            ("\\377x", "\\377x"),
            ("\\é40", "\\é40"),
            ("", ""),
        ] {
            assert_eq!(unescape(escaped), plain);
        }
    }
}

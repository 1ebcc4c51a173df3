//! The library's hints in the words of the command line, for this caller on this host.

use std::path::Path;
use std::{env, fs};

use emu_core::{Hint, Roots, Setting, Unavailable};
use nix::unistd::geteuid;

pub(crate) fn words(hint: &Hint) -> String {
    let caller = Caller::here();
    hint.in_words(&|hint| caller.words(hint))
}

pub(crate) fn worded(refusal: Unavailable) -> Unavailable {
    Unavailable::new(refusal.reason, refusal.detail, words(&refusal.hint))
}

/// The namespaces that a kernel begins with (`PROC_PID_INIT_INO` and others in `include/linux/proc_ns.h`). A container
/// has others.
const FIRST_NAMESPACES: [(&str, u64); 4] =
    [("ipc", 0xEFFF_FFFF), ("uts", 0xEFFF_FFFE), ("pid", 0xEFFF_FFFC), ("cgroup", 0xEFFF_FFFB)];

/// A virtual machine that was made from the image of a container has its marks, too.
pub(crate) fn in_container() -> bool {
    let is_marked =
        ["container", "KUBERNETES_SERVICE_HOST"].iter().any(|variable| env::var_os(variable).is_some())
            || ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"]
                .iter()
                .any(|mark| Path::new(mark).exists());
    is_marked && !has_first_namespaces(&Roots::system().proc)
}

fn has_first_namespaces(proc: &Path) -> bool {
    let is_first = |(name, number): (&str, u64)| {
        fs::read_link(proc.join("self/ns").join(name))
            .is_ok_and(|link| link.as_os_str() == format!("{name}:[{number}]").as_str())
    };
    FIRST_NAMESPACES.into_iter().all(is_first)
}

#[derive(Debug, Clone, Copy)]
struct Caller {
    is_root: bool,
    /// The system's cgroups are of version 2, which alone can be delegated to users.
    has_cgroup2: bool,
    in_container: bool,
}

impl Caller {
    fn here() -> Self {
        let roots = Roots::system();
        Self {
            is_root: geteuid().is_root(),
            has_cgroup2: roots.sys.join("fs/cgroup/cgroup.controllers").exists(),
            in_container: in_container(),
        }
    }

    /// `None` where the library's words will do.
    fn words(self, hint: &Hint) -> Option<String> {
        let words = match hint {
            Hint::LeaveOut(setting) => return option(*setting).map(|option| format!("leave out {option}")),
            Hint::Period(range) => {
                let range = format!("from {:?} to {:?}", range.start(), range.end());
                return Some(format!("pass --period with a value {range}, or leave it out"));
            }
            Hint::OwnGroup(controllers) => return Some(self.own_group(controllers)),
            Hint::LiftRtLimit => "pass --lift-rt-limit (undone at the end)",
            Hint::WidenPolicies => "pass --widen to have them slowed too",
            Hint::OtherCpus => "choose other CPUs with --cpus",
            Hint::AddCpus => "take them into --cpus",
            Hint::StartInZone => "start the program with `emu run`, so that it begins in its zone",
            Hint::Root => match self {
                Self { is_root: false, .. } => "run as root",
                Self { in_container: true, .. } => {
                    "give the container more privileges (--privileged), or run emu outside"
                }
                _ => "give emu the privileges that root has outside: `emu info` shows those that it has",
            },
            Hint::RealTime(_) => match self {
                Self { in_container: true, is_root: true, .. } => {
                    "start the container with CAP_SYS_NICE (--cap-add SYS_NICE)"
                }
                Self { in_container: true, .. } => {
                    "start the container with CAP_SYS_NICE (--cap-add SYS_NICE), and run as root in it"
                }
                Self { is_root: false, .. } => {
                    "run as root, or `setcap cap_sys_nice+ep` the emu binary, or raise `ulimit -r`"
                }
                _ => "give emu CAP_SYS_NICE back, or raise `ulimit -r`",
            },
            Hint::EndTuning => {
                "end that tuning first, or leave its knobs `governor` and `turbo` out with --knobs"
            }
            Hint::Restore => "run `emu restore` when the cause is removed",
            Hint::Judge => "`emu methods` tells for each method what is missing and how to get it",
            _ => return None,
        };
        Some(words.to_owned())
    }

    /// How to get a group below which emu can make its own.
    fn own_group(self, controllers: &[&str]) -> String {
        let words = match self {
            Self { in_container: true, is_root: true, .. } => {
                "let the container write to /sys/fs/cgroup (--privileged), or run emu outside"
            }
            Self { in_container: true, .. } => {
                "run as root in a container that may write to /sys/fs/cgroup (--privileged), or run emu outside"
            }
            Self { is_root: true, .. } => {
                "run emu in a group of its own: systemd-run --scope -p Delegate=yes emu …"
            }
            Self { has_cgroup2: false, .. } => {
                "run as root: groups of cgroup version 1 are not delegated to users"
            }
            _ if controllers.is_empty() => {
                "run as root, or in a group of your own: systemd-run --user --scope -p Delegate=yes emu …"
            }
            _ => {
                return format!(
                    "run as root, or in a group of your own: systemd-run --user --scope -p Delegate=yes emu …; \
                     where that has no `{}`, root can delegate it: Delegate=yes in `systemctl edit user@.service`",
                    controllers.join(" ")
                );
            }
        };
        words.to_owned()
    }
}

fn option(setting: Setting) -> Option<&'static str> {
    Some(match setting {
        Setting::Cpus => "--cpus",
        Setting::Period => "--period",
        Setting::ExcludeBackground => "--exclude-background",
        Setting::Round => "--round",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use std::time::Duration;

    const USER: Caller = Caller { is_root: false, has_cgroup2: true, in_container: false };

    fn of(caller: Caller, hint: &Hint) -> String {
        hint.in_words(&|hint| caller.words(hint))
    }

    #[test]
    fn only_who_has_another_namespace_is_in_a_container() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("self/ns");
        fs::create_dir_all(&folder).unwrap();
        let link = |to: &str| {
            let name = folder.join(to.split(':').next().unwrap());
            let _ = fs::remove_file(&name);
            std::os::unix::fs::symlink(to, name).unwrap();
        };
        for first in ["ipc:[4026531839]", "uts:[4026531838]", "pid:[4026531836]", "cgroup:[4026531835]"] {
            assert!(!has_first_namespaces(proc.path()));
            link(first);
        }
        assert!(has_first_namespaces(proc.path()));
        link("pid:[4026532201]");
        assert!(!has_first_namespaces(proc.path()));
    }

    #[test]
    fn every_option_and_subcommand_that_a_hint_names_exists() {
        let periods = Duration::from_millis(1)..=Duration::from_secs(1);
        let settings = [Setting::Cpus, Setting::Period, Setting::ExcludeBackground, Setting::Round];
        let hints =
            [Hint::LiftRtLimit, Hint::WidenPolicies, Hint::OtherCpus, Hint::AddCpus, Hint::Period(periods)];
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for hint in settings.map(Hint::LeaveOut).iter().chain(&hints) {
            let said = of(USER, hint);
            let option = said.split_once("--").unwrap().1.split([' ', ',']).next().unwrap();
            assert!(run.get_arguments().any(|arg| arg.get_long() == Some(option)), "{said}");
        }
        for (hint, name) in [(Hint::StartInZone, "run"), (Hint::Restore, "restore"), (Hint::Judge, "methods")]
        {
            assert!(of(USER, &hint).contains(&format!("`emu {name}`")), "{hint}");
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_privilege_is_had_in_the_way_that_is_open_to_the_caller() {
        let group = Hint::OwnGroup(vec!["cpu"]);
        let root = Caller { is_root: true, ..USER };
        let contained = Caller { in_container: true, ..root };
        let old = Caller { has_cgroup2: false, ..USER };
        for (caller, hint, part) in [
            (USER, &Hint::Root, "run as root"),
            (contained, &Hint::Root, "--privileged"),
            (USER, &Hint::RealTime(10), "setcap cap_sys_nice+ep"),
            (contained, &Hint::RealTime(10), "--cap-add SYS_NICE"),
            (USER, &group, "systemd-run --user --scope -p Delegate=yes"),
            (USER, &group, "no `cpu`, root can delegate it"),
            (root, &group, "systemd-run --scope -p Delegate=yes"),
            (old, &group, "version 1"),
            (contained, &group, "/sys/fs/cgroup"),
        ] {
            let said = of(caller, hint);
            assert!(said.contains(part), "{caller:?}: {said}");
            assert!(!caller.is_root || !said.contains("run as root"), "{caller:?}: {said}");
        }
        assert_eq!(of(USER, &Hint::Root.or("use cpu-lim")), "run as root, or use cpu-lim");
    }
}

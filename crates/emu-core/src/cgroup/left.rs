//! Limits that tasks lose while they are in a group of emu.

use std::path::Path;

use crate::control_file;

/// The files of version 2 by which a group limits its tasks.
const LIMITS: [&str; 4] = ["cpu.max", "io.max", "memory.max", "pids.max"];

/// Notes on the limits of `home` and its ancestors that do not hold in a group below `site`.
pub(super) fn notes(home: &Path, site: &Path) -> Vec<String> {
    let left = home.ancestors().take_while(|group| !site.starts_with(group));
    let limits = left.flat_map(|group| LIMITS.map(|name| (group, name)));
    let note = |(group, name): (&Path, &str)| {
        let limit = control_file::read_if_present(&group.join(name)).ok()??;
        is_limit(name, &limit).then(|| {
            format!(
                "the tasks leave the cgroup {} meanwhile, below which none with the controllers needed can be made: its \
                 {name} of `{}` does not hold for them",
                group.display(),
                limit.lines().collect::<Vec<_>>().join("; ")
            )
        })
    };
    limits.filter_map(note).collect()
}

/// Whether the value is other than `max` (cgroup-v2.rst, "Core Interface Files" and each controller's).
fn is_limit(name: &str, text: &str) -> bool {
    if name == "io.max" {
        // `8:16 rbps=2097152 wbps=max …` for each device.
        return text.split_whitespace().filter_map(|word| word.split_once('=')).any(|(_, max)| max != "max");
    }
    text.split_whitespace().next().is_some_and(|limit| limit != "max")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::tree;

    #[test]
    fn limits_that_tasks_leave_are_named() {
        let root = tree(&[
            ("memory.max", "1"),
            ("user/pids.max", "max\n"),
            ("user/cpu.max", "50000 100000\n"),
            ("user/shell/memory.max", "1073741824\n"),
            ("user/shell/cpu.max", "max 100000\n"),
            ("user/shell/io.max", "8:0 rbps=max wbps=max\n8:16 rbps=max wiops=120\n"),
        ]);
        let home = root.path().join("user/shell");
        let of = |site: &str| notes(&home, &root.path().join(site));
        assert_eq!(of("user/shell"), Vec::<String>::new());
        let nearest = of("user");
        assert_eq!(nearest.len(), 2, "{nearest:?}");
        assert!(nearest[0].contains("io.max of `8:0 rbps=max wbps=max; 8:16"), "{nearest:?}");
        assert!(
            nearest[1].contains("user/shell meanwhile") && nearest[1].contains("memory.max of `1073741824`")
        );
        let elsewhere = of("other/group");
        assert_eq!(elsewhere.len(), 3, "{elsewhere:?}");
        assert!(elsewhere[2].contains("cpu.max of `50000 100000`"), "{elsewhere:?}");
    }

    #[test]
    fn a_maximum_or_empty_file_is_no_limit() {
        for (name, text) in
            [("pids.max", "max"), ("cpu.max", "max 100000"), ("io.max", ""), ("memory.max", "")]
        {
            assert!(!is_limit(name, text), "{name} {text}");
        }
        assert!(is_limit("memory.max", "0") && is_limit("pids.max", "7"));
    }
}

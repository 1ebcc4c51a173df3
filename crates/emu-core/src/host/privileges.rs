//! What this process is allowed to do.

use std::fs;
use std::path::Path;

use caps::Capability;
use serde::{Deserialize, Serialize};

use super::{field, text};
use crate::roots::Roots;

/// The name of the first user namespace, whose inode number is fixed (`PROC_USER_INIT_INO` in the kernel's
/// `include/linux/proc_ns.h`).
const INITIAL_USERNS: &str = "user:[4026531837]";

/// The user, and the capabilities that emu uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, named as the kernel names it")]
pub struct Privileges {
    /// The effective user.
    pub uid: u32,
    /// `CAP_SYS_NICE`: real-time policies, and the affinity of other users' tasks.
    pub sys_nice: bool,
    /// `CAP_SYS_ADMIN`.
    pub sys_admin: bool,
    /// `CAP_KILL`: signals to other users' processes.
    pub kill: bool,
    /// `CAP_DAC_OVERRIDE`: writing files without file permission.
    pub dac_override: bool,
    /// Whether the process is in the first user namespace, where capabilities hold for the whole
    /// machine.
    pub initial_userns: bool,
}

/// `status` is `/proc/self/status`. Capabilities that cannot be read count as missing.
pub(super) fn read(roots: &Roots, status: &str) -> Privileges {
    let effective =
        field(status, "CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or_default();
    let has = |capability: Capability| effective & capability.bitmask() != 0;
    Privileges {
        uid: effective_uid(status).unwrap_or_else(|| nix::unistd::geteuid().as_raw()),
        sys_nice: has(Capability::CAP_SYS_NICE),
        sys_admin: has(Capability::CAP_SYS_ADMIN),
        kill: has(Capability::CAP_KILL),
        dac_override: has(Capability::CAP_DAC_OVERRIDE),
        initial_userns: initial_userns(&roots.proc.join("self")),
    }
}

/// The second of the `Uid` line's real, effective, saved and file-system users.
fn effective_uid(status: &str) -> Option<u32> {
    field(status, "Uid")?.split_whitespace().nth(1)?.parse().ok()
}

/// Whether this is the first user namespace, by the namespace's link. Where the link cannot be read, by the map, which is the
/// identity in the first namespace. A kernel without either file has no other namespaces.
fn initial_userns(own: &Path) -> bool {
    if let Ok(name) = fs::read_link(own.join("ns/user")) {
        return name == Path::new(INITIAL_USERNS);
    }
    let map = own.join("uid_map");
    !map.exists() || text(&map).split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    /// `/proc/self/status` of a process with `CAP_DAC_OVERRIDE` (bit 1), `CAP_KILL` (5), and
    /// `CAP_SYS_NICE` (23) by include/uapi/linux/capability.h.
    const STATUS: &str =
        "Name:\temu\nUid:\t1000\t1001\t1000\t1000\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000800022\n";

    #[test]
    fn effective_user_and_capabilities_are_read() {
        let dir = tree(&[("proc/self/uid_map", "         0          0 4294967295\n")]);
        let privileges = read(&Roots::below(dir.path()), STATUS);
        assert_eq!(
            privileges,
            Privileges {
                uid: 1001,
                sys_nice: true,
                sys_admin: false,
                kill: true,
                dac_override: true,
                initial_userns: true
            }
        );
    }

    #[test]
    fn unreadable_capabilities_are_missing_ones() {
        let dir = tree(&[]);
        for status in ["", "CapEff:\tjunk\n", "CapEff:\n", "Uid:\nCapEff:\t-1\n"] {
            let privileges = read(&Roots::below(dir.path()), status);
            assert!(!privileges.sys_nice && !privileges.sys_admin, "{status}");
            assert_eq!(privileges.uid, nix::unistd::geteuid().as_raw());
        }
    }

    #[test]
    fn a_mapped_user_namespace_is_not_the_first() {
        // user_namespaces(7): the map of a rootless container.
        let dir = tree(&[("proc/self/uid_map", "0 1000 1\n1 100000 65536\n")]);
        assert!(!read(&Roots::below(dir.path()), STATUS).initial_userns);
    }

    #[test]
    fn the_namespace_link_outweighs_the_map() {
        let dir = tree(&[("proc/self/uid_map", "0 0 4294967295\n"), ("proc/self/ns/mnt", "")]);
        let link = dir.path().join("proc/self/ns/user");
        std::os::unix::fs::symlink("user:[4026532001]", &link).unwrap();
        assert!(!read(&Roots::below(dir.path()), STATUS).initial_userns);
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(INITIAL_USERNS, &link).unwrap();
        assert!(read(&Roots::below(dir.path()), STATUS).initial_userns);
    }
}

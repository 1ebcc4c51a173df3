//! Whether this machine is a virtual one, and which hypervisor runs it.

use std::path::Path;

use super::clocks::Clocks;
use super::text;
use crate::control_file::probe;
use crate::roots::Roots;

/// Beginnings of the DMI vendor or product names of virtual machines.
const VIRTUAL: &[&str] = &[
    "Alibaba Cloud ECS",
    "Amazon EC2",
    "Apple Virtualization",
    "BHYVE",
    "Bochs",
    "Google Compute Engine",
    "innotek GmbH",
    "KVM",
    "KubeVirt",
    "OpenStack",
    "Parallels",
    "QEMU",
    "Virtual Machine",
    "VirtualBox",
    "VMware",
    "Xen",
];

/// The hypervisor, named by the kernel's interface to it, else by the machine that it emulates. `None` on a bare machine, or
/// where it hides. On x86 the CPU reports a hypervisor (flag `hypervisor`, CPUID leaf 1); elsewhere the device tree or the
/// machine's name does.
pub(super) fn read(roots: &Roots, cpuinfo: &str, clocks: &Clocks) -> Option<String> {
    let machine = machine(&roots.sys.join("class/dmi/id"));
    let interface =
        xen(roots).or_else(|| device_tree(&roots.proc.join("device-tree"))).or_else(|| clock(clocks));
    let flags =
        cpuinfo.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == "flags");
    let virtual_machine = match flags {
        Some((_, flags)) => flags.split_whitespace().any(|flag| flag == "hypervisor"),
        None => machine.as_deref().is_some_and(is_virtual),
    };
    match (interface, machine) {
        (Some(interface), Some(machine)) => Some(format!("{interface} ({machine})")),
        (Some(interface), None) => Some(interface),
        (None, Some(machine)) if virtual_machine => Some(machine),
        (None, _) => virtual_machine.then(|| "unknown".to_owned()),
    }
}

/// `/sys/hypervisor/type` (Documentation/ABI/stable/sysfs-hypervisor-xen).
fn xen(roots: &Roots) -> Option<String> {
    probe::<String>(&roots.sys.join("hypervisor/type")).filter(|name| !name.is_empty())
}

/// The first name of the `hypervisor` node, or of a machine that exists only virtually
/// (Documentation/devicetree/bindings/arm/xen.txt). QEMU and others emulate `linux,dummy-virt` on Arm.
fn device_tree(dir: &Path) -> Option<String> {
    let names = |path: &Path| -> Vec<String> {
        let names = text(path);
        names.split('\0').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    names(&dir.join("hypervisor/compatible"))
        .into_iter()
        .next()
        .or_else(|| names(&dir.join("compatible")).into_iter().find(|name| name == "linux,dummy-virt"))
}

fn clock(clocks: &Clocks) -> Option<String> {
    clocks.available.iter().find_map(|name| match name.as_str() {
        "kvm-clock" => Some("kvm".to_owned()),
        "xen" => Some("xen".to_owned()),
        name if name.starts_with("hyperv_clocksource") => Some("hyper-v".to_owned()),
        _ => None,
    })
}

/// DMI vendor and product (Documentation/ABI/testing/sysfs-class-dmi).
fn machine(dmi: &Path) -> Option<String> {
    let words =
        ["sys_vendor", "product_name"].map(|name| probe::<String>(&dmi.join(name)).unwrap_or_default());
    let name = words.join(" ").trim().to_owned();
    (!name.is_empty()).then_some(name)
}

fn is_virtual(machine: &str) -> bool {
    // Amazon's bare machines have the same vendor as its virtual ones.
    let bare = machine.rsplit('.').next() == Some("metal");
    !bare && VIRTUAL.iter().any(|name| machine.starts_with(name) || machine.contains(&format!(" {name}")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    const X86_VM: &str = "model name\t: x\nflags\t\t: fpu tsc hypervisor lahf_lm\n";
    const X86_BARE: &str = "model name\t: x\nflags\t\t: fpu tsc hypervisors\n";
    const ARM: &str = "processor\t: 0\nFeatures\t: fp asimd\n";

    fn hypervisor(cpuinfo: &str, clock: &str, files: &[(&str, &str)]) -> Option<String> {
        let dir = tree(files);
        let clocks = Clocks { source: None, available: vec![clock.to_owned()], fast: false };
        read(&Roots::below(dir.path()), cpuinfo, &clocks)
    }

    #[test]
    fn on_x86_the_cpu_reports_a_hypervisor_and_files_name_it() {
        let qemu = [
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
            ("sys/class/dmi/id/product_name", "Standard PC (Q35)\n"),
        ];
        assert_eq!(hypervisor(X86_VM, "tsc", &[]).as_deref(), Some("unknown"));
        assert_eq!(hypervisor(X86_VM, "kvm-clock", &[]).as_deref(), Some("kvm"));
        assert_eq!(hypervisor(X86_VM, "hyperv_clocksource_tsc_page", &[]).as_deref(), Some("hyper-v"));
        assert_eq!(hypervisor(X86_VM, "tsc", &qemu).as_deref(), Some("QEMU Standard PC (Q35)"));
        assert_eq!(hypervisor(X86_VM, "kvm-clock", &qemu).as_deref(), Some("kvm (QEMU Standard PC (Q35))"));
        assert_eq!(hypervisor(X86_VM, "tsc", &[("sys/hypervisor/type", "xen\n")]).as_deref(), Some("xen"));
    }

    #[test]
    fn a_bare_x86_machine_has_none_whatever_its_vendor() {
        let metal = [
            ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n"),
            ("sys/class/dmi/id/product_name", "m5.metal\n"),
        ];
        assert_eq!(hypervisor(X86_BARE, "tsc", &metal), None);
        assert_eq!(hypervisor(X86_BARE, "tsc", &[]), None);
    }

    #[test]
    fn on_arm_the_device_tree_or_the_machines_name_reports_it() {
        // Documentation/devicetree/bindings/arm/xen.txt.
        let xen = [("proc/device-tree/hypervisor/compatible", "xen,xen-4.3\0xen,xen\0")];
        assert_eq!(hypervisor(ARM, "arch_sys_counter", &xen).as_deref(), Some("xen,xen-4.3"));
        let virt = [("proc/device-tree/compatible", "linux,dummy-virt\0")];
        assert_eq!(hypervisor(ARM, "arch_sys_counter", &virt).as_deref(), Some("linux,dummy-virt"));
        for (vendor, product, found) in [
            ("QEMU", "KVM Virtual Machine", true),
            ("Microsoft Corporation", "Virtual Machine", true),
            ("Amazon EC2", "c7g.large", true),
            ("Amazon EC2", "c7g.metal", false),
            ("Ampere", "Mt. Jade", false),
            ("", "", false),
        ] {
            let dmi = [("sys/class/dmi/id/sys_vendor", vendor), ("sys/class/dmi/id/product_name", product)];
            assert_eq!(hypervisor(ARM, "arch_sys_counter", &dmi).is_some(), found, "{vendor} {product}");
        }
    }
}

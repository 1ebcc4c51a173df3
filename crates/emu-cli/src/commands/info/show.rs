//! The host as people read it.

use std::fmt::Write as _;

use emu_bench::numbers::{percent, span};
use emu_bench::table;
use emu_bench::table::facts;
use emu_core::clock::ClockReading;
use emu_core::{CgroupLayout, Controller, Cpu, CpuId, Hertz, Hierarchy, Host, LiveSession, RealTime, Result};
use serde::Serialize;

use crate::commands::info::frequencies;
use crate::output::SCHEMA;

/// Everything that `emu info` shows.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Info {
    /// Version of the form.
    schema: u32,
    /// This machine as found.
    host: Host,
    /// The clock of each CPU as it was measured.
    clocks: Vec<Measured>,
    /// What is at work here now.
    emulations: Vec<LiveSession>,
}

/// The clock of one CPU, or why it could not be measured.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Measured {
    /// Which CPU.
    cpu: CpuId,
    #[serde(flatten)]
    reading: Option<ClockReading>,
    /// Why its clock could not be measured; null where it was.
    failure: Option<String>,
}

impl Measured {
    pub(crate) fn new(cpu: CpuId, measured: Result<ClockReading>) -> Self {
        match measured {
            Ok(reading) => Self { cpu, reading: Some(reading), failure: None },
            Err(error) => Self { cpu, reading: None, failure: Some(error.to_string()) },
        }
    }
}

impl Info {
    pub(crate) fn new(host: Host, clocks: Vec<Measured>, emulations: Vec<LiveSession>) -> Self {
        Self { schema: SCHEMA, host, clocks, emulations }
    }

    pub(crate) fn text(&self) -> String {
        let host = &self.host;
        let cpus = format!("{} present, online {}, allowed {}", host.cpus.len(), host.online(), host.allowed);
        let mut lines = vec![
            ("processor", host.model.clone()),
            ("kernel", host.kernel.clone()),
            ("hypervisor", host.hypervisor.clone().unwrap_or_else(|| "none shows itself".into())),
            ("time", time(host)),
            ("CPUs", cpus),
        ];
        let names = std::iter::once("cpufreq").chain(std::iter::repeat(""));
        lines.extend(names.zip(frequencies::sentences(host.cpufreq.as_ref())));
        lines.push(("real time", real_time(&host.real_time)));
        lines.push(("privileges", privileges(host)));
        if !host.refused.is_empty() {
            lines.push(("refused", format!("the system calls {}", host.refused.join(", "))));
        }
        lines.push(("cgroups", layout(host.cgroups.layout).into()));
        lines.extend(host.cgroups.hierarchies.iter().map(|hierarchy| ("", controllers(hierarchy))));
        lines.push(("emulations", if self.emulations.is_empty() { "none" } else { "" }.into()));
        lines.extend(self.emulations.iter().map(|running| {
            let LiveSession { pid, name, .. } = running;
            ("", format!("emu {pid}: {} ({name})", running.what()))
        }));
        facts(12, lines) + "\n" + &self.cpus()
    }

    fn cpus(&self) -> String {
        let ghz = |clock: Hertz| clock.as_f64() / 1e9;
        let clock = |cpu: &Cpu| match self.clocks.iter().find(|measured| measured.cpu == cpu.id) {
            Some(Measured { reading: Some(ClockReading { clock, low, high, .. }), .. }) => {
                (Some(clock.to_string()), format!("{:.3} to {:.3} GHz", ghz(*low), ghz(*high)))
            }
            Some(Measured { failure: Some(failure), .. }) => (None, failure.clone()),
            _ if !cpu.online => (None, "offline".into()),
            _ => (None, "not allowed to this process".into()),
        };
        let number = |value: Option<u32>| value.map_or("?".to_owned(), |value| value.to_string());
        let siblings = |cpu: &Cpu| {
            let siblings = cpu.siblings.difference(&[cpu.id].into_iter().collect());
            let isolated = if cpu.isolated { " (isolated)" } else { "" };
            if siblings.is_empty() { format!("-{isolated}") } else { format!("{siblings}{isolated}") }
        };
        let cpus = self.host.cpus.iter().map(|cpu| (cpu, clock(cpu)));
        let table = table! {
            for (cpu, (clock, interval)) in cpus;
            number "CPU" = cpu.id,
            number "CORE" = format!("{}:{}", number(cpu.package), number(cpu.core)),
            text "SHARED WITH" = siblings(cpu),
            number "NOMINAL" = cpu.nominal.map(|clock| clock.to_string()),
            number "MEASURED" = clock,
            text "95% INTERVAL" = interval,
        };
        table.text()
    }
}

fn controllers(hierarchy: &Hierarchy) -> String {
    let names =
        |of: &mut dyn Iterator<Item = &Controller>| -> Vec<_> { of.map(|one| one.as_str()).collect() };
    let all = names(&mut hierarchy.controllers.iter());
    let kept = names(&mut hierarchy.controllers.iter().filter(|one| !hierarchy.granted.contains(one)));
    let usable = match (hierarchy.writable, &kept[..]) {
        (false, _) => "cannot be written".to_owned(),
        (true, []) => "can be used".to_owned(),
        (true, kept) => format!("can be used, but for {}", kept.join(" ")),
    };
    let all = if all.is_empty() { "-".to_owned() } else { all.join(" ") };
    format!("v{} {all}: {} {usable}", hierarchy.version, hierarchy.own.display())
}

fn time(host: &Host) -> String {
    let source = host.clocks.source.as_deref().unwrap_or("unknown clock source");
    let cost = if host.clocks.fast { "read without a system call" } else { "each read is a system call" };
    format!("{source}, {cost}")
}

fn real_time(limits: &RealTime) -> String {
    let mut text = match (limits.runtime, limits.period) {
        (Some(runtime), Some(period)) => format!(
            "tasks may use {} of each CPU (limit {} of {})",
            percent(limits.largest_share()),
            span(runtime),
            span(period)
        ),
        _ => "not limited".to_owned(),
    };
    if let Some(budget) = limits.group_runtime {
        let _ = write!(text, "; budget of our cgroup {}", span(budget));
        if let Some(period) = limits.group_period {
            let _ = write!(text, " of {}", span(period));
        }
    }
    if let Some(server) = &limits.fair_server {
        let _ = write!(text, "; normal tasks keep {} of {}", span(server.runtime), span(server.period));
    }
    text
}

fn privileges(host: &Host) -> String {
    let has = &host.privileges;
    let user = if has.uid == 0 { "root".to_owned() } else { format!("user {}", has.uid) };
    let held: Vec<_> = [
        (has.sys_nice, "CAP_SYS_NICE"),
        (has.sys_admin, "CAP_SYS_ADMIN"),
        (has.kill, "CAP_KILL"),
        (has.dac_override, "CAP_DAC_OVERRIDE"),
    ]
    .into_iter()
    .filter_map(|(held, name)| held.then_some(name))
    .collect();
    let held = if held.is_empty() { "no capability".to_owned() } else { held.join(" ") };
    let inside = if has.initial_userns { "" } else { ", in a user namespace where they count for less" };
    format!("{user}, {held}{inside}; RLIMIT_RTPRIO {}", host.real_time.rtprio_limit)
}

fn layout(layout: CgroupLayout) -> &'static str {
    match layout {
        CgroupLayout::V1 => "version 1",
        CgroupLayout::V2 => "version 2",
        CgroupLayout::Hybrid => "hybrid: versions 1 and 2",
        CgroupLayout::None => "none mounted: fracas and cpu-freeze cannot work",
    }
}

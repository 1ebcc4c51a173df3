//! Calibrations laid over one another: a table and a figure.

use std::fmt::Write as _;

use emu_bench::columns;
use emu_bench::numbers::signed;
use emu_bench::record::Machine;
use emu_bench::report::{Axis, Chart, Series};
use emu_bench::table::{Table, wrap};
use emu_machine::calibrate::Compared;
use serde::Serialize;

use super::figures::{line, points};
use super::r_squared;

/// The comparison as JSON has it.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Comparison<'a> {
    /// In the order given.
    pub(crate) calibrations: &'a [Compared],
}

pub(crate) fn text(compared: &[Compared], machines: &[&Machine]) -> String {
    let mut table = Table::new(columns![
        text "CALIBRATION", number "R²", number "INTERCEPT", number "SLOPE", number "MAX", number "PER CPU",
        number "TO THE FIRST",
    ]);
    for one in compared {
        let model = &one.model;
        let per_cpu =
            model.per_cpu.map(|rate| format!("{:.2} ±{:.2}", rate.estimate, (rate.high - rate.low) / 2.0));
        let against = one
            .against_first
            .map(|ratio| format!("{} ±{:.1}", signed(ratio.estimate), (ratio.high - ratio.low) * 50.0));
        table.row([
            one.name.clone(),
            r_squared(&model.fit),
            format!("{:.2}", model.fit.intercept.interval.estimate),
            format!("{:.2}", model.fit.slope.interval.estimate),
            format!("{:.1}", model.max_gflops),
            per_cpu.unwrap_or_else(|| "-".into()),
            against.unwrap_or_else(|| "-".into()),
        ]);
    }
    let threads = compared.first().map_or("", |one| one.threads.name());
    let note = format!(
        "GFLOPS, with threads {threads}, as they were measured. PER CPU: median of rate by quota, with half of its interval. \
         TO THE FIRST: mean difference of rates at the same quotas, with half of its interval of 95%."
    );
    let mut text = format!("{}\n{}\n", table.text(), wrap(&note, 0));
    for (one, machine) in compared.iter().zip(machines) {
        let _ = writeln!(text, "{}", wrap(&format!("{}: {}.", one.name, setting(machine)), 0));
    }
    text
}

/// What of a machine sets its rates, as far as a record tells.
fn setting(machine: &Machine) -> String {
    let mut policies: Vec<_> =
        machine.cpufreq.iter().map(|(driver, governor)| format!("{driver} {governor}")).collect();
    policies.sort();
    policies.dedup();
    let clock = if policies.is_empty() { "no governor seen".into() } else { policies.join(", ") };
    format!("{}, {} CPUs, kernel {}, {clock}", machine.model, machine.cpus, machine.kernel)
}

pub(crate) fn chart(compared: &[Compared]) -> Chart {
    let series = compared.iter().map(|one| {
        Series::points(one.name.clone(), points(&one.model, &one.disturbed_quotas))
            .along(line(&one.model.fit, one.cpus))
    });
    Chart::new(
        "Calibrations: LINPACK at CPU quotas",
        Axis::linear("CPU quota"),
        Axis::linear("GFLOPS, mean ± standard deviation"),
        series.collect(),
    )
}

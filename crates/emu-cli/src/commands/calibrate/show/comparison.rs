//! Calibrations laid over one another: a table and a figure.

use emu_bench::numbers::signed;
use emu_bench::record::Machine;
use emu_bench::report::{Axis, Chart, Series};
use emu_bench::stats::Interval;
use emu_bench::table;
use emu_bench::table::paragraph;
use emu_machine::calibrate::Compared;
use serde::Serialize;

use super::figures::{line, points};

/// The comparison as JSON has it.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Comparison<'a> {
    /// In the order given.
    pub(crate) calibrations: &'a [Compared],
}

pub(crate) fn text(compared: &[Compared], machines: &[&Machine]) -> String {
    let half = |of: Interval| (of.high - of.low) / 2.0;
    let table = table! {
        for Compared { name, model, against_first, .. } in compared;
        text "CALIBRATION" = name,
        fixed(4) "R²" = model.fit.r_squared,
        fixed(2) "INTERCEPT" = model.fit.intercept.interval.estimate,
        fixed(2) "SLOPE" = model.fit.slope.interval.estimate,
        fixed(1) "MAX" = model.max_gflops,
        number "PER CPU" = model.per_cpu.map(|rate| format!("{:.2} ±{:.2}", rate.estimate, half(rate))),
        number "TO THE FIRST" =
            against_first.map(|ratio| format!("{} ±{:.1}", signed(ratio.estimate), half(ratio) * 100.0)),
    };
    let threads = compared.first().map_or("", |one| one.threads.name());
    let note = format!(
        "GFLOPS, with threads {threads}, as they were measured. PER CPU: median of rate by quota, with half of its interval. \
         TO THE FIRST: mean difference of rates at the same quotas, with half of its interval of 95%."
    );
    let settings = compared.iter().zip(machines);
    let settings = settings.map(|(one, of)| paragraph(format!("{}: {}.", one.name, setting(of))));
    format!("{}\n{}{}", table.text(), paragraph(note), settings.collect::<String>())
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

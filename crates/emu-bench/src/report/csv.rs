//! The tables for programs, unrounded.

use super::results::Results;
use crate::data;
use crate::stats::{LinearFit, Verdict};
use crate::table::Table;
use crate::verify::Finding;
use crate::workload::workload;

/// Rates are work per second in the unit of the line.
pub(super) fn cells(results: &Results) -> Table {
    let pairs_needed = |finding: &Finding| match finding.verdict {
        Verdict::NotEnoughData { pairs_needed } => pairs_needed,
        Verdict::Pass | Verdict::Fail => None,
    };
    data! {
        for cell in &results.cells;
        method = cell.contender, workload = &cell.workload,
        unit = workload(&cell.workload).map_or("work", |workload| workload.unit()), cpus = cell.cores,
        asked_share = cell.share, emulated_hz = cell.emulated.0, period_ns = cell.period,
        pairs = cell.finding.pairs, retaken = cell.finding.repeated, tainted = cell.finding.tainted,
        ideal = cell.finding.ideal, interval ratio = cell.finding.ratio, interval relative = cell.finding.relative,
        verdict = cell.finding.verdict, pairs_needed = pairs_needed(&cell.finding),
        interval native_mean = cell.native_rate.mean, native_median = cell.native_rate.median.estimate,
        native_mad = cell.native_rate.mad, native_per_cycle = cell.native_rate.per_cycle,
        interval emulated_mean = cell.emulated_rate.mean, emulated_median = cell.emulated_rate.median.estimate,
        emulated_mad = cell.emulated_rate.mad, emulated_per_cycle = cell.emulated_rate.per_cycle,
        longest_stall_ns = cell.finding.longest_stall_ns, periods = cell.finding.periods, missed = cell.finding.missed,
        own_cpu = cell.finding.own_cpu, relative_mean = cell.finding.mean, outliers = cell.finding.outliers.pairs,
        outliers_beyond = cell.finding.outliers.beyond, doubt = cell.finding.doubt.map(|doubt| doubt.to_string()),
    }
}

/// Both axes are in GHz.
pub(super) fn lines(results: &Results) -> Table {
    let of = |line: Option<LinearFit>| line.map(|line| (line, line.slope, line.intercept));
    let lines = results.fidelity.iter().filter_map(|one| Some((one, of(one.line)?)));
    crate::table! {
        for (one, (line, slope, intercept)) in lines;
        number "method" = one.contender,
        number "workload" = &one.workload,
        number "cpus" = one.cores,
        number "points" = line.points,
        number "slope".with_interval() = slope.interval,
        number "slope_se" = slope.standard_error,
        number "slope_t" = slope.t,
        number "slope_p" = slope.p,
        number "intercept".with_interval() = intercept.interval,
        number "intercept_se" = intercept.standard_error,
        number "intercept_t" = intercept.t,
        number "intercept_p" = intercept.p,
        number "r_squared" = line.r_squared,
        number "residual_sd" = line.residual_sd,
        number "f" = line.f_test.map(|test| test.value),
        number "f_p" = line.f_test.map(|test| test.p),
    }
}

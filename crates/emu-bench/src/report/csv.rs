//! The tables for programs, unrounded.

use super::results::{Rate, Results};
use crate::row;
use crate::stats::{Coefficient, Verdict};
use crate::table::{Table, Value};
use crate::workload::workload;

/// Rates are work per second in the unit of the line.
const CELLS: &str = "method,workload,unit,cpus,asked_share,emulated_hz,period_ns,pairs,retaken,tainted,ideal,ratio±,\
relative±,verdict,pairs_needed,native_mean±,native_median,native_mad,native_per_cycle,emulated_mean±,emulated_median,\
emulated_mad,emulated_per_cycle,longest_stall_ns,periods,missed,own_cpu,relative_mean,outliers,outliers_beyond,doubt";

/// Both axes are in GHz.
const LINES: &str = "method,workload,cpus,points,slope±,slope_se,slope_t,slope_p,intercept±,intercept_se,intercept_t,\
intercept_p,r_squared,residual_sd,f,f_p";

pub(super) fn cells(results: &Results) -> Table {
    let mut table = Table::data(CELLS);
    for cell in &results.cells {
        let finding = &cell.finding;
        let needed = match finding.verdict {
            Verdict::NotEnoughData { pairs_needed } => pairs_needed,
            Verdict::Pass | Verdict::Fail => None,
        };
        let mut row = row![
            cell.contender,
            &cell.workload,
            workload(&cell.workload).map_or("work", |workload| workload.unit()),
            cell.cores,
            cell.share,
            cell.emulated.0,
            cell.period,
            finding.pairs,
            finding.repeated,
            finding.tainted,
            finding.ideal,
            finding.ratio,
            finding.relative,
            finding.verdict,
            needed,
        ];
        row.extend(rate(&cell.native_rate));
        row.extend(rate(&cell.emulated_rate));
        row.extend(row![
            finding.longest_stall_ns,
            finding.periods,
            finding.missed,
            finding.own_cpu,
            finding.mean,
            finding.outliers.pairs,
            finding.outliers.beyond,
            finding.doubt.map(|doubt| doubt.to_string()),
        ]);
        table.row(row);
    }
    table
}

pub(super) fn lines(results: &Results) -> Table {
    let mut table = Table::data(LINES);
    for one in &results.fidelity {
        let Some(line) = one.line else { continue };
        let mut row = row![one.contender, &one.workload, one.cores, line.points];
        for Coefficient { interval, standard_error, t, p } in [line.slope, line.intercept] {
            row.extend(row![interval, standard_error, t, p]);
        }
        let test = line.f_test;
        row.extend(row![line.r_squared, line.residual_sd, test.map(|f| f.value), test.map(|f| f.p)]);
        table.row(row);
    }
    table
}

fn rate(rate: &Rate) -> Vec<Value> {
    row![rate.mean, rate.median.estimate, rate.mad, rate.per_cycle]
}

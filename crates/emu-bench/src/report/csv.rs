//! The cells as comma-separated values (RFC 4180), unrounded.

use super::results::{Rate, Results};
use crate::stats::Verdict;
use crate::workload::workload;

/// The columns.
const COLUMNS: &str = "method,workload,unit,cpus,asked_share,emulated_hz,period_ns,pairs,retaken,tainted,ideal,ratio,\
ratio_low,ratio_high,relative,relative_low,relative_high,verdict,pairs_needed,native_mean,native_mean_low,\
native_mean_high,native_median,native_mad,native_per_cycle,emulated_mean,emulated_mean_low,emulated_mean_high,\
emulated_median,emulated_mad,emulated_per_cycle,longest_stall_ns,periods,missed,own_cpu";

/// One line for each cell; rates are work per second in the unit of the line.
pub(super) fn cells(results: &Results) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for cell in &results.cells {
        let finding = &cell.finding;
        let unit = workload(&cell.workload).map_or("work", |workload| workload.unit());
        let needed = match finding.verdict {
            Verdict::NotEnoughData { pairs_needed } => optional(pairs_needed.map(|pairs| pairs as f64)),
            Verdict::Pass | Verdict::Fail => String::new(),
        };
        let mut fields = vec![
            field(cell.contender.as_str()),
            field(&cell.workload),
            field(unit),
            cell.cores.to_string(),
            cell.share.to_string(),
            cell.emulated.0.to_string(),
            cell.period.as_nanos().to_string(),
            finding.pairs.to_string(),
            finding.repeated.to_string(),
            finding.tainted.to_string(),
            finding.ideal.to_string(),
        ];
        for interval in [&finding.ratio, &finding.relative] {
            fields.extend([interval.estimate, interval.low, interval.high].map(|value| value.to_string()));
        }
        fields.extend([field(super::style::verdict(finding.verdict)), needed]);
        fields.extend(rate(&cell.native_rate));
        fields.extend(rate(&cell.emulated_rate));
        fields.extend([
            finding.longest_stall_ns.to_string(),
            finding.periods.to_string(),
            finding.missed.to_string(),
            optional(finding.own_cpu),
        ]);
        text.push_str(&fields.join(","));
        text.push_str("\r\n");
    }
    text
}

fn rate(rate: &Rate) -> [String; 6] {
    [
        optional(rate.mean.map(|mean| mean.estimate)),
        optional(rate.mean.map(|mean| mean.low)),
        optional(rate.mean.map(|mean| mean.high)),
        rate.median.estimate.to_string(),
        rate.mad.to_string(),
        optional(rate.per_cycle),
    ]
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A field, quoted where it must be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}

//! Comma-separated values (RFC 4180), unrounded.

use super::results::{Rate, Results};
use crate::stats::{Coefficient, FTest, Verdict};
use crate::workload::workload;

/// The columns.
const COLUMNS: &str = "method,workload,unit,cpus,asked_share,emulated_hz,period_ns,pairs,retaken,tainted,ideal,ratio,\
ratio_low,ratio_high,relative,relative_low,relative_high,verdict,pairs_needed,native_mean,native_mean_low,\
native_mean_high,native_median,native_mad,native_per_cycle,emulated_mean,emulated_mean_low,emulated_mean_high,\
emulated_median,emulated_mad,emulated_per_cycle,longest_stall_ns,periods,missed,own_cpu,relative_mean,outliers,\
outliers_beyond,doubt";

/// The columns of the lines; both axes are in GHz.
const LINE_COLUMNS: &str = "method,workload,cpus,points,slope,slope_low,slope_high,slope_se,slope_t,slope_p,intercept,\
intercept_low,intercept_high,intercept_se,intercept_t,intercept_p,r_squared,residual_sd,f,f_p";

/// Lines of fields under the names of their columns.
///
/// ```
/// let mut csv = emu_bench::report::Csv::new("name,time_ns");
/// csv.line(["a, b".to_owned(), 1.5.to_string()]);
/// assert_eq!(csv.text(), "name,time_ns\r\n\"a, b\",1.5\r\n");
/// ```
#[derive(Debug, Clone)]
pub struct Csv {
    text: String,
}

impl Csv {
    /// The names of the columns, as they are to be written.
    pub fn new(columns: &str) -> Self {
        Self { text: format!("{columns}\r\n") }
    }

    /// Adds a line; fields are quoted where they must be. What is not known is an empty field.
    pub fn line(&mut self, fields: impl IntoIterator<Item = String>) {
        let fields: Vec<_> = fields.into_iter().map(|text| field(&text)).collect();
        self.text.push_str(&fields.join(","));
        self.text.push_str("\r\n");
    }

    /// Everything.
    pub fn text(self) -> String {
        self.text
    }
}

/// One line for each cell; rates are work per second in the unit of the line.
pub(super) fn cells(results: &Results) -> String {
    let mut csv = Csv::new(COLUMNS);
    for cell in &results.cells {
        let finding = &cell.finding;
        let unit = workload(&cell.workload).map_or("work", |workload| workload.unit());
        let needed = match finding.verdict {
            Verdict::NotEnoughData { pairs_needed } => optional(pairs_needed),
            Verdict::Pass | Verdict::Fail => String::new(),
        };
        let mut fields = vec![
            cell.contender.as_str().to_owned(),
            cell.workload.clone(),
            unit.to_owned(),
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
        fields.extend([super::style::verdict(finding.verdict).to_owned(), needed]);
        fields.extend(rate(&cell.native_rate));
        fields.extend(rate(&cell.emulated_rate));
        fields.extend([
            finding.longest_stall_ns.to_string(),
            finding.periods.to_string(),
            finding.missed.to_string(),
            optional(finding.own_cpu),
            finding.mean.to_string(),
            finding.outliers.pairs.to_string(),
            finding.outliers.beyond.to_string(),
            optional(finding.doubt),
        ]);
        csv.line(fields);
    }
    csv.text()
}

/// One line for each regression of perceived on emulated frequency.
pub(super) fn lines(results: &Results) -> String {
    let mut csv = Csv::new(LINE_COLUMNS);
    for one in &results.fidelity {
        let Some(line) = one.line else { continue };
        let mut fields = vec![
            one.contender.as_str().to_owned(),
            one.workload.clone(),
            one.cores.to_string(),
            line.points.to_string(),
        ];
        fields.extend([line.slope, line.intercept].iter().flat_map(coefficient));
        let of_test = |value: fn(FTest) -> f64| optional(line.f_test.map(value));
        fields.extend([
            optional(line.r_squared),
            line.residual_sd.to_string(),
            of_test(|test| test.value),
            of_test(|test| test.p),
        ]);
        csv.line(fields);
    }
    csv.text()
}

fn coefficient(of: &Coefficient) -> [String; 6] {
    let Coefficient { interval, standard_error, t, p } = of;
    [
        interval.estimate.to_string(),
        interval.low.to_string(),
        interval.high.to_string(),
        standard_error.to_string(),
        optional(*t),
        optional(*p),
    ]
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

/// A field of what may not be known: empty then.
pub fn optional(value: Option<impl ToString>) -> String {
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

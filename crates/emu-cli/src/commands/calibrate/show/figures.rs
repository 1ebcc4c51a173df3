//! A calibration as figures: rates over quotas, and what the line leaves over.

use emu_bench::report::{Axis, Chart, Point, Series};
use emu_machine::calibrate::{Analysis, Measured, Sample};

/// The points of an analysis, by a value for each sample.
fn points(measured: &Measured, one: &Analysis, value: impl Fn(&Sample) -> f64) -> Vec<Point> {
    let own = measured
        .samples
        .iter()
        .filter(|sample| sample.threads == one.threads.count(sample.quota, measured.cpus));
    own.map(|sample| Point::new(sample.quota, value(sample))).collect()
}

/// As in the paper: rates over quotas, with the line of each number of threads, and its bands where there are several.
pub(super) fn chart(measured: &Measured) -> Chart {
    let rates = measured.analyses.iter().map(|one| {
        Series::points(
            format!("threads: {}", one.threads.name()),
            points(measured, one, |sample| sample.gflops),
        )
    });
    let most = measured.cpus as f64;
    let lines = measured.analyses.iter().map(|one| {
        let begin = one.measured.dead_quota.clamp(0.0, most);
        let ends = [begin, most].map(|quota| Point::new(quota, one.measured.predicted(quota)));
        Series::line(format!("line: {}", one.threads.name()), ends.to_vec())
    });
    let several = measured.analyses.iter().filter(|one| one.measured.bands.len() > 1);
    let bands = several.map(|one| {
        let ends = one.measured.bands.iter().flat_map(|band| {
            [band.from, band.to].map(|quota| Point::new(quota, band.intercept + band.slope * quota))
        });
        Series::line(format!("bands: {}", one.threads.name()), ends.collect())
    });
    Chart::new(
        "Calibration: LINPACK at CPU quotas",
        Axis::linear("CPU quota"),
        Axis::linear("GFLOPS"),
        rates.chain(lines).chain(bands).collect(),
    )
}

/// What the line leaves over.
pub(super) fn residuals_chart(measured: &Measured) -> Chart {
    let series = measured.analyses.iter().map(|one| {
        let residual = |sample: &Sample| sample.gflops - one.measured.predicted(sample.quota);
        Series::points(format!("threads: {}", one.threads.name()), points(measured, one, residual))
    });
    let chart = Chart::new(
        "Calibration: residuals of the linear model",
        Axis::linear("CPU quota"),
        Axis::linear("measured − model, GFLOPS"),
        series.collect(),
    );
    chart.with_ideal("no residual", vec![(0.0, 0.0), (measured.cpus as f64, 0.0)])
}

//! A calibration as figures: rates over quotas, and what the line leaves over.

use emu_bench::report::{Axis, Chart, Point, Series};
use emu_bench::stats::{LinearFit, Place};
use emu_machine::calibrate::{Band, Measured, Model, Sample};

/// The mean rate at each quota with its standard deviation as a bar, hollow at these quotas.
pub(super) fn points(model: &Model, in_doubt: &[f64]) -> Vec<Point> {
    let point = |place: &Place| {
        let sd = place.sd.unwrap_or(0.0);
        let is_open = in_doubt.iter().any(|quota| quota.to_bits() == place.x.to_bits());
        Point::between(place.x, place.mean, place.mean - sd, place.mean + sd).open(is_open)
    };
    model.places.iter().map(point).collect()
}

/// A line, from where it is above 0 to all CPUs.
pub(super) fn line(fit: &LinearFit, cpus: usize) -> Vec<(f64, f64)> {
    let most = cpus as f64;
    let dead = -fit.intercept.interval.estimate / fit.slope.interval.estimate;
    let begin = if dead.is_finite() { dead.clamp(0.0, most) } else { 0.0 };
    [begin, most].map(|quota| (quota, fit.at(quota))).into()
}

/// As in the paper, with the bands where there are several, and what was left out.
pub(super) fn chart(measured: &Measured) -> Chart {
    let rates = measured.analyses.iter().map(|one| {
        Series::points(
            format!("threads: {}", one.threads.name()),
            points(&one.measured, &one.disturbed_quotas),
        )
        .along(line(one.measured.line(), measured.cpus))
    });
    let several = measured.analyses.iter().filter(|one| one.measured.bands.len() > 1);
    // Each is a series: nothing joins two of them in the model.
    let bands = several.flat_map(|one| &one.measured.bands).map(|Band { line, .. }| {
        let end = |quota: f64| Point::new(quota, line.intercept + line.slope * quota);
        Series::line(format!("band {:.1} to {:.1}", line.from, line.to), [line.from, line.to].map(end).into())
    });
    // Those that stand for a quota without others are there already.
    let stands = |sample: &&Sample| {
        let mut places = measured.analyses.iter().flat_map(|one| &one.measured.places);
        places.any(|place| (place.x, place.mean) == (sample.quota, sample.gflops))
    };
    let left_out = measured.disturbed().filter(|sample| !stands(sample));
    let disturbed: Vec<_> =
        left_out.map(|sample| Point::new(sample.quota, sample.gflops).open(true)).collect();
    let disturbed = (!disturbed.is_empty()).then(|| Series::points("disturbed", disturbed));
    Chart::new(
        "Calibration: LINPACK at CPU quotas",
        Axis::linear("CPU quota"),
        Axis::linear("GFLOPS, mean ± standard deviation"),
        rates.chain(bands).chain(disturbed).collect(),
    )
}

pub(super) fn residuals_chart(measured: &Measured) -> Chart {
    let series = measured.analyses.iter().map(|one| {
        let model = &one.measured;
        let over = points(model, &one.disturbed_quotas);
        let over = over.into_iter().map(|point| point.less(model.predicted(point.x)));
        Series::points(format!("threads: {}", one.threads.name()), over.collect())
    });
    let chart = Chart::new(
        "Calibration: residuals of the linear model",
        Axis::linear("CPU quota"),
        Axis::linear("measured − model, GFLOPS"),
        series.collect(),
    );
    chart.with_ideal("no residual", vec![(0.0, 0.0), (measured.cpus as f64, 0.0)])
}

//! The regression tables of the paper, to be shown beside ours (Manner & Wirtz 2021, tables II to IV and figure 4).

/// Equations of the systems of a run, of which the rate of the last one alone is used.
pub const SIZES: &[usize] = &[1000, 5000, 10_000];

/// Runs of each setting of figure 1.
pub const REPS: usize = 25;

/// One column of the tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// The machine, and the number of its setting.
    pub name: &'static str,
    /// How it was set.
    pub setting: &'static str,
    /// The p-value of the line as printed, which is R's; for Lambda there is none.
    pub p: Option<&'static str>,
    /// Share of the variance that the line explains.
    pub r_squared: f64,
    /// GFLOPS at a quota of 0.
    pub intercept: f64,
    /// GFLOPS per CPU; for Lambda, per megabyte of memory.
    pub slope: f64,
    /// The largest rate, in GFLOPS.
    pub max_gflops: f64,
    /// The largest setting, in CPUs; for Lambda, in megabytes.
    pub largest: f64,
}

/// R's least p-value.
const LEAST: Option<&str> = Some("<2.2e-16");

/// A column whose numbers are R², intercept, slope, largest rate and largest setting.
const fn row(
    name: &'static str,
    setting: &'static str,
    p: Option<&'static str>,
    [r_squared, intercept, slope, max_gflops, largest]: [f64; 5],
) -> Published {
    Published { name, setting, p, r_squared, intercept, slope, max_gflops, largest }
}

/// All of them, in the paper's order.
pub const PUBLISHED: &[Published] = &[
    row("H60", "i7-2600, powersave, turbo", LEAST, [0.9995, -3.081, 23.400, 90.905, 4.0]),
    row("H90 1.a", "HWP powersave, turbo", LEAST, [0.7349, -50.340, 56.357, 215.818, 4.0]),
    row("H90 1.b", "HWP powersave", Some("6.6e-16"), [0.7406, -45.203, 51.649, 197.101, 4.0]),
    row("H90 1.c", "HWP performance, turbo", LEAST, [0.9999, -1.820, 54.118, 215.939, 4.0]),
    row("H90 1.d", "HWP performance", LEAST, [0.9999, -1.715, 49.389, 196.908, 4.0]),
    row("H90 2", "no HWP, powersave", LEAST, [0.9953, -14.378, 55.362, 215.835, 4.0]),
    row("H90 3", "intel_cpufreq, ondemand", LEAST, [0.9975, -7.169, 54.254, 215.880, 4.0]),
    row("H90 4", "acpi-cpufreq, ondemand", LEAST, [0.9976, -7.775, 54.395, 215.740, 4.0]),
    row("AWS Lambda (per MB)", "eu-central-1", None, [0.9973, -1.995, 0.0197, 209.757, 10_240.0]),
];

impl Published {
    /// Setting at which the line is 0.
    pub fn dead(&self) -> f64 {
        -self.intercept / self.slope
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::stats::{Level, LinearFit};

    /// Points of which ordinary least squares makes this row: its line, and residuals that are orthogonal to the
    /// constant and to x, as large as R² says.
    fn points(row: &Published) -> (Vec<f64>, Vec<f64>) {
        let x: Vec<f64> = (1..=40).map(|i| row.largest * f64::from(i) / 40.0).collect();
        let mean = x.iter().sum::<f64>() / 40.0;
        let spread: f64 = x.iter().map(|x| (x - mean).powi(2)).sum();
        // A wave of period four has sum 0 over forty points; what it has of x is taken out.
        let wave: Vec<f64> = (0..40).map(|i| if i % 4 < 2 { 1.0 } else { -1.0 }).collect();
        let tilt = x.iter().zip(&wave).map(|(x, wave)| (x - mean) * wave).sum::<f64>() / spread;
        let wave: Vec<f64> = x.iter().zip(&wave).map(|(x, wave)| wave - tilt * (x - mean)).collect();
        let explained = row.slope.powi(2) * spread;
        let squares: f64 = wave.iter().map(|wave| wave * wave).sum();
        let size = (explained * (1.0 / row.r_squared - 1.0) / squares).sqrt();
        let y = x.iter().zip(&wave).map(|(x, wave)| row.intercept + row.slope * x + size * wave).collect();
        (x, y)
    }

    #[test]
    fn the_paper_s_rows_come_back_from_points_that_have_them() {
        for row in PUBLISHED {
            let (x, y) = points(row);
            let fit = LinearFit::of(&x, &y, Level::P95).unwrap();
            let close = |is: f64, must: f64| (is - must).abs() <= 1e-9 * must.abs().max(1.0);
            assert!(close(fit.r_squared.unwrap(), row.r_squared), "{}", row.name);
            assert!(close(fit.intercept.interval.estimate, row.intercept), "{}", row.name);
            assert!(close(fit.slope.interval.estimate, row.slope), "{}", row.name);
            assert!(fit.slope.p.unwrap() < 1e-11, "{}: even the worst R² has a tiny p", row.name);
        }
    }

    #[test]
    fn what_the_tables_hide_follows_from_them() {
        let of = |name: &str| PUBLISHED.iter().find(|row| row.name == name).unwrap();
        // What a line is off the proportional share of the largest rate, at a part of the largest setting.
        let off = |row: &Published, part: f64| {
            (row.intercept + row.slope * part * row.largest) / (row.max_gflops * part) - 1.0
        };
        for (name, dead, half, one) in
            [("H60", 0.132, -0.24, -0.11), ("H90 1.c", 0.034, -0.06, -0.03), ("H90 4", 0.143, -0.28, -0.14)]
        {
            let row = of(name);
            assert!((row.dead() - dead).abs() < 0.0006, "{name}");
            assert!((off(row, 0.5 / 4.0) - half).abs() < 0.006, "{name}: {}", off(row, 0.5 / 4.0));
            assert!((off(row, 1.0 / 4.0) - one).abs() < 0.006, "{name}: {}", off(row, 1.0 / 4.0));
        }
    }
}

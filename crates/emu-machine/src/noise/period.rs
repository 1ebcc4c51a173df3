//! Whether moments come in a period, and in which.
//!
//! The power of a frequency is that of Schuster's periodogram of the moments (A. Schuster 1898, *On the investigation
//! of hidden periodicities*): how nearly they all fall on one phase. For moments that come at random it is
//! exponential with mean 1, whatever the frequency, so that the largest of many is known; bursts raise it, which is
//! measured from the neighbouring frequencies.

use std::f64::consts::{LN_2, TAU};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const PERIOD_MIN_S: f64 = 0.5e-3;

/// Cycles that the moments must span.
const CYCLES_MIN: f64 = 20.0;

const MOMENTS_MIN: usize = 20;

/// Moments that are looked at; the time for a spectrum grows with them.
const MOMENTS_MAX: usize = 8192;

/// What follows so closely is of the same disturbance, in seconds.
const SAME_S: f64 = 100e-6;

/// Frequencies looked at for each that differs from its neighbours.
const OVERSAMPLING: f64 = 4.0;

/// Frequencies whose median says what random moments would give. Few, as bursts raise the low ones only, and more than
/// a peak is wide.
const NEIGHBOURS: usize = 128;

/// Chance of a period where there is none.
const FALSE_ALARM: f64 = 1e-4;

/// Parts of a cycle, to tell where in it moments come: twice, where a tick is followed by what it has woken.
const PARTS: usize = 20;

/// A part has more moments than chance gives when it has so many standard deviations more than the usual one.
const DEVIATIONS: f64 = 4.0;

/// Share of the cycles that must have such a moment: what is periodic does not come once in a while.
const COVERED_MIN: f64 = 0.6;

/// A sub-harmonic as strong as this share of its harmonic is the true frequency: a tick and what follows it half a cycle
/// later are strongest at twice the rate of the tick.
const FUNDAMENTAL: f64 = 0.1;

/// The same for the rate of a tick.
const TICK: f64 = 0.5;

const SUBHARMONICS: u32 = 40;

/// Of moments that are closer than this share of a period one counts, so that a burst is no evidence for it.
const BURST: f64 = 0.125;

/// Rates of the kernel's timer tick, in Hz (`CONFIG_HZ`), the highest first.
const TICKS_HZ: [f64; 4] = [1000.0, 300.0, 250.0, 100.0];

/// How far a rate may be from that of a tick: clocks of different oscillators.
const TICK_TOLERANCE: f64 = 0.005;

/// A period in which moments come.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Period {
    /// Its length, in nanoseconds.
    pub length_ns: f64,
    /// In which twentieths of the cycle, counted from multiples of the length, more moments come than chance gives.
    pub parts: [bool; PARTS],
    /// Share of the cycles that have a moment there.
    pub covered: f64,
    /// The power of its frequency, in that of random moments.
    pub power: f64,
}

impl Period {
    /// The period of moments within a span of that many seconds; `None` where they may as well be random.
    pub fn of(times_s: &[f64], span_s: f64) -> Option<Self> {
        let mut moments = thinned(times_s, SAME_S);
        let span = match moments.get(MOMENTS_MAX) {
            Some(end) => *end,
            None => span_s,
        };
        moments.truncate(MOMENTS_MAX);
        if moments.len() < MOMENTS_MIN || span < CYCLES_MIN * PERIOD_MIN_S {
            return None;
        }
        let spectrum = Spectrum::of(&moments, span);
        let (strongest, power) = spectrum.strongest()?;
        if power < least_power(1.0 / PERIOD_MIN_S, span) {
            return None;
        }
        // Moments without jitter are as strong at each multiple of their frequency: the lowest one is meant.
        let harmonic = refined(&moments, strongest, spectrum.step);
        let harmonic_power = power_of(&moments, harmonic);
        let as_strong_as = |frequency: f64, share: f64| {
            frequency >= spectrum.lowest && power_of(&moments, frequency) >= harmonic_power * share
        };
        let at =
            |frequency: f64, step: f64| Self::at(refined(&moments, frequency, step), &moments, span, power);
        // Ticks come first: what else comes in a period may share a multiple with them, and be the lower one.
        let ticks = TICKS_HZ.iter().filter_map(|tick| {
            let divisor = (harmonic / tick).round();
            let frequency = harmonic / divisor;
            let is_tick = divisor >= 1.0 && (frequency / tick - 1.0).abs() <= TICK_TOLERANCE;
            (is_tick && as_strong_as(frequency, TICK)).then(|| at(frequency, spectrum.step / divisor))?
        });
        let subharmonics = (1..=SUBHARMONICS).rev().map(f64::from).filter_map(|divisor| {
            let frequency = harmonic / divisor;
            as_strong_as(frequency, FUNDAMENTAL).then(|| at(frequency, spectrum.step / divisor))?
        });
        ticks.chain(subharmonics).next()
    }

    fn at(frequency: f64, moments: &[f64], span: f64, power: f64) -> Option<Self> {
        if power_of(&thinned(moments, BURST / frequency), frequency) < least_power(frequency, span) {
            return None;
        }
        let mut period = Self { length_ns: 1e9 / frequency, parts: [false; PARTS], covered: 0.0, power };
        let mut counts = [0.0; PARTS];
        for at in moments {
            if let Some(count) = counts.get_mut(period.part(*at)) {
                *count += 1.0;
            }
        }
        let mut sorted = counts;
        sorted.sort_by(f64::total_cmp);
        let usual = f64::midpoint(sorted[PARTS / 2 - 1], sorted[PARTS / 2]);
        period.parts = counts.map(|count| count > usual + DEVIATIONS * usual.sqrt().max(1.0));
        let has_more = |at: &&f64| period.has(**at);
        let mut cycles: Vec<u64> =
            moments.iter().filter(has_more).map(|at| (at * frequency) as u64).collect();
        cycles.dedup();
        period.covered = (cycles.len() as f64 / (span * frequency)).min(1.0);
        (period.covered >= COVERED_MIN).then_some(period)
    }

    /// Whether a moment, in seconds, is one of those that come in this period.
    pub fn has(&self, at_s: f64) -> bool {
        self.parts.get(self.part(at_s)).is_some_and(|has_more| *has_more)
    }

    fn part(&self, at_s: f64) -> usize {
        let cycles = at_s * 1e9 / self.length_ns;
        (cycles.rem_euclid(1.0) * PARTS as f64) as usize
    }

    /// How often it comes, in Hz.
    pub fn rate_hz(&self) -> f64 {
        1e9 / self.length_ns
    }

    /// The rate of the kernel's timer tick that it is, in Hz.
    pub fn tick_hz(&self) -> Option<f64> {
        TICKS_HZ.into_iter().find(|tick| (self.rate_hz() / tick - 1.0).abs() <= TICK_TOLERANCE)
    }
}

struct Spectrum {
    lowest: f64,
    step: f64,
    powers: Vec<f64>,
}

impl Spectrum {
    fn of(moments: &[f64], span: f64) -> Self {
        let (lowest, step) = (CYCLES_MIN / span, 1.0 / (OVERSAMPLING * span));
        let count = ((1.0 / PERIOD_MIN_S - lowest) / step).max(0.0) as usize + 1;
        // The angle of each moment grows from one frequency to the next by the same turn: products instead of sines.
        let turns: Vec<(f64, f64)> = moments.iter().map(|at| (TAU * step * at).sin_cos()).collect();
        let mut angles: Vec<(f64, f64)> = moments.iter().map(|at| (TAU * lowest * at).sin_cos()).collect();
        let powers = (0..count).map(|_| {
            let (mut sines, mut cosines) = (0.0, 0.0);
            for ((sin, cos), (turn_sin, turn_cos)) in angles.iter_mut().zip(&turns) {
                sines += *sin;
                cosines += *cos;
                (*sin, *cos) = (*sin * turn_cos + *cos * turn_sin, *cos * turn_cos - *sin * turn_sin);
            }
            (sines * sines + cosines * cosines) / moments.len() as f64
        });
        Self { lowest, step, powers: powers.collect() }
    }

    /// The frequency that stands out most from its neighbours, and its power in theirs.
    fn strongest(&self) -> Option<(f64, f64)> {
        let blocks = self.powers.chunks(NEIGHBOURS).enumerate().filter_map(|(block, powers)| {
            let mut sorted = powers.to_vec();
            sorted.sort_by(f64::total_cmp);
            // The median of an exponential distribution is ln 2 of its mean.
            let usual = (sorted.get(sorted.len() / 2)? / LN_2).max(1.0);
            let (place, power) = powers.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
            let frequency = self.lowest + (block * NEIGHBOURS + place) as f64 * self.step;
            Some((frequency, power / usual))
        });
        blocks.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

fn thinned(times: &[f64], apart: f64) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for &time in times {
        if kept.last().is_none_or(|last| time - last >= apart) {
            kept.push(time);
        }
    }
    kept
}

/// The power that the strongest of all frequencies up to this one has by chance once in [`FALSE_ALARM`] looks.
fn least_power(frequency: f64, span: f64) -> f64 {
    (span * frequency / FALSE_ALARM).ln()
}

/// The strongest frequency within a step of this one, by golden section.
fn refined(moments: &[f64], frequency: f64, step: f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let power = |frequency| power_of(moments, frequency);
    let (mut low, mut high) = (frequency - step, frequency + step);
    for _ in 0..12 {
        let reach = (high - low) * GOLDEN;
        if power(high - reach) > power(low + reach) {
            high = low + reach;
        } else {
            low = high - reach;
        }
    }
    f64::midpoint(low, high)
}

fn power_of(moments: &[f64], frequency: f64) -> f64 {
    let (mut sines, mut cosines) = (0.0, 0.0);
    for at in moments {
        let (sin, cos) = (TAU * frequency * at).sin_cos();
        sines += sin;
        cosines += cos;
    }
    (sines * sines + cosines * cosines) / moments.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    const SPAN: f64 = 2.0;

    /// Moments in a period with a jitter, of which each is there by a chance.
    fn train(rng: &mut Pcg64, period: f64, jitter: f64, chance: f64) -> Vec<f64> {
        let count = (SPAN / period) as usize;
        let times = (0..count).map(|cycle| (cycle as f64 + 0.3) * period);
        let mut times: Vec<f64> = times.collect();
        times.retain(|_| rng.random_bool(chance));
        for at in &mut times {
            *at += rng.random_range(-jitter..=jitter);
        }
        times
    }

    /// Moments at random, so many a second.
    fn random(rng: &mut Pcg64, rate: f64) -> Vec<f64> {
        (0..(rate * SPAN) as usize).map(|_| rng.random_range(0.0..SPAN)).collect()
    }

    fn sorted(mut times: Vec<f64>) -> Vec<f64> {
        times.sort_by(f64::total_cmp);
        times
    }

    #[test]
    fn a_known_period_is_found_among_random_gaps() {
        for (seed, (period, jitter, chance, others)) in [
            (4e-3, 0.0, 1.0, 0.0),
            (4e-3, 5e-6, 1.0, 500.0),
            (10e-3, 100e-6, 0.9, 300.0),
            (1e-3, 10e-6, 1.0, 800.0),
            (0.7e-3, 0.0, 1.0, 0.0),
            (53.7e-3, 1e-3, 0.9, 2.5),
            (3.3333e-3, 20e-6, 0.7, 100.0),
        ]
        .into_iter()
        .enumerate()
        {
            let mut rng = Pcg64::seed_from_u64(seed as u64);
            let mut times = train(&mut rng, period, jitter, chance);
            times.extend(random(&mut rng, others));
            let found = Period::of(&sorted(times), SPAN).unwrap_or_else(|| panic!("{period}"));
            assert!((found.length_ns / 1e9 / period - 1.0).abs() < 1e-3, "{period}: {found:?}");
            assert!(found.covered > chance - 0.15, "{period}: {found:?}");
            // Half a part later, as its phase lies on a border of two.
            let has =
                |cycles: f64| found.has((cycles + 0.01) * period) || found.has((cycles - 0.01) * period);
            assert!(has(0.3) && has(17.3) && !has(17.8), "{period}: {found:?}");
        }
    }

    #[test]
    fn a_tick_followed_by_another_disturbance_keeps_its_period() {
        let mut rng = Pcg64::seed_from_u64(1);
        let mut times = train(&mut rng, 4e-3, 50e-6, 1.0);
        times.extend(train(&mut rng, 4e-3, 100e-6, 0.8).iter().map(|at| at + 1.5e-3));
        times.extend(random(&mut rng, 50.0));
        let found = Period::of(&sorted(times), SPAN).unwrap();
        assert_eq!(found.tick_hz(), Some(250.0), "{found:?}");
        assert!(found.has(0.32 * 4e-3) && found.has(0.67 * 4e-3) && !found.has(0.1 * 4e-3), "{found:?}");
    }

    #[test]
    fn a_tick_is_found_beside_a_period_that_shares_its_multiples() {
        let mut rng = Pcg64::seed_from_u64(2);
        let mut times = train(&mut rng, 4e-3, 30e-6, 0.95);
        times.extend(train(&mut rng, 10e-3, 30e-6, 1.0).iter().map(|at| at + 0.7e-3));
        times.extend(random(&mut rng, 100.0));
        let found = Period::of(&sorted(times), SPAN).unwrap();
        assert_eq!(found.tick_hz(), Some(250.0), "{found:?}");
    }

    #[test]
    fn no_period_is_claimed_for_random_gaps() {
        for seed in 0..20 {
            let mut rng = Pcg64::seed_from_u64(seed);
            for rate in [20.0, 200.0, 1000.0] {
                let times = sorted(random(&mut rng, rate));
                assert_eq!(Period::of(&times, SPAN), None, "seed {seed}, {rate}/s");
            }
        }
    }

    #[test]
    fn no_period_is_claimed_for_random_bursts() {
        for seed in 0..20 {
            let mut rng = Pcg64::seed_from_u64(seed);
            for (bursts, each, apart) in [(5.0, 30, 0.5e-3), (50.0, 4, 0.3e-3), (3.0, 200, 0.4e-3)] {
                let starts = random(&mut rng, bursts);
                let burst = |start: &f64| {
                    let steps = (0..each).scan(*start, |at, _| {
                        *at += rng.random_range(0.2..1.8) * apart;
                        Some(*at)
                    });
                    steps.collect::<Vec<_>>()
                };
                let times = sorted(starts.iter().flat_map(burst).collect());
                assert_eq!(Period::of(&times, SPAN), None, "seed {seed}, {bursts} bursts/s");
            }
        }
    }

    #[test]
    fn too_few_moments_or_too_short_a_look_have_no_period() {
        let even = |count: usize, period: f64| (0..count).map(|i| i as f64 * period).collect::<Vec<_>>();
        assert_eq!(Period::of(&[], SPAN), None);
        assert_eq!(Period::of(&even(19, 0.1), SPAN), None);
        assert_eq!(Period::of(&even(19, 0.25e-3), 0.005), None);
    }

    #[test]
    fn ticks_are_known_by_their_rate() {
        let at = |rate: f64| {
            Period { length_ns: 1e9 / rate, parts: [true; PARTS], covered: 1.0, power: 99.0 }.tick_hz()
        };
        assert_eq!(
            [250.1, 999.0, 100.0, 300.0].map(at),
            [Some(250.0), Some(1000.0), Some(100.0), Some(300.0)]
        );
        assert_eq!([260.0, 50.0, 500.0].map(at), [None; 3]);
    }
}

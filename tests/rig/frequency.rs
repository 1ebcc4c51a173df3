//! cpu-freq and cpu-gov by the kernel's own account, and the clock that is held under other methods.

use super::guest::{Guest, Report, number, numbers};

/// The frequencies of the rig's CPUs, in kHz.
const HIGHEST: f64 = 2_600_000.0;
const LOWEST: f64 = 800_000.0;

fn percents(megahertz: &[u32]) -> String {
    let percents: Vec<_> =
        megahertz.iter().map(|mhz| format!("{:.6}", f64::from(*mhz) * 1e5 / HIGHEST)).collect();
    percents.join(",")
}

/// What `--round` has to make of a wish, worked out from the table alone.
fn rounded(wanted: f64, round: &str, table: &[f64]) -> f64 {
    let fits = |level: &&f64| match round {
        "down" => **level <= wanted,
        "up" => **level >= wanted,
        _ => true,
    };
    let nearest = |a: &&f64, b: &&f64| (**a - wanted).abs().total_cmp(&(**b - wanted).abs());
    table.iter().filter(fits).min_by(nearest).copied().expect("a frequency that fits")
}

fn check_cpu_freq(guest: Guest) {
    // Away from the middle between two levels, and from the levels themselves: the speeds are rounded on their way.
    let settings = [
        ("nearest", [2450, 1950, 1150, 300]),
        ("nearest", [850, 1590, 1610, 2050]),
        ("down", [2590, 2190, 1390, 990]),
        ("up", [810, 1010, 1410, 2210]),
    ];
    let words: Vec<_> = settings.iter().map(|(round, mhz)| format!("{round}:{}", percents(mhz))).collect();
    let Some(report) = guest.run(&format!("cpu_freq.sh {}", words.join(" "))) else { return };
    let table = numbers(&report.lines("table").next().expect("the table"));
    assert_eq!(table.len(), 6, "{table:?}");
    let seen: Vec<_> = report.lines("frequencies").zip(report.lines("registers")).collect();
    assert_eq!(seen.len(), settings.len(), "{}", report.text());
    for ((round, mhz), (frequencies, registers)) in settings.iter().zip(seen) {
        let wanted: Vec<_> = mhz.iter().map(|mhz| rounded(f64::from(*mhz) * 1e3, round, &table)).collect();
        assert_eq!(numbers(&frequencies), wanted, "{round} {mhz:?}");
        // The register holds the number of the state; the kernel lists the states by it.
        let states = numbers(&registers).into_iter().map(|state| table[state as usize]);
        assert_eq!(states.collect::<Vec<_>>(), wanted, "{round} {mhz:?}");
    }
}

#[test]
fn cpu_freq_sets_the_nearest_frequency_on_each_cpu() {
    check_cpu_freq(Guest::FOUR);
    check_cpu_freq(Guest::FOUR_NEW);
}

/// The mean of the frequencies that a CPU was set to, by its `stats/time_in_state`, in kHz.
fn mean(report: &Report, setting: &str, cpu: usize) -> f64 {
    let cpu = cpu.to_string();
    let spent = report.lines("spent").find(|words| words[0] == setting && words[1] == cpu);
    let spent = numbers(&spent.unwrap_or_else(|| panic!("nothing of {setting}: {}", report.text()))[2..]);
    let (sum, time) =
        spent.chunks(2).fold((0.0, 0.0), |(sum, time), pair| (sum + pair[0] * pair[1], time + pair[1]));
    sum / time
}

fn close(what: &str, asked: f64, got: f64) {
    let error = got / asked - 1.0;
    println!("{what}: {:.1} MHz asked, {:.1} MHz got, {:+.2} %", asked / 1e3, got / 1e3, error * 100.0);
    assert!(error.abs() < 0.01, "{what}: {got} instead of {asked}");
}

#[test]
fn cpu_gov_has_the_mean_asked_for_across_the_range_and_below_it() {
    const MHZ: [u32; 12] = [2600, 2500, 2250, 1900, 1800, 1500, 1300, 1100, 850, 600, 400, 100];
    // On the newer kernel some: at a level, between two, below the lowest.
    for (guest, every) in [(Guest::ONE, 1), (Guest::ONE_NEW, 3)] {
        let mhz: Vec<_> = MHZ.into_iter().step_by(every).collect();
        let settings: Vec<_> = mhz.iter().map(|mhz| percents(&[*mhz])).collect();
        let Some(report) = guest.run(&format!("cpu_gov.sh 1000 {}", settings.join(" "))) else { return };
        let rate = |setting: &str| {
            let rate = report.lines("rate").find(|words| words[0] == setting);
            number(rate.unwrap_or_else(|| panic!("no rate of {setting}: {}", report.text()))[1])
        };
        for (mhz, setting) in mhz.iter().zip(&settings) {
            let asked = f64::from(*mhz) * 1e3;
            // No frequency makes a loop faster in the guest, but being frozen makes it slower.
            let running = if asked < LOWEST { rate(setting) / rate("100") } else { 1.0 };
            close(&format!("{guest:?}"), asked, mean(&report, setting, 0) * running);
        }
    }
}

#[test]
fn cpu_gov_gives_four_cpus_four_means_at_once() {
    let settings = [[2500, 1900, 1500, 900], [850, 1300, 2000, 2300]];
    // The first CPU is frozen half of the time, and the others run faster in the other half.
    let frozen = [400, 600, 1000, 1200];
    let words = [percents(&settings[0]), percents(&settings[1]), percents(&frozen)];
    let Some(report) = Guest::FOUR.run(&format!("cpu_gov.sh 1300 {}", words.join(" "))) else { return };
    let running = [1.0, 1.0, 400e3 / LOWEST];
    for ((mhz, setting), running) in settings.iter().chain([&frozen]).zip(&words).zip(running) {
        for (cpu, mhz) in mhz.iter().enumerate() {
            let got = mean(&report, setting, cpu) * running;
            close(&format!("CPU {cpu}"), f64::from(*mhz) * 1e3, got);
        }
    }
}

#[test]
fn cpus_that_share_a_clock_are_slowed_together_or_not_at_all() {
    let Some(report) = Guest::PAIRS.run("domains.sh") else { return };
    let ended = |name: &str| {
        let words = report.lines("ended").find(|words| words[0] == name);
        numbers(&words.unwrap_or_else(|| panic!("nothing of {name}: {}", report.text()))[1..])
    };
    let said = |name: &str| {
        let lines = report.lines("words").filter(|words| words[0] == name);
        lines.map(|words| words[1..].join(" ")).collect::<Vec<_>>().join(" ")
    };
    for method in ["cpu-freq", "cpu-gov"] {
        let name = |zone: &str| format!("{method}-{zone}");
        assert_eq!(ended(&name("half")), [3.0], "{}", report.text());
        assert!(
            said(&name("half")).contains("CPUs 1 share a clock with the zone's CPUs"),
            "{}",
            report.text()
        );
        assert!(said(&name("half")).contains("--widen"), "{}", report.text());
        assert_eq!(ended(&name("unequal")), [3.0], "{}", report.text());
        assert!(said(&name("unequal")).contains("cannot have different speeds"), "{}", report.text());
        assert_eq!(ended(&name("widened")), [0.0, 1_400_000.0, HIGHEST]);
        assert_eq!(ended(&name("whole")), [0.0, HIGHEST, 1_400_000.0]);
        assert_eq!(ended(&name("both")), [0.0, 1_400_000.0, 2_200_000.0]);
    }
}

#[test]
fn the_clock_is_held_where_a_governor_would_lower_it() {
    let methods = ["cpu-freeze", "cpu-lim", "fracas"];
    let Some(report) = Guest::ONE.run(&format!("held_clock.sh {}", methods.join(" "))) else { return };
    let of = |key, method: &str| {
        let lines = report.lines(key).filter(|words| words[0] == method);
        lines.map(|words| numbers(&words[1..])).collect::<Vec<_>>()
    };
    let found = numbers(&report.lines("found").next().expect("the limits"));
    // State 1 is 2.2 GHz, the upper limit that was found.
    for method in methods {
        let [held] = of("held", method).try_into().expect("one run");
        assert!(
            held.len() == 40 && held.iter().all(|state| (*state - 1.0).abs() < 0.5),
            "{method}: {held:?}"
        );
        let [left] = of("left", method).try_into().expect("one run");
        assert!(left.iter().any(|state| *state > 1.0), "{method}: the governor had no reason: {left:?}");
        assert_eq!(of("after", method), [found.clone(), found.clone()], "{method}");
        assert_eq!(of("told", method), [[1.0], [1.0]], "{method}: {}", report.text());
    }
}

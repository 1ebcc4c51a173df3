//! Tunings of recorded machines, with kernels that refuse.

use super::super::finding::State;
use super::super::tests::{acpi, intel_active, machine};
use super::super::{KNOBS, examine};
use super::*;

const ASLR: &str = "proc/sys/kernel/randomize_va_space";

fn text(machine: &Machine, path: &str) -> String {
    let root = machine.host.roots.proc.parent().unwrap();
    std::fs::read_to_string(root.join(path)).unwrap()
}

const CHANGED: [(&str, &str); 7] = [
    (ASLR, "0"),
    ("proc/sys/vm/swappiness", "0"),
    ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpufreq/boost", "0"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "madvise"),
    ("sys/kernel/mm/transparent_hugepage/defrag", "madvise"),
];

fn names(tuning: &Tuning) -> Vec<&str> {
    tuning.tuned().iter().map(|tuned| tuned.name).collect()
}

/// What kernel files hold when each is written back as a word.
fn restored(before: &str) -> String {
    let chosen = before.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or_else(|| before.trim().to_owned(), |(word, _)| word.to_owned())
}

#[test]
fn all_is_changed_in_order_and_put_back_at_the_end() {
    let (_dir, machine) = machine(&acpi());
    let before = CHANGED.map(|(path, _)| text(&machine, path));
    let slack = prctl::get_timerslack().unwrap();
    let tuning = Tuning::begin(&machine, &examine(&machine, &[]).unwrap(), "test", false).unwrap();
    assert_eq!(
        names(&tuning),
        ["governor", "turbo", "c-states", "aslr", "swap", "thp", "thp-defrag", "timer-slack"]
    );
    assert!(tuning.refused().is_empty(), "{:?}", tuning.refused());
    for (path, value) in CHANGED {
        assert_eq!(text(&machine, path), value, "{path}");
    }
    assert_eq!(prctl::get_timerslack().unwrap(), 1);
    let held = std::fs::read(machine.host.roots.dev.join("cpu_dma_latency")).unwrap();
    assert_eq!(held.get(..4), Some(2_i32.to_ne_bytes().as_slice()), "C1 takes 2 µs to leave");
    assert_eq!(tuning.end().unwrap(), Vec::<String>::new());
    for ((path, _), before) in CHANGED.iter().zip(&before) {
        assert_eq!(text(&machine, path).trim(), restored(before), "{path}");
    }
    assert_eq!(prctl::get_timerslack().unwrap(), slack);
}

#[test]
fn the_timer_slack_of_another_thread_is_left() {
    let found = std::thread::spawn(|| {
        let found = prctl::get_timerslack().unwrap() as u64;
        (std::thread::current().id(), found + 1)
    });
    let mut held = super::Held { slack: Some(found.join().unwrap()), ..super::Held::default() };
    let ours = prctl::get_timerslack().unwrap();
    held.let_go();
    assert_eq!(prctl::get_timerslack().unwrap(), ours);
}

#[test]
fn a_tuned_machine_has_nothing_left_to_tune() {
    let (_dir, machine) = machine(&acpi());
    let tuning = Tuning::begin(&machine, &examine(&machine, &[]).unwrap(), "test", false).unwrap();
    let again = super::super::tests::look_again(&machine);
    let left = examine(&again, &[]).unwrap().into_iter().filter(|knob| knob.finding.state == State::Tune);
    let left: Vec<_> = left.map(|knob| knob.about.name).collect();
    assert!(left.is_empty(), "{left:?}");
    tuning.end().unwrap();
}

/// A kernel that refuses a file in its own way.
fn refusing<'a>(
    refused: &'a str,
    how: impl Fn(&Path) -> Result<()> + 'a,
) -> impl Fn(&mut Held, &Journal, &Machine, &Change) -> Result<()> + 'a {
    move |held, journal, machine, change| {
        apply(held, journal, machine, change)?;
        match change.path() {
            Some(path) if path.ends_with(refused) => how(&path),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_refused_knob_is_left_as_it_was_and_the_others_are_tuned() {
    let fails = |path: &Path| Err(Error::file("write `0` to", path, std::io::Error::from_raw_os_error(22)));
    let ignores = |path: &Path| {
        std::fs::write(path, "1\n").unwrap();
        Ok(())
    };
    for how in [&fails as &dyn Fn(&Path) -> Result<()>, &ignores] {
        let (_dir, machine) = machine(&acpi());
        let kernel = refusing("cpufreq/boost", how);
        let tuning =
            Tuning::begin_with(&machine, &examine(&machine, &[]).unwrap(), "test", false, &kernel).unwrap();
        assert_eq!(tuning.refused().iter().map(|refused| refused.name).collect::<Vec<_>>(), ["turbo"]);
        assert!(tuning.refused()[0].why.contains("cpufreq/boost"), "{:?}", tuning.refused());
        assert!(names(&tuning).contains(&"governor") && !names(&tuning).contains(&"turbo"));
        assert_eq!(text(&machine, CHANGED[4].0).trim(), "1");
        assert_eq!(text(&machine, ASLR), "0");
        tuning.end().unwrap();
        assert_eq!(text(&machine, ASLR), "2");
    }
}

#[test]
fn a_knob_that_was_named_must_not_be_refused() {
    let (_dir, machine) = machine(&acpi());
    let before = CHANGED.map(|(path, _)| text(&machine, path));
    let fails = |path: &Path| Err(Error::file("write `0` to", path, std::io::Error::from_raw_os_error(1)));
    let kernel = refusing("transparent_hugepage/defrag", fails);
    let mut knobs = examine(&machine, &[]).unwrap();
    knobs.retain(|knob| knob.finding.state == State::Tune);
    let error = Tuning::begin_with(&machine, &knobs, "test", true, &kernel).unwrap_err();
    assert_eq!(error.to_string(), "cannot tune thp-defrag");
    assert_eq!(error.kind(), ErrorKind::NotPermitted);
    for ((path, _), before) in CHANGED.iter().zip(&before) {
        assert_eq!(text(&machine, path).trim(), restored(before), "{path}");
    }
}

#[test]
fn a_knob_that_was_named_must_be_one_that_can_be_tuned() {
    let (_dir, machine) = machine(&acpi());
    let named = |name: &str| {
        let knobs: Vec<_> =
            examine(&machine, &[]).unwrap().into_iter().filter(|knob| knob.about.name == name).collect();
        Tuning::begin(&machine, &knobs, "test", true)
    };
    for name in ["epp", "isolcpus", "rt-limit"] {
        let error = named(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().starts_with(&format!("cannot tune {name}: ")), "{error}");
        assert!(error.hint_text().is_some());
    }
    assert!(named("clocksource").unwrap().tuned().is_empty(), "it is as it should be");
}

#[test]
fn a_later_knob_that_moves_an_earlier_one_is_noticed() {
    let (_dir, machine) = machine(&acpi());
    let governor = machine.host.roots.cpus().join("cpufreq/policy0/scaling_governor");
    let kernel = refusing("cpufreq/boost", |_| {
        std::fs::write(&governor, "ondemand\n").unwrap();
        Ok(())
    });
    let tuning =
        Tuning::begin_with(&machine, &examine(&machine, &[]).unwrap(), "test", false, &kernel).unwrap();
    assert_eq!(tuning.refused().iter().map(|refused| refused.name).collect::<Vec<_>>(), ["governor"]);
    tuning.end().unwrap();
    assert_eq!(std::fs::read_to_string(&governor).unwrap().trim(), "ondemand");
}

#[test]
fn a_preference_changed_along_with_the_governor_is_put_back() {
    for only_governor in [true, false] {
        let (_dir, machine) = machine(&intel_active());
        let preference = machine.host.roots.cpus().join("cpufreq/policy0/energy_performance_preference");
        let kernel = refusing("scaling_governor", |_| {
            std::fs::write(&preference, "performance\n").unwrap();
            Ok(())
        });
        let mut knobs = examine(&machine, &[]).unwrap();
        knobs.retain(|knob| !only_governor || knob.about.name == "governor");
        let tuning = Tuning::begin_with(&machine, &knobs, "test", false, &kernel).unwrap();
        assert!(tuning.refused().is_empty(), "{:?}", tuning.refused());
        tuning.end().unwrap();
        assert_eq!(std::fs::read_to_string(&preference).unwrap().trim(), "balance_performance");
    }
}

#[test]
fn what_the_switch_of_turbo_sets_in_each_policy_is_put_back() {
    let files = [
        ("policy0/boost", "0\n"),
        ("policy1/boost", "1\n"),
        ("policy1/cpuinfo_max_freq", "3000000\n"),
        ("policy1/scaling_max_freq", "2000000\n"),
    ];
    let below =
        |(file, text): (&str, &str)| (format!("sys/devices/system/cpu/cpufreq/{file}"), text.to_owned());
    let (_dir, machine) = machine(&[acpi(), files.map(below).to_vec()].concat());
    let folder = machine.host.roots.cpus().join("cpufreq");
    // What the kernel sets when the common switch is put back.
    let kernel = refusing("cpufreq/boost", |_| {
        for (file, text) in
            [("policy0/boost", "1\n"), ("policy1/boost", "1\n"), ("policy1/scaling_max_freq", "3000000\n")]
        {
            std::fs::write(folder.join(file), text).unwrap();
        }
        Ok(())
    });
    let tuning =
        Tuning::begin_with(&machine, &examine(&machine, &[]).unwrap(), "test", false, &kernel).unwrap();
    assert!(names(&tuning).contains(&"turbo"), "{:?}", tuning.refused());
    assert_eq!(tuning.end().unwrap(), Vec::<String>::new());
    for (file, text) in files {
        assert_eq!(std::fs::read_to_string(folder.join(file)).unwrap().trim(), text.trim(), "{file}");
    }
    assert_eq!(text(&machine, CHANGED[4].0).trim(), "1");
}

#[test]
fn of_separable_changes_those_that_work_are_made() {
    let (_dir, mut machine) = machine(&acpi());
    machine.cpus = "1".parse().unwrap();
    let fails = |path: &Path| Err(Error::file("write `0` to", path, std::io::Error::from_raw_os_error(5)));
    let kernel = refusing("irq/9/smp_affinity_list", fails);
    let tuning =
        Tuning::begin_with(&machine, &examine(&machine, &[]).unwrap(), "test", false, &kernel).unwrap();
    let irqs = tuning.tuned().iter().find(|tuned| tuned.name == "irq-affinity").unwrap();
    assert_eq!((irqs.changes.len(), irqs.refused.len()), (1, 1), "{irqs:?}");
    assert_eq!(text(&machine, "proc/irq/8/smp_affinity_list"), "0");
    tuning.end().unwrap();
    assert_eq!(text(&machine, "proc/irq/8/smp_affinity_list"), "0-1");
}

#[test]
fn without_permission_for_any_knob_it_is_an_error() {
    let (_dir, machine) = machine(&acpi());
    let mut knobs = examine(&machine, &[]).unwrap();
    for knob in &mut knobs {
        knob.not_permitted = Some("it is read-only".into());
    }
    let error = Tuning::begin(&machine, &knobs, "test", false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotPermitted);
    assert!(error.to_string().contains("it is read-only") && error.hint_text().is_some());
    knobs.retain(|knob| !knob.finding.changes.is_empty());
    knobs[0].not_permitted = None;
    let tuning = Tuning::begin(&machine, &knobs, "test", false).unwrap();
    assert_eq!((tuning.tuned().len(), tuning.refused().len()), (1, knobs.len() - 1));
    assert!(KNOBS.iter().any(|knob| knob.name == tuning.tuned()[0].name));
}

#[test]
fn beside_a_frequency_emulation_the_governor_is_left_alone() {
    let (_dir, machine) = machine(&acpi());
    let emulation = Journal::open(&machine.host.roots, &"0".parse().unwrap(), "cpu-freq", "make").unwrap();
    let error = Tuning::begin(&machine, &examine(&machine, &[]).unwrap(), "test", false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("cpu-freq on CPU 0"), "{error}");
    let others: Vec<_> =
        examine(&machine, &[]).unwrap().into_iter().filter(|knob| knob.about.name == "aslr").collect();
    Tuning::begin(&machine, &others, "test", false).unwrap().end().unwrap();
    drop(emulation);
}

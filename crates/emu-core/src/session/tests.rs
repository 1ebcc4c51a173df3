use super::*;
use crate::cpu_list::CpuList;
use crate::host::Host;
use crate::method::About;
use crate::roots::Roots;
use crate::sys::Pid;
use crate::zone::Demand;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ID: MethodId = MethodId::new("cpu-hogs");

struct Idle {
    fails: bool,
    /// The shares that were asked for.
    seen: Arc<Mutex<Vec<f64>>>,
}

impl Emulation for Idle {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        self.seen.lock().unwrap().push(targets[&0].share);
        if targets[&0].share < 0.1 || self.fails { Err(Error::unavailable("out of reach")) } else { Ok(()) }
    }

    fn status(&self) -> Status {
        let notes = vec!["its own".into()];
        Status { notes, ..Status::new(ID, Duration::ZERO) }
    }

    fn release(self: Box<Self>) -> Result<()> {
        if self.fails { Err(Error::unavailable("it had failed")) } else { Ok(()) }
    }
}

/// The account of this process, which no emulation slows.
fn delivery() -> Delivery {
    static NONE: About = About::new("none");
    let host = Host::detect(&Roots::system()).unwrap();
    let zone = Zone {
        is_new: true,
        memory: None,
        name: "test".into(),
        demand: Demand::new([(0, Target { share: 0.4, clock: None })].into()),
        tasks: Tasks::Processes(vec![std::process::id() as Pid]),
    };
    Delivery::watch(&host, &zone, &NONE, 1.0, Duration::ZERO).unwrap()
}

/// A session in which a file was changed that somebody else has changed since.
fn session(dir: &Path, fails: bool) -> Session {
    let roots = Roots { proc: "/proc".into(), ..Roots::below(dir) };
    let file = roots.sys.join("a");
    fs::create_dir_all(&roots.sys).unwrap();
    fs::write(&file, "1").unwrap();
    let cpus: CpuList = [0].into_iter().collect();
    let journal = Journal::open(&roots, &cpus, "cpu-hogs", "test").unwrap();
    journal.write_file(&file, "2").unwrap();
    fs::write(&file, "9").unwrap();
    Session {
        method: crate::method::find(ID.as_str()).unwrap(),
        demand: Demand::new([(0, Target { share: 0.4, clock: None })].into()),
        is_paused: false,
        delivery: delivery(),
        emulation: Box::new(Idle { fails, seen: Arc::default() }),
        clock: HeldClock::default(),
        journal: Undoing(journal),
    }
}

#[test]
fn what_somebody_else_has_changed_is_named_at_the_end() {
    for fails in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (Status { notes, .. }, released) = session(dir.path(), fails).release();
        assert_eq!(released.is_err(), fails);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[1].contains("left") && notes[1].contains("`9`"), "{notes:?}");
    }
}

#[test]
fn a_paused_session_runs_freely_and_keeps_its_targets() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut session = session(dir.path(), false);
    session.emulation = Box::new(Idle { fails: false, seen: Arc::clone(&seen) });
    let share = |share| [(0, Target { share, clock: None })].into();
    session.resume().unwrap();
    session.pause().unwrap();
    session.pause().unwrap();
    session.retarget(&share(0.5)).unwrap();
    assert!(session.retarget(&[(1, Target { share: 0.5, clock: None })].into()).is_err());
    session.resume().unwrap();
    assert_eq!(*seen.lock().unwrap(), [1.0, 0.5]);
    session.pause().unwrap();
    session.retarget(&share(0.05)).unwrap();
    assert!(session.resume().is_err());
    session.retarget(&share(0.2)).unwrap();
    session.resume().unwrap();
    assert_eq!(*seen.lock().unwrap(), [1.0, 0.5, 1.0, 0.05, 0.2]);
}

#[test]
fn a_session_that_cannot_be_paused_goes_on_and_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = session(dir.path(), true);
    assert!(session.pause().is_err() && !session.is_paused());
    let begin = std::time::Instant::now();
    crate::testing::wait_until(|| {
        while begin.elapsed() < Duration::from_millis(100) {}
        session.status().used.is_some()
    });
}

#[test]
fn a_zone_without_cpus_is_refused() {
    let host = Host::detect(&Roots::system()).unwrap();
    let demand = Demand::new(Targets::new());
    let prepared = Prepared::named(MethodId::new("cpu-lim"), &host, &demand).unwrap();
    let error = Session::engage(&prepared, "test", Tasks::Processes(vec![1])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("at least one CPU"), "{error}");
}

#[test]
fn a_number_that_has_become_another_process_is_refused() {
    let proc = tempfile::tempdir().unwrap();
    let pid = nix::unistd::getppid().as_raw();
    let process = |starttime: u64| {
        let stat = format!("{pid} (sh) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {starttime} 0 0");
        fs::create_dir_all(proc.path().join(pid.to_string())).unwrap();
        fs::write(proc.path().join(format!("{pid}/stat")), stat).unwrap();
    };
    let tasks = Tasks::Processes(vec![pid]);
    assert!(check_tasks(proc.path(), &tasks).unwrap_err().to_string().contains("no process"));
    process(7);
    let started = check_tasks(proc.path(), &tasks).unwrap();
    assert_eq!(started, [(pid, 7)]);
    check_same(proc.path(), &started).unwrap();
    process(8);
    let error = check_same(proc.path(), &started).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    fs::remove_dir_all(proc.path().join(pid.to_string())).unwrap();
    check_same(proc.path(), &started).unwrap();
}

#[test]
fn a_speed_is_wanted_of_the_cpus_given_else_named_else_allowed() {
    let host = Host::detect(&Roots::system()).unwrap();
    let one: CpuList = host.allowed.first().into_iter().collect();
    let speed = |text: &str| text.parse::<SpeedSpec>().unwrap();
    assert_eq!(Demand::measured(&host, &speed("40%"), None).unwrap().cpus(), host.allowed);
    assert_eq!(Demand::measured(&host, &speed("40%"), Some(&one)).unwrap().cpus(), one);
    let named = Demand::measured(&host, &speed(&format!("{one}=40%")), None).unwrap();
    assert_eq!((named.cpus(), named.uniform_share()), (one.clone(), Some(0.4)));
    let clock = Demand::measured(&host, &speed("1MHz"), Some(&one)).unwrap();
    let target = clock.targets.values().next().unwrap();
    assert!(target.clock.is_some() && target.share < 0.01, "{target:?}");
    assert!(Demand::measured(&host, &speed("100GHz"), Some(&one)).is_err());
}

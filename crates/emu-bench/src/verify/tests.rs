use super::*;
use crate::worker::Look;
use emu_core::Pid;

struct Still(Duration);

impl Emulated for Still {
    fn name(&self) -> String {
        "still".into()
    }
    fn period(&self) -> Duration {
        self.0
    }
    fn engage(&mut self, _worker: Pid) -> Result<()> {
        Ok(())
    }
    fn release(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Judges a process by its whole life, every 10 ms.
struct Judge(LifetimeRule);

impl Judge {
    fn new(share: f64, cpus: usize) -> Self {
        Self(LifetimeRule { share, period: Duration::from_millis(10), cpus })
    }
}

impl Emulated for Judge {
    fn name(&self) -> String {
        "judge".into()
    }
    fn period(&self) -> Duration {
        self.0.period
    }
    fn lifetime_rule(&self) -> Option<LifetimeRule> {
        Some(self.0)
    }
    fn engage(&mut self, _worker: Pid) -> Result<()> {
        Ok(())
    }
    fn release(&mut self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn windows_are_whole_periods() {
    let plan = Plan::new(1);
    for (period_ms, window_ms) in [(0, 200), (10, 200), (30, 210), (300, 300)] {
        let window = plan.window_of(&Still(Duration::from_millis(period_ms)));
        assert_eq!(window, Duration::from_millis(window_ms));
    }
}

#[test]
fn windows_hold_several_cycles_where_a_whole_life_is_judged() {
    for (share, cpus, window_ms) in [(0.4, 1, 200), (0.2, 1, 200), (0.2, 2, 300), (0.1, 2, 600)] {
        let judge = Judge::new(share, cpus);
        let window = window_for(Plan::new(1).window, &judge, 0.5);
        let window = Plan { window, ..Plan::new(1) }.window_of(&judge);
        assert_eq!(window, Duration::from_millis(window_ms), "{share} on {cpus}");
    }
}

#[test]
fn work_has_cycles_to_get_going_a_judged_sleeper_starts_at_once() {
    let plan = Plan::new(1);
    let busy = Job::new("cpu-loop", &"0".parse().unwrap());
    let sleeper = Job { sleep: Duration::from_millis(50), ..busy.clone() };
    let (still, judge) = (Still(Duration::from_millis(50)), Judge::new(0.2, 2));
    let lead = |emulated: &dyn Emulated, job| plan.lead_of(Side::Emulated, emulated, job).as_millis();
    assert_eq!((lead(&still, &busy), lead(&still, &sleeper)), (150, 150));
    assert_eq!((lead(&judge, &busy), lead(&judge, &sleeper)), (300, 0));
    assert_eq!(plan.lead_of(Side::Native, &judge, &busy), plan.lead);
}

#[test]
fn what_is_worked_off_before_a_window_is_planned_for() {
    let plan = Plan::new(1);
    let job = Job::new("cpu-loop", &"0".parse().unwrap());
    let settling = |emulated: &dyn Emulated, job: &Job| plan.settling(emulated, job, plan.window);
    let judge = Judge::new(0.2, 1);
    // Five times 220 ms, less the 220 ms themselves, in every other pair; and three cycles.
    assert_eq!(settling(&judge, &job).as_millis(), 440 + 150);
    let paced = Job { interval: Duration::from_millis(1), ..job.clone() };
    assert_eq!(settling(&judge, &paced).as_millis(), 150);
    assert_eq!(settling(&Still(Duration::from_millis(10)), &job), Duration::ZERO);
}

#[test]
fn a_disturbed_pair_is_taken_again_after_all_others() {
    let run = |repeats: usize| {
        let mut taken = Vec::new();
        // A disturbance that lasts for the second and the third pair.
        let take = |number: usize, _: Look<'_>| {
            taken.push(number);
            let mut pair = Pair { number, ..testing::pair(number, &[1.0], &[1.0]) };
            pair.taints.extend((2..=3).contains(&taken.len()).then_some(Taint::Steal(0.1)));
            Ok(pair)
        };
        let pairs = take_all((0..5).collect(), repeats, take, &mut |_| Ok(())).unwrap();
        let kept = pairs.iter().filter(|pair| pair.kept).count();
        (taken, kept, pairs.iter().filter(|pair| pair.is_undisturbed()).count())
    };
    assert_eq!(run(5), (vec![0, 1, 2, 3, 4, 1, 2], 5, 5));
    assert_eq!(run(1), (vec![0, 1, 2, 3, 4, 1], 5, 4), "no more than it may");
}

#[test]
fn controls_suffice_for_an_interval_unless_pairs_are_few() {
    let controls = |pairs| Plan { pairs, ..Plan::new(1) }.controls();
    assert_eq!([3, 5, 15, 30].map(controls), [3, 5, 6, 10]);
}

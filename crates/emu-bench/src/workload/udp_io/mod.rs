//! Datagrams to a receiver that lives outside of the zone, over loopback.
//!
//! Paced, a datagram is due at fixed times and the thread sleeps in between: as long as the CPU manages, its speed must not
//! matter. Unpaced, the thread sends without a break, which on loopback is work for the CPU and must stretch. Work is what
//! arrived intact. The kernel does the receiver's half of the protocol within the sender's CPU time.

mod datagram;
mod receiver;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use emu_core::{Error, Result};

use super::clocks::{now_ns, thread_cpu_ns};
use super::stamps::{Stamps, fill};
use super::{Done, Job, Messages, Order, Running, Setting, Workload};
use datagram::Datagram;
pub use receiver::Receiver;

/// Paced datagrams a second: the highest that needs no more than [`LOAD_MAX`]. Steps, so that a host always gets the same.
const RATES: [u32; 6] = [1000, 500, 200, 100, 50, 20];

/// Share of a CPU that the offered load may need.
const LOAD_MAX: f64 = 0.02;

/// Datagrams by which the load is measured, and the time between them.
const TRIAL: u32 = 20;
const TRIAL_INTERVAL: Duration = Duration::from_millis(1);

/// Datagrams between two looks at the clock: some 20 µs.
const BATCH: u64 = 16;

pub(super) static PACED: UdpIo = UdpIo { paced: true };

pub(super) static UNPACED: UdpIo = UdpIo { paced: false };

pub(super) struct UdpIo {
    paced: bool,
}

impl Workload for UdpIo {
    fn name(&self) -> &'static str {
        if self.paced { "udp-io" } else { "udp-io-unpaced" }
    }

    fn about(&self) -> &'static str {
        if self.paced {
            "datagrams at a fixed rate that needs little CPU: the speed must not matter"
        } else {
            "datagrams without a break, which is bound by the CPU: must follow the speed"
        }
    }

    fn unit(&self) -> &'static str {
        "datagrams"
    }

    fn follows_clock(&self) -> bool {
        false
    }

    fn quantum(&self) -> f64 {
        if self.paced { 1.0 } else { BATCH as f64 }
    }

    /// Paced, the rate stays, unless the CPU time that it needs is not to be had at that share.
    fn ideal(&self, share: f64, native: &Done) -> f64 {
        if !self.paced {
            return share;
        }
        let needed = native.cpu_ns as f64 / 1e9 / native.wall_s();
        (share / needed).min(1.0)
    }

    fn job(&self, setting: &Setting) -> Job {
        let interval = if self.paced { interval() } else { Duration::ZERO };
        Job { interval, ..Job::new(self.name(), &setting.cpus) }
    }

    fn companion(&self, job: &mut Job) -> Result<Option<Receiver>> {
        let receiver = Receiver::start(&job.cpus)?;
        job.port = Some(receiver.port());
        Ok(Some(receiver))
    }

    fn start(&self, job: &Job) -> Result<Box<dyn Running>> {
        let port = job.port.ok_or_else(|| Error::usage("the job does not say where datagrams go"))?;
        Ok(Box::new(Sender { interval: job.interval, ..Sender::to(port)? }))
    }
}

/// Measured once, before anything is slowed.
fn interval() -> Duration {
    static INTERVAL: OnceLock<Duration> = OnceLock::new();
    *INTERVAL.get_or_init(|| Duration::from_secs(1) / affordable(cost().unwrap_or(f64::INFINITY)))
}

/// The highest rate within [`LOAD_MAX`] at this CPU time in seconds for a datagram; the lowest one where none is.
fn affordable(cost: f64) -> u32 {
    let fits = |rate: &&u32| f64::from(**rate) * cost <= LOAD_MAX;
    RATES.iter().find(fits).or(RATES.last()).copied().unwrap_or(1)
}

/// CPU time of a paced datagram in seconds, the way into and out of the sleep before it included.
fn cost() -> Result<f64> {
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(unusable)?;
    let port = receiver.local_addr().map_err(unusable)?.port();
    let mut sender = Sender { interval: TRIAL_INTERVAL, ..Sender::to(port)? };
    let length_ns = (TRIAL_INTERVAL * TRIAL).as_nanos() as u64;
    let order = Order { begin_ns: now_ns(), length_ns, first: 0, stamps: false };
    Ok(sender.through(&order)?.cpu_ns as f64 / 1e9 / f64::from(TRIAL))
}

fn unusable(cause: std::io::Error) -> Error {
    Error::io("cannot send datagrams over loopback", cause)
}

struct Sender {
    socket: UdpSocket,
    interval: Duration,
    stamps: Stamps,
}

impl Sender {
    fn to(port: u16) -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(unusable)?;
        socket.connect((Ipv4Addr::LOCALHOST, port)).map_err(unusable)?;
        Ok(Self { socket, interval: Duration::ZERO, stamps: Stamps::default() })
    }

    fn unpaced(&mut self, order: &Order) -> Result<Done> {
        let Self { socket, stamps, .. } = self;
        let mut sent = 0;
        fill(order, stamps, || {
            for _ in 0..BATCH {
                send(socket, order, sent)?;
                sent += 1;
            }
            Ok(sent)
        })
    }

    /// Datagrams are due at fixed times; those that could not be sent in time follow as soon as they can.
    fn paced(&mut self, order: &Order) -> Result<Done> {
        let interval_ns = self.interval.as_nanos() as u64;
        let ahead = order.begin_ns.saturating_sub(now_ns()) / interval_ns;
        let first_due = order.begin_ns - ahead * interval_ns;
        self.stamps.restart(order.length_ns);
        let mut now = self.stamps.note(0);
        let (mut sent, mut slept_ns, mut longest_late_ns) = (0, 0, 0);
        let mut cpu_ns = thread_cpu_ns();
        while now < order.end_ns() {
            let is_before = now < order.begin_ns;
            if is_before {
                self.stamps.note_only(sent);
                (cpu_ns, slept_ns) = (thread_cpu_ns(), 0);
            }
            let due = first_due + sent * interval_ns;
            let asleep = now_ns();
            if due > asleep {
                thread::sleep(Duration::from_nanos(due - asleep));
            }
            let awake = now_ns();
            send(&self.socket, order, sent)?;
            sent += 1;
            slept_ns += awake - asleep;
            if !is_before {
                longest_late_ns = longest_late_ns.max(awake.saturating_sub(due));
            }
            now = self.stamps.note(sent);
        }
        let done = self.stamps.done(order, thread_cpu_ns() - cpu_ns);
        Ok(Done { slept_ns, longest_stall_ns: longest_late_ns, ..done })
    }
}

fn send(socket: &UdpSocket, order: &Order, number: u64) -> Result<()> {
    let datagram = Datagram { window: order.begin_ns, number };
    socket.send(&datagram.bytes()).map(drop).map_err(unusable)
}

impl Running for Sender {
    fn through(&mut self, order: &Order) -> Result<Done> {
        let done = if self.interval.is_zero() { self.unpaced(order) } else { self.paced(order) }?;
        let at = |time_ns| self.stamps.work_at(time_ns).round() as u64;
        let messages = Messages { first: at(order.begin_ns), end: at(order.end_ns()), lost: 0 };
        Ok(Done { messages: Some(messages), ..done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{Host, Roots};

    fn order(length_ms: u64) -> Order {
        Order { begin_ns: now_ns() + 5_000_000, length_ns: length_ms * 1_000_000, first: 0, stamps: false }
    }

    /// A window of a sender on this thread, as the harness sees it.
    fn window(workload: &UdpIo, interval: Duration, order: &Order) -> Done {
        let cpus = Host::detect(&Roots::system()).unwrap().allowed;
        let mut job = Job { interval, ..Job::new(workload.name(), &cpus) };
        let receiver = workload.companion(&mut job).unwrap().unwrap();
        let mut sender = workload.start(&job).unwrap();
        receiver.open(order);
        receiver.close(sender.through(order).unwrap())
    }

    #[test]
    fn paced_datagrams_come_at_the_offered_rate_and_all_arrive() {
        let done = window(&PACED, Duration::from_millis(1), &order(50));
        // What others hold up comes in a bunch, which may fall to either side of the window's end.
        let is_held_up = done.longest_stall_ns > 5_000_000;
        assert!((done.work() - 50.0).abs() <= 10.0 || is_held_up, "{done:?}");
        assert_eq!(done.messages.unwrap().lost, 0);
        assert!(done.idle_share() > 0.5, "{done:?}");
    }

    #[test]
    fn unpaced_datagrams_fill_the_window() {
        let done = window(&UNPACED, Duration::ZERO, &order(30));
        assert!(done.work() > 500.0 && done.slept_ns == 0, "{done:?}");
        let messages = done.messages.unwrap();
        let arrived = messages.end - messages.first - messages.lost;
        assert!((done.work() - arrived as f64).abs() <= 1.0, "only what arrived is work: {done:?}");
    }

    #[test]
    fn what_nobody_received_is_not_work() {
        let cpus = Host::detect(&Roots::system()).unwrap().allowed;
        let mut job = Job { interval: Duration::from_millis(1), ..Job::new("udp-io", &cpus) };
        let receiver = PACED.companion(&mut job).unwrap().unwrap();
        let order = order(20);
        receiver.open(&order);
        // Another receiver gets them all.
        let elsewhere = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        job.port = Some(elsewhere.local_addr().unwrap().port());
        let done = receiver.close(PACED.start(&job).unwrap().through(&order).unwrap());
        assert!(done.work() < 1.0, "{done:?}");
        assert!((done.messages.unwrap().lost_share() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_highest_affordable_rate_is_offered() {
        for (cost_us, rate) in [(1.0, 1000), (20.0, 1000), (21.0, 500), (150.0, 100), (1e9, 20)] {
            assert_eq!(affordable(cost_us / 1e6), rate, "{cost_us}");
        }
        assert_eq!(interval(), interval());
    }

    #[test]
    fn the_ideal_rate_stays_until_the_cpu_is_full() {
        let native = Done { ended_ns: 1_000_000_000, cpu_ns: 20_000_000, ..Done::default() };
        for (share, ideal) in [(0.5, 1.0), (0.05, 1.0), (0.02, 1.0), (0.01, 0.5)] {
            assert!((PACED.ideal(share, &native) - ideal).abs() < 1e-9, "{share}");
        }
        assert!((UNPACED.ideal(0.3, &native) - 0.3).abs() < 1e-9);
    }
}

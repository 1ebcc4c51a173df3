//! The kinds of work whose repeatability is measured: those of the published experiment.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use emu_bench::workload::confine;
use emu_bench::workload::kernel::{START, advance, expected};
use emu_bench::wrong;
use emu_core::{CpuList, Error, ErrorKind, Result};
use nix::sys::resource::{UsageWho, getrusage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::server::{Connection, PATIENCE};

/// Multiplications in an operation of the CPU-bound kind.
const STEPS: u64 = 1000;

/// A kind of work. One operation of each is as short as it can be; a run has many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A thousand multiplications, each waiting for the one before.
    CpuBound,
    /// A sleep of 1 ms.
    #[serde(rename = "sleep-1ms")]
    Sleep1Ms,
    /// A sleep of 10 ms.
    #[serde(rename = "sleep-10ms")]
    Sleep10Ms,
    /// An empty step of a loop.
    NoOp,
    /// A datagram to another thread and back, over loopback.
    UdpPingPong,
    /// As `cpu-bound`; the result then goes to a TCP server and back.
    CpuBoundServer,
    /// As `sleep-1ms`, and then to a TCP server and back.
    #[serde(rename = "sleep-1ms-server")]
    Sleep1MsServer,
    /// As `sleep-10ms`, and then to a TCP server and back.
    #[serde(rename = "sleep-10ms-server")]
    Sleep10MsServer,
    /// To a TCP server and back.
    NoOpServer,
}

impl Kind {
    /// Those that need nobody else, in the order in which they are shown.
    pub const ALONE: [Self; 5] =
        [Self::CpuBound, Self::Sleep1Ms, Self::Sleep10Ms, Self::NoOp, Self::UdpPingPong];

    /// Those that go through a server.
    pub const THROUGH_SERVER: [Self; 4] =
        [Self::CpuBoundServer, Self::Sleep1MsServer, Self::Sleep10MsServer, Self::NoOpServer];

    /// The same work without a server.
    #[must_use]
    pub fn alone(self) -> Self {
        match self {
            Self::CpuBoundServer => Self::CpuBound,
            Self::Sleep1MsServer => Self::Sleep1Ms,
            Self::Sleep10MsServer => Self::Sleep10Ms,
            Self::NoOpServer => Self::NoOp,
            alone => alone,
        }
    }

    /// Whether it goes through a server.
    pub fn is_through_server(self) -> bool {
        self.alone() != self
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuBound => "cpu-bound",
            Self::Sleep1Ms => "sleep-1ms",
            Self::Sleep10Ms => "sleep-10ms",
            Self::NoOp => "no-op",
            Self::UdpPingPong => "udp-ping-pong",
            Self::CpuBoundServer => "cpu-bound-server",
            Self::Sleep1MsServer => "sleep-1ms-server",
            Self::Sleep10MsServer => "sleep-10ms-server",
            Self::NoOpServer => "no-op-server",
        }
    }

    fn sleep(self) -> Duration {
        match self.alone() {
            Self::Sleep1Ms => Duration::from_millis(1),
            Self::Sleep10Ms => Duration::from_millis(10),
            _ => Duration::ZERO,
        }
    }
}

/// Runs of one kind, in one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The kind.
    pub kind: Kind,
    /// Runs after one that warms up.
    pub runs: u32,
    /// Operations of each run; `None` to find as many as take `length_ns`.
    pub operations: Option<u64>,
    /// How long a run is to take, where the operations are not given.
    pub length_ns: u64,
    /// The CPUs that the process is bound to; none where it is free to move.
    pub cpus: CpuList,
    /// The server of the kinds that go through one.
    pub server: Option<SocketAddr>,
}

/// What a process has done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// Operations of each run.
    pub operations: u64,
    /// The runs, in the order of time.
    pub runs: Vec<Run>,
}

/// What a process answers to an order: its runs, or why this machine does not have what such work needs.
pub type Answer = Result<Runs, String>;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// How long it took.
    pub wall_ns: u64,
    /// How often another task took the CPU from it.
    pub preempted: u64,
}

impl Order {
    /// Does what it says, on the calling thread, which stays bound to the CPUs.
    ///
    /// # Errors
    /// Unavailable, where loopback cannot be used, or a datagram or the server's reply did not come in time.
    pub fn obey(&self) -> Result<Runs> {
        if !self.cpus.is_empty() {
            // Before there is another thread, which inherits it.
            confine(&self.cpus)?;
        }
        let work = Work::new(self.kind, self.server)?;
        let operations = match self.operations {
            Some(operations) => operations.max(1),
            None => filling(&work, self.length_ns)?,
        };
        work.run(operations)?;
        let runs = (0..self.runs).map(|_| work.run(operations)).collect::<Result<_>>()?;
        Ok(Runs { operations, runs })
    }

    /// As [`obey`](Self::obey), where a network that cannot be used is an answer: other kinds can be measured without it.
    pub fn answer(&self) -> Result<Answer> {
        answer(self.kind, self.obey())
    }
}

fn answer(kind: Kind, done: Result<Runs>) -> Result<Answer> {
    match done {
        // Every machine has what the other kinds need.
        Err(error)
            if (kind == Kind::UdpPingPong || kind.is_through_server())
                && error.kind() == ErrorKind::Unavailable =>
        {
            Ok(Err(error.in_words()))
        }
        done => done.map(Ok),
    }
}

fn filling(work: &Work, length_ns: u64) -> Result<u64> {
    let mut operations = 1;
    loop {
        let took = work.run(operations)?.wall_ns.max(1);
        if took >= length_ns / 4 {
            let wanted = operations as f64 * length_ns as f64 / took as f64;
            return Ok(wanted.round().max(1.0) as u64);
        }
        operations *= 2;
    }
}

struct Work {
    kind: Kind,
    partner: Option<Partner>,
    server: Option<Connection>,
}

impl Work {
    fn new(kind: Kind, server: Option<SocketAddr>) -> Result<Self> {
        let partner = (kind == Kind::UdpPingPong).then(Partner::start).transpose()?;
        let server = server.filter(|_| kind.is_through_server()).map(Connection::to).transpose()?;
        Ok(Self { kind, partner, server })
    }

    fn run(&self, operations: u64) -> Result<Run> {
        let before = preemptions();
        let begin = Instant::now();
        let result = self.operate(operations)?;
        let took = begin.elapsed();
        let preempted = preemptions() - before;
        if !self.is_right(operations, result, took) {
            return Err(wrong(format_args!("result of {operations} operations of {}", self.kind.name())));
        }
        Ok(Run { wall_ns: took.as_nanos() as u64, preempted })
    }

    fn operate(&self, operations: u64) -> Result<u64> {
        if let Some(server) = &self.server {
            let start = if self.kind.alone() == Kind::CpuBound { START } else { 0 };
            return (0..operations).try_fold(start, |done, _| server.round_trip(self.step(done)));
        }
        match (self.kind, &self.partner) {
            (Kind::CpuBound, _) => Ok(advance(START, operations * STEPS)),
            (Kind::UdpPingPong, Some(partner)) => {
                (0..operations).try_fold(0, |sum, number| Ok(sum + partner.round_trip(number)?))
            }
            (Kind::Sleep1Ms | Kind::Sleep10Ms, _) => {
                (0..operations).for_each(|_| thread::sleep(self.kind.sleep()));
                Ok(operations)
            }
            _ => {
                let mut done = 0;
                while black_box(done) < operations {
                    done += 1;
                }
                Ok(done)
            }
        }
    }

    /// One operation, less the way to the server, on what those before it have come to.
    fn step(&self, done: u64) -> u64 {
        if self.kind.alone() == Kind::CpuBound {
            return advance(done, STEPS);
        }
        if self.kind.sleep() > Duration::ZERO {
            thread::sleep(self.kind.sleep());
        }
        done + 1
    }

    fn is_right(&self, operations: u64, result: u64, took: Duration) -> bool {
        let slept = self.kind.sleep().as_nanos() * u128::from(operations);
        let right = if self.kind.alone() == Kind::CpuBound {
            expected(START, operations * STEPS)
        } else {
            operations
        };
        result == right && took.as_nanos() >= slept
    }
}

/// How often another task has taken the CPU from the calling thread, so far (`getrusage(2)`, `ru_nivcsw`).
pub(super) fn preemptions() -> u64 {
    // The call has no way to fail for the calling thread.
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches() as u64)
}

/// The other side of a ping-pong: a thread that sends back what it gets.
#[derive(Debug)]
struct Partner {
    socket: UdpSocket,
}

impl Partner {
    fn start() -> Result<Self> {
        let failed =
            |cause| Error::io("cannot play ping-pong over loopback", cause).with_kind(ErrorKind::Unavailable);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        socket.connect(other.local_addr().map_err(failed)?).map_err(failed)?;
        other.connect(socket.local_addr().map_err(failed)?).map_err(failed)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let echo = move || {
            let mut buffer = [0; 8];
            // An empty datagram or an error, as when this side is gone, is the end.
            while other.recv(&mut buffer).is_ok_and(|length| length == 8 && other.send(&buffer).is_ok()) {}
        };
        thread::Builder::new()
            .name("emu-pong".into())
            .spawn(echo)
            .map_err(|cause| Error::io("cannot make the other side of a ping-pong", cause))?;
        Ok(Self { socket })
    }

    fn round_trip(&self, number: u64) -> Result<u64> {
        let failed = |cause| {
            let what = format!("datagram {number} of a ping-pong has not come back within {PATIENCE:?}");
            Error::io(what, cause).with_kind(ErrorKind::Unavailable)
        };
        self.socket.send(&number.to_ne_bytes()).map_err(failed)?;
        let mut buffer = [0; 8];
        let length = self.socket.recv(&mut buffer).map_err(failed)?;
        if length == buffer.len() && u64::from_ne_bytes(buffer) == number {
            return Ok(1);
        }
        Err(wrong(format_args!("datagram {number} of a ping-pong: it came back changed")))
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // Where this is not possible the thread ends with the process.
        let _ = self.socket.send(&[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Server;

    fn all() -> impl Iterator<Item = Kind> {
        Kind::ALONE.into_iter().chain(Kind::THROUGH_SERVER)
    }

    fn order(kind: Kind, runs: u32, operations: Option<u64>, length_ns: u64) -> Order {
        let server = kind.is_through_server().then(|| Server::Loopback.start().unwrap());
        Order { kind, runs, operations, length_ns, cpus: CpuList::default(), server }
    }

    #[test]
    fn every_kind_does_its_verified_operations_in_every_run() {
        for kind in all() {
            let done = order(kind, 2, Some(2), 0).obey().unwrap();
            assert_eq!((done.operations, done.runs.len()), (2, 2), "{kind:?}");
            let slept = kind.sleep().as_nanos() as u64 * 2;
            assert!(done.runs.iter().all(|run| run.wall_ns >= slept), "{done:?}");
        }
    }

    #[test]
    fn as_many_operations_are_found_as_fill_a_run() {
        let operations = |length_ns| order(Kind::Sleep1Ms, 1, None, length_ns).obey().unwrap().operations;
        // A sleep takes longer than asked for, never shorter.
        assert!((1..=8).contains(&operations(8_000_000)));
        assert_eq!(operations(1), 1);
    }

    #[test]
    fn runs_keep_to_the_cpus_of_their_order() {
        let allowed = emu_core::Host::detect(&emu_core::Roots::system()).unwrap().allowed;
        for cpu in allowed.iter() {
            let order = Order { cpus: [cpu].into_iter().collect(), ..order(Kind::NoOp, 1, Some(1), 0) };
            // On a thread of its own, whose affinity may be changed.
            let ran_on = thread::spawn(move || {
                order.obey().unwrap();
                nix::sched::sched_getcpu().unwrap()
            });
            assert_eq!(ran_on.join().unwrap(), cpu);
        }
        let none = Order { cpus: "1023".parse().unwrap(), ..order(Kind::NoOp, 1, Some(1), 0) };
        assert!(allowed.contains(1023) || none.obey().is_err());
    }

    #[test]
    fn a_ping_pong_that_nobody_answers_cannot_be_had_here() {
        let bound = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (socket, silent) = (bound(), bound());
        socket.connect(silent.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let late = || Partner { socket: socket.try_clone().unwrap() }.round_trip(7).map(|_| unreachable!());
        let why = answer(Kind::UdpPingPong, late()).unwrap().unwrap_err();
        assert!(why.contains("datagram 7 of a ping-pong has not come back"), "{why}");
        assert!(answer(Kind::NoOp, late()).is_err(), "that of another kind is a failure");
        let nowhere =
            Order { server: Some(([127, 0, 0, 1], 1).into()), ..order(Kind::NoOpServer, 1, None, 1) };
        let why = nowhere.answer().unwrap().unwrap_err();
        assert!(why.contains("cannot connect to server 127.0.0.1:1"), "{why}");
        assert!(answer(Kind::UdpPingPong, Err(wrong("datagram"))).is_err());
    }

    #[test]
    fn names_are_the_names_in_json() {
        for kind in all() {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}

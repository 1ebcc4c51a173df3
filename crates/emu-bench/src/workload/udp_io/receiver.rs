//! The receiver: a thread of the harness, which no emulation of a worker slows.
//!
//! It runs on a CPU outside of the zone where there is one. It looks into its buffer now and then, so that a sender never pays
//! for waking it, and what is left is taken out when the window is over.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use emu_core::{CpuList, Error, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::datagram::{BYTES, Datagram};
use crate::workload::part::{confine, own_cpus};
use crate::workload::{Done, Messages, Order};

/// The memory of what has been received is used again by the sender, the warmer the sooner: were the buffer to fill for
/// milliseconds, sending would be quicker after each stop of an on/off emulation (a tenth at naps of 2 ms, a share of 10 %).
const NAP: Duration = Duration::from_micros(100);

/// The buffer that is asked for: room for some 10 ms.
const BUFFER: usize = 8 << 20;

/// Datagrams of a window that can be kept account of: an hour at a rate that no CPU reaches.
const NUMBERS_MAX: u64 = 1 << 32;

/// The other end of datagrams.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    port: u16,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    account: Mutex<Account>,
    is_open: AtomicBool,
    is_ending: AtomicBool,
}

#[derive(Debug, Default)]
struct Account {
    window: u64,
    /// A bit for each number.
    arrived: Vec<u64>,
}

impl Receiver {
    pub(super) fn start(cpus: &CpuList) -> Result<Self> {
        let failed = |cause| Error::io("cannot receive datagrams over loopback", cause);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        // With the privilege beyond the limit; else up to it.
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &BUFFER).map_err(|cause| failed(cause.into()))?;
        }
        let port = socket.local_addr().map_err(failed)?.port();
        let spare = own_cpus()?.difference(cpus);
        let shared = Arc::new(Shared {
            socket,
            account: Mutex::default(),
            is_open: false.into(),
            is_ending: false.into(),
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("emu-receiver".into())
            .spawn(move || {
                if !spare.is_empty() {
                    let _ = confine(&spare);
                }
                theirs.serve();
            })
            .map_err(failed)?;
        Ok(Self { shared, thread: Some(thread), port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// A window is about to be ordered.
    pub(in crate::workload) fn open(&self, order: &Order) {
        *self.shared.account() = Account { window: order.begin_ns, arrived: Vec::new() };
        self.shared.is_open.store(true, Ordering::SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Completes what the worker has reported of the window.
    pub(in crate::workload) fn close(&self, mut done: Done) -> Done {
        self.shared.is_open.store(false, Ordering::SeqCst);
        // On loopback a datagram is in the buffer, or lost, when the call that sends it returns.
        self.shared.empty();
        if let Some(messages) = &mut done.messages {
            messages.lost = self.shared.account().lost(messages);
            if let [sent] = &mut done.parts[..] {
                *sent = (*sent - messages.lost as f64).max(0.0);
            }
        }
        done
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self) {
        while !self.is_ending.load(Ordering::SeqCst) {
            if self.is_open.load(Ordering::SeqCst) {
                self.empty();
                thread::sleep(NAP);
            } else {
                thread::park();
            }
        }
    }

    fn empty(&self) {
        let mut account = self.account();
        let mut buffer = [0; BYTES + 1];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(length) => account.add(buffer.get(..length).unwrap_or_default()),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // An account is never left half written.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// One that is damaged or of another window does not count.
    fn add(&mut self, received: &[u8]) {
        let is_ours = |it: &Datagram| it.window == self.window && it.number < NUMBERS_MAX;
        let Some(datagram) = Datagram::verified(received).filter(is_ours) else { return };
        let place = (datagram.number / 64) as usize;
        if place >= self.arrived.len() {
            self.arrived.resize(place + 1, 0);
        }
        if let Some(word) = self.arrived.get_mut(place) {
            *word |= 1 << (datagram.number % 64);
        }
    }

    fn lost(&self, messages: &Messages) -> u64 {
        // The bits of a word that stand for numbers below one.
        let below = |number: u64, word: u64| match number.saturating_sub(word * 64) {
            bits @ 0..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        let arrived = (0..).zip(&self.arrived).map(|(place, word)| {
            (word & below(messages.end, place) & !below(messages.first, place)).count_ones()
        });
        (messages.end - messages.first).saturating_sub(arrived.map(u64::from).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(numbers: &[u64]) -> Account {
        let mut account = Account { window: 7, arrived: Vec::new() };
        for &number in numbers {
            account.add(&Datagram { window: 7, number }.bytes());
        }
        account
    }

    #[test]
    fn what_did_not_arrive_is_lost_and_what_came_twice_counts_once() {
        let lost = |numbers: &[u64], first, end| account(numbers).lost(&Messages { first, end, lost: 0 });
        assert_eq!(lost(&[0, 1, 2, 3], 0, 4), 0);
        assert_eq!(lost(&[0, 3, 3, 3, 64, 200], 0, 65), 62);
        assert_eq!(lost(&[5, 6], 100, 110), 10);
        assert_eq!(lost(&[1, 62, 63, 64, 127, 128], 2, 128), 126 - 4);
        assert_eq!(lost(&[], 3, 3), 0);
    }

    #[test]
    fn damaged_and_foreign_datagrams_do_not_count() {
        let mut account = account(&[]);
        let mut damaged = Datagram { window: 7, number: 0 }.bytes();
        damaged[100] ^= 1;
        account.add(&damaged);
        account.add(&Datagram { window: 8, number: 1 }.bytes());
        account.add(b"hello");
        assert_eq!(account.lost(&Messages { first: 0, end: 2, lost: 0 }), 2);
    }
}

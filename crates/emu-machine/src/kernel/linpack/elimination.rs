//! Which thread updates and factorises which block, and when.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::block::{Block, Panel};

#[derive(Debug)]
struct Waiting {
    block: Block,
    applied: usize,
}

#[derive(Debug)]
struct State {
    /// `None` while a thread has the block, and for good once it is a panel.
    blocks: Vec<Option<Waiting>>,
    /// The panels that are ready: those of the first blocks.
    panels: Vec<Arc<Panel>>,
    /// Whether nobody is to wait any more: all is done, or a thread has panicked and what others wait for will not come.
    ended: bool,
}

enum Step {
    Factorise(Block),
    Apply(Arc<Panel>, Waiting),
}

impl State {
    /// The first block for which something can be done: the earlier a block, the more waits for it.
    fn next(&mut self) -> Option<(usize, Step)> {
        let last = self.blocks.len() - 1;
        let ready = self.panels.len();
        let can = |number: usize, waiting: &Waiting| {
            waiting.applied < ready.min(number) || (waiting.applied == number && number < last)
        };
        let (number, place) = self
            .blocks
            .iter_mut()
            .enumerate()
            .find(|(number, place)| place.as_ref().is_some_and(|waiting| can(*number, waiting)))?;
        let waiting = place.take()?;
        if waiting.applied == number {
            return Some((number, Step::Factorise(waiting.block)));
        }
        let panel = self.panels.get(waiting.applied)?.clone();
        Some((number, Step::Apply(panel, waiting)))
    }
}

/// Each thread takes the first block that can be worked on. So the panel that others will need is made while they still apply
/// the one before (look-ahead), and nobody waits for more than its end.
#[derive(Debug)]
pub(super) struct Elimination {
    state: Mutex<State>,
    changed: Condvar,
}

/// Tells the other threads when the one that holds it panics.
struct Alarm<'a>(&'a Elimination);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().ended = true;
            self.0.changed.notify_all();
        }
    }
}

impl Elimination {
    /// The blocks, of which the last one is the right-hand side.
    pub(super) fn new(blocks: Vec<Block>) -> Self {
        let blocks = blocks.into_iter().map(|block| Some(Waiting { block, applied: 0 })).collect();
        let state = State { blocks, panels: Vec::new(), ended: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn work(&self, look: &dyn Fn()) {
        let _alarm = Alarm(self);
        let mut state = self.lock();
        loop {
            if state.ended {
                return;
            }
            let Some((number, step)) = state.next() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            match step {
                Step::Factorise(block) => {
                    let panel = Arc::new(block.factorise());
                    look();
                    state = self.lock();
                    state.panels.push(panel);
                }
                Step::Apply(panel, Waiting { mut block, applied }) => {
                    panel.apply(&mut block);
                    look();
                    state = self.lock();
                    let last = state.blocks.len() - 1;
                    // The right-hand side has seen every panel.
                    state.ended |= number == last && applied + 1 == last;
                    if let Some(place) = state.blocks.get_mut(number) {
                        *place = Some(Waiting { block, applied: applied + 1 });
                    }
                }
            }
            self.changed.notify_all();
        }
    }

    /// Solves from the last equation up, once all threads have worked.
    pub(super) fn substitute(&self) -> Vec<f64> {
        let mut state = self.lock();
        let right = state.blocks.last_mut().and_then(Option::take);
        let Some(Waiting { block, .. }) = right else { return Vec::new() };
        let mut x = block.into_column();
        state.panels.iter().rev().for_each(|panel| panel.substitute(&mut x));
        x
    }
}

//! What is sent: the number of a datagram, and words that follow from it, by which it is verified.

use crate::workload::kernel;

const WORDS: usize = 32;

pub(super) const BYTES: usize = WORDS * 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) window: u64,
    pub(super) number: u64,
}

impl Datagram {
    pub(super) fn bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut state = self.window ^ self.number;
        for (place, word) in bytes.chunks_exact_mut(8).enumerate() {
            let value = match place {
                0 => self.window,
                1 => self.number,
                _ => {
                    state = kernel::expected(state, 1);
                    state
                }
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub(super) fn verified(received: &[u8]) -> Option<Self> {
        let word = |place: usize| received.get(place * 8..)?.first_chunk().copied().map(u64::from_le_bytes);
        let datagram = Self { window: word(0)?, number: word(1)? };
        (datagram.bytes() == received).then_some(datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_datagram_is_known_again_and_a_changed_one_is_not(window: u64, number: u64, at in 0..BYTES, bit in 0..8) {
            let sent = Datagram { window, number };
            let mut bytes = sent.bytes();
            prop_assert_eq!(Datagram::verified(&bytes), Some(sent));
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(Datagram::verified(&bytes), None);
        }
    }

    #[test]
    fn what_is_too_short_or_too_long_is_none_of_ours() {
        let bytes = Datagram { window: 1, number: 2 }.bytes();
        assert_eq!(Datagram::verified(&bytes[..BYTES - 1]), None);
        assert_eq!(Datagram::verified(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Datagram::verified(&[]), None);
    }
}

//! Chains of dependent instructions: code whose length in core cycles is known.
//!
//! Each register-to-register addition waits for the one before it and takes one cycle on every x86-64 and `AArch64`
//! core (Agner Fog, Instruction tables; Arm software optimisation guides); recent cores fold additions of constants
//! at rename. Both bodies have the same loop around them, so that their times differ by [`DIFFERENCE`] cycles per
//! round and nothing else.

#![expect(unsafe_code, reason = "the compiler would shorten a chain written in Rust")]

/// Additions in a round of [`short`].
pub(crate) const SHORT: u64 = 50;
/// Additions in a round of [`long`].
pub(crate) const LONG: u64 = 250;
/// Cycles by which a round of [`long`] takes longer than a round of [`short`].
pub(crate) const DIFFERENCE: u64 = LONG - SHORT;

macro_rules! chain {
    ($(#[$doc:meta])* $name:ident, $length:literal) => {
        $(#[$doc])*
        #[inline(never)]
        pub(crate) fn $name(rounds: u32) {
            let mut left = u64::from(rounds.max(1));
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only the three registers named are written; memory and stack are not touched.
            unsafe {
                std::arch::asm!(
                    "2:",
                    concat!(".rept ", $length),
                    "add {sum}, {step}",
                    ".endr",
                    "dec {left}",
                    "jnz 2b",
                    sum = inout(reg) 1u64 => _,
                    step = in(reg) 3u64,
                    left = inout(reg) left,
                    options(nomem, nostack),
                );
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: only the three registers named are written; memory and stack are not touched.
            unsafe {
                std::arch::asm!(
                    "2:",
                    concat!(".rept ", $length),
                    "add {sum}, {sum}, {step}",
                    ".endr",
                    "subs {left}, {left}, #1",
                    "b.ne 2b",
                    sum = inout(reg) 1u64 => _,
                    step = in(reg) 3u64,
                    left = inout(reg) left,
                    options(nomem, nostack),
                );
            }
            debug_assert_eq!(left, 0);
        }
    };
}

chain!(
    /// Runs `rounds` (at least one) times [`SHORT`] dependent additions.
    short, "50"
);
chain!(
    /// Runs `rounds` (at least one) times [`LONG`] dependent additions.
    long, "250"
);

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the meter's instruction chains are written for x86_64 and aarch64 only");

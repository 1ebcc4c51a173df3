//! The cheapest instruction for passing time on a CPU that must not be given away.

#![expect(unsafe_code, reason = "an instruction that the standard library does not offer")]

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relax {
    /// x86 `TPAUSE`, state C0.1: sleeps in hardware up to a deadline of the time-stamp counter.
    #[cfg(target_arch = "x86_64")]
    Tpause,
    /// The architecture's spin hint: `PAUSE`, `YIELD`/`ISB`.
    Hint,
}

impl Relax {
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if has_waitpkg() {
            return Self::Tpause;
        }
        Self::Hint
    }

    /// Passes a moment: a few hundred cycles.
    #[inline]
    pub(crate) fn moment(self) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Tpause => tpause(1_000),
            Self::Hint => {
                for _ in 0..8 {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// CPUID leaf 7, ECX bit 5 (Intel SDM vol. 2, CPUID; WAITPKG).
#[cfg(target_arch = "x86_64")]
fn has_waitpkg() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & (1 << 5) != 0
}

/// Waits about `cycles` of the time-stamp counter in the light state C0.1.
#[cfg(target_arch = "x86_64")]
fn tpause(cycles: u64) {
    // SAFETY: RDTSC has no operands and touches no memory.
    let deadline = unsafe { std::arch::x86_64::_rdtsc() } + cycles;
    // SAFETY: only reached where CPUID shows WAITPKG; TPAUSE reads EDX:EAX and one register, writes flags.
    unsafe {
        std::arch::asm!(
            "tpause {state:e}",
            state = in(reg) 1u32,
            in("edx") (deadline >> 32) as u32,
            in("eax") deadline as u32,
            options(nomem, nostack),
        );
    }
}

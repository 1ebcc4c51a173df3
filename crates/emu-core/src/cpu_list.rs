//! Sets of CPUs, written as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The number of a logical CPU, as in `/sys/devices/system/cpu/cpuN`.
pub type CpuId = usize;

/// The largest CPU number accepted: the kernel's `CONFIG_NR_CPUS` tops out at 8192.
pub const CPU_ID_MAX: CpuId = 8191;

/// A sorted set of CPUs.
///
/// The text form is the kernel's list format ("cpulist", Documentation/admin-guide/kernel-parameters.rst),
/// without the `:used/group` stride form.
///
/// ```
/// let cpus: emu_core::CpuList = "0-2,5".parse().unwrap();
/// assert_eq!(cpus.iter().collect::<Vec<_>>(), [0, 1, 2, 5]);
/// assert_eq!(cpus.to_string(), "0-2,5");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(into = "String", try_from = "String")]
pub struct CpuList(BTreeSet<CpuId>);

impl CpuList {
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CpuId> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is one of them.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }

    /// The lowest-numbered CPU.
    pub fn first(&self) -> Option<CpuId> {
        self.0.first().copied()
    }

    /// The CPUs that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The CPUs that are in one of them or in both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// The CPUs that are in `self` but not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Parses a kernel file, in which an empty line means no CPU; `None` for anything else than a list.
    pub fn from_kernel(text: &str) -> Option<Self> {
        if text.trim().is_empty() { Some(Self::default()) } else { text.parse().ok() }
    }
}

impl FromIterator<CpuId> for CpuList {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

impl TryFrom<String> for CpuList {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::from_kernel(&text).ok_or_else(|| bad_list(&text, "not a CPU list"))
    }
}

impl FromStr for CpuList {
    type Err = Error;

    /// # Errors
    /// An empty list, an empty or reversed range, or a number that is none or above [`CPU_ID_MAX`].
    fn from_str(text: &str) -> Result<Self> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (parse_id(text, first)?, parse_id(text, last)?);
            if first > last {
                return Err(bad_list(text, &format!("the range `{part}` is reversed")));
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

fn parse_id(list: &str, number: &str) -> Result<CpuId> {
    let number = number.trim();
    if number.is_empty() {
        return Err(bad_list(list, "a CPU number is missing"));
    }
    match number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse::<CpuId>()) {
        Some(Ok(cpu)) if cpu <= CPU_ID_MAX => Ok(cpu),
        Some(_) => Err(bad_list(list, &format!("there is no CPU {number} (the largest is {CPU_ID_MAX})"))),
        None => Err(bad_list(list, &format!("`{number}` is not a CPU number"))),
    }
}

fn bad_list(list: &str, why: &str) -> Error {
    Error::usage(format!("bad CPU list `{list}`: {why}"))
        .hint("write it as the kernel does, for example 0-2,5")
}

/// In the kernel's list format; the alternate form `{:#}` has the word before it: `CPU 3`, `CPUs 0-3`.
impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            f.write_str(if self.len() == 1 { "CPU " } else { "CPUs " })?;
        }
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bad_lists_are_refused_with_the_reason() {
        for (text, reason) in [
            ("", "missing"),
            (",", "missing"),
            ("0,", "missing"),
            ("3-1", "reversed"),
            ("-1", "missing"),
            ("1-", "missing"),
            ("a", "not a CPU number"),
            ("0x1", "not a CPU number"),
            ("+1", "not a CPU number"),
            ("8192", "no CPU 8192"),
            ("99999999999999999999", "no CPU"),
            ("1-2-3", "not a CPU number"),
        ] {
            let error = text.parse::<CpuList>().unwrap_err();
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn an_empty_kernel_file_means_no_cpu() {
        assert_eq!(CpuList::from_kernel("\n"), Some(CpuList::default()));
        assert_eq!(CpuList::from_kernel("junk"), None);
    }

    proptest! {
        #[test]
        fn text_form_round_trips(cpus in proptest::collection::btree_set(0..=CPU_ID_MAX, 1..40)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = text.parse::<CpuList>();
        }
    }
}

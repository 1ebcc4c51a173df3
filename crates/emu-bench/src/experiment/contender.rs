//! Who is compared: our methods, their variants, and `none`.

use std::fmt;
use std::str::FromStr;

use emu_core::{Demand, Error, Host, METHODS, MethodId, Result, Variant};
use serde::{Deserialize, Serialize};

use crate::verify::{Emulated, Nothing, SessionEmulated};

/// The variants that methods have beside their best.
const VARIANTS: [(MethodId, Variant, &str); 3] = [
    (MethodId::Fracas, Variant::Published, "fracas:published"),
    (MethodId::Fracas, Variant::Shares, "fracas:shares"),
    (MethodId::CpuLim, Variant::Published, "cpu-lim:published"),
];

/// A way to slow a CPU that takes part in an experiment. Written `cpu-hogs`, `cpu-lim:published`, `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Contender {
    /// No emulation at all: what it seems to change is the error of the measurement (A/A).
    None,
    /// A method in one of its variants.
    Method(MethodId, Variant),
}

impl Contender {
    /// All that there are, in the order in which they are listed.
    pub fn all() -> Vec<Self> {
        let methods = METHODS.iter().map(|method| method.id()).flat_map(|id| {
            let others = VARIANTS.into_iter().filter(move |(of, ..)| *of == id);
            std::iter::once(Self::Method(id, Variant::Best))
                .chain(others.map(|(id, variant, _)| Self::Method(id, variant)))
        });
        methods.chain([Self::None]).collect()
    }

    /// Every method at its best.
    pub fn best() -> Vec<Self> {
        let is_best = |one: &Self| matches!(one, Self::Method(_, Variant::Best));
        Self::all().into_iter().filter(is_best).collect()
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => Nothing::NAME,
            Self::Method(id, variant) => VARIANTS
                .iter()
                .find(|(of, its, _)| (*of, *its) == (id, variant))
                .map_or_else(|| id.as_str(), |(.., name)| name),
        }
    }

    /// What it does, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Self::None => "no emulation: native against native, which shows the noise",
            Self::Method(_, Variant::Published) => "as in the paper, with its known errors",
            Self::Method(_, Variant::Shares) => "as in the paper, by weights against burners",
            Self::Method(id, Variant::Best) => {
                emu_core::method(id).map_or("", |method| method.about().summary)
            }
        }
    }

    /// Whether it works by the core clock itself.
    pub(super) fn moves_clock(self) -> bool {
        matches!(self, Self::Method(MethodId::CpuFreq | MethodId::CpuGov, _))
    }

    /// What of it is asked for in a demand.
    pub(super) fn variant(self) -> Variant {
        match self {
            Self::None => Variant::Best,
            Self::Method(_, variant) => variant,
        }
    }

    /// The emulation. Changes nothing yet.
    ///
    /// # Errors
    /// The method cannot meet the demand here, and why.
    pub fn emulated(self, host: &Host, demand: &Demand) -> Result<Box<dyn Emulated>> {
        Ok(match self {
            Self::None => Box::new(Nothing),
            Self::Method(id, _) => Box::new(SessionEmulated::new(host, demand.clone(), id)?),
        })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Contender {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::all().into_iter().find(|one| one.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::all().into_iter().map(Self::as_str).collect();
            Error::usage(format!("there is no method `{text}`")).hint(format!("one of {}", names.join(", ")))
        })
    }
}

impl From<Contender> for String {
    fn from(contender: Contender) -> Self {
        contender.to_string()
    }
}

impl TryFrom<String> for Contender {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{Reason, Roots, Target};

    #[test]
    fn every_contender_has_a_name_of_its_own_by_which_it_is_found() {
        let all = Contender::all();
        for one in &all {
            assert_eq!(one.to_string().parse::<Contender>().unwrap(), *one);
            assert!(!one.about().is_empty());
        }
        let mut names: Vec<_> = all.iter().map(Contender::to_string).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!("cpu-hog".parse::<Contender>().unwrap_err().hint_text().unwrap().contains("cpu-hogs"));
    }

    #[test]
    fn the_variants_are_those_that_the_methods_have() {
        let host = Host::detect(&Roots::system()).unwrap();
        let cpu = host.allowed.first().unwrap();
        let mut demand = Demand::new([(cpu, Target { share: 0.5, clock: None })].into());
        for method in METHODS {
            for variant in [Variant::Published, Variant::Shares] {
                demand.variant = variant;
                let refused = method.check(&host, &demand).err().map(|why| why.reason);
                if VARIANTS.iter().any(|(of, its, _)| (*of, *its) == (method.id(), variant)) {
                    assert_ne!(refused, Some(Reason::NoVariant), "{} {variant}", method.id());
                } else {
                    assert!(refused.is_some(), "{} {variant}", method.id());
                }
            }
        }
    }
}

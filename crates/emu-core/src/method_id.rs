//! The names of the methods.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error as _};

use crate::error::{Error, Result};
use crate::sys::lock;

/// The name of a method: `fracas`, or `fracas:published` for a form of it that is another method.
///
/// Any method can have one, of this crate or of another: records are read whatever methods they name. Whether there is a
/// method of that name is for the registry to say: [`find`](crate::find).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MethodId(&'static str);

const LENGTH_MAX: usize = 64;

impl MethodId {
    /// A name that is known when the program is compiled.
    ///
    /// # Panics
    /// It is no name; where it is a constant, the program does not compile.
    pub const fn new(name: &'static str) -> Self {
        assert!(
            is_name(name),
            "a method's name is words of a-z, 0-9 and -, or two such with a colon between"
        );
        Self(name)
    }

    /// The name as on the command line.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// `[a-z0-9-]+(:[a-z0-9-]+)?`
const fn is_name(name: &str) -> bool {
    let mut rest = name.as_bytes();
    let (mut length, mut has_colon) = (0, false);
    while let [byte, more @ ..] = rest {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => length += 1,
            b':' if length > 0 && !has_colon => (length, has_colon) = (0, true),
            _ => return false,
        }
        rest = more;
    }
    length > 0 && name.len() <= LENGTH_MAX
}

/// The one copy of a name that lasts as long as the process.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = lock(&NAMES);
    if let Some(known) = names.get(name) {
        return known;
    }
    let lasting: &'static str = name.to_owned().leak();
    names.insert(lasting);
    lasting
}

impl fmt::Display for MethodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl FromStr for MethodId {
    type Err = Error;

    /// # Errors
    /// Usage, for what can be no method's name.
    fn from_str(text: &str) -> Result<Self> {
        if is_name(text) {
            return Ok(Self(interned(text)));
        }
        Err(Error::usage(format!("`{text}` is no name of a method")).hint("it looks like cpu-lim:published"))
    }
}

impl<'de> Deserialize<'de> for MethodId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_with_at_most_one_colon() {
        for name in ["cpu-lim", "fracas:shares", "x", "my-method-2:as-published"] {
            assert_eq!(name.parse::<MethodId>().unwrap().to_string(), name);
            let json = serde_json::to_string(&MethodId::new(name)).unwrap();
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<MethodId>(&json).unwrap(), MethodId::new(name));
        }
        let long = "x".repeat(LENGTH_MAX + 1);
        for text in ["", ":", "a:", ":a", "a:b:c", "Cpu-lim", "cpu lim", "cpu_lim", "ü", &long] {
            assert!(text.parse::<MethodId>().unwrap_err().hint_text().is_some(), "{text}");
            assert!(serde_json::from_value::<MethodId>(text.into()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_is_kept_once() {
        let [one, other] = [0, 1].map(|_| "kept-once".to_owned().parse::<MethodId>().unwrap());
        assert!(std::ptr::eq(one.as_str(), other.as_str()));
    }
}

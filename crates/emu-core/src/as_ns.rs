//! Spans in JSON as whole nanoseconds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// A span in whole nanoseconds; 584 years fit.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// For `#[serde(with)]`: the name of such a field ends in `_ns`.
#[derive(Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(inline))]
pub struct AsNs(#[expect(dead_code, reason = "it is the form in JSON")] u64);

impl AsNs {
    /// Writes a span.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(nanos(*span))
    }

    /// Reads a span.
    ///
    /// # Errors
    /// It is no whole number of nanoseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}

//! What a name that is not known may have been meant for.

/// From this likeness on, a name may have been meant.
const ALIKE: f64 = 0.6;

/// The least likeness of a known name that begins with the given one.
const BEGUN: f64 = 0.9;

/// The name that is most like this one, if it is like it at all.
///
/// ```
/// assert_eq!(emu_core::nearest("smal", ["small", "big"]), Some("small"));
/// assert_eq!(emu_core::nearest("redis", ["redis-server"]), Some("redis-server"));
/// assert_eq!(emu_core::nearest("other", ["small", "big"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_begun = |known: &str| name.len() > 1 && known.starts_with(name);
    let likeness = |known: &str| {
        let likeness = strsim::normalized_damerau_levenshtein(name, known);
        if is_begun(known) { likeness.max(BEGUN) } else { likeness }
    };
    let best = known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > ALIKE).then_some(best)
}

/// The hint for a name that is not known: the nearest one, or else `otherwise`.
pub(crate) fn nearest_hint<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl Into<String>,
) -> String {
    nearest(name, known).map_or_else(|| otherwise.into(), |near| format!("did you mean `{near}`?"))
}

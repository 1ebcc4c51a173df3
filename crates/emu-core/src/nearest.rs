//! What a name that is not known may have been meant for.

/// From this likeness on a name may have been meant.
const ALIKE: f64 = 0.6;

/// The name that is most like this one, if it is like it at all.
///
/// # Examples
/// ```
/// assert_eq!(emu_core::nearest("smal", ["small", "big"]), Some("small"));
/// assert_eq!(emu_core::nearest("other", ["small", "big"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
    let best = known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > ALIKE).then_some(best)
}

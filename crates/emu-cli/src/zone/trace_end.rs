//! What comes after the end of a trace, as an option has it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use emu_core::AtEnd;

pub(crate) fn at_end() -> impl TypedValueParser<Value = AtEnd> {
    PossibleValuesParser::new([
        PossibleValue::new(at_end_name(AtEnd::Hold)).help("its last speed stays"),
        PossibleValue::new(at_end_name(AtEnd::Loop)).help("it begins anew"),
        PossibleValue::new(at_end_name(AtEnd::Full)).help("full speed; `attach` ends"),
    ])
    .map(|name| match name.as_str() {
        "loop" => AtEnd::Loop,
        "full" => AtEnd::Full,
        _ => AtEnd::Hold,
    })
}

pub(crate) fn at_end_name(at_end: AtEnd) -> &'static str {
    match at_end {
        AtEnd::Hold => "hold",
        AtEnd::Loop => "loop",
        AtEnd::Full => "full",
    }
}

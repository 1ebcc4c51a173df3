//! Options as they are to be written to do the same again.

/// ` --threads 1,2`: an option with the values that were given; nothing where none was.
pub(crate) fn option<T: ToString>(name: &str, values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() { String::new() } else { format!(" --{name} {}", values.join(",")) }
}

pub(crate) fn flag(name: &str, is_given: bool) -> String {
    if is_given { format!(" --{name}") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_written_as_given_and_only_where_given() {
        assert_eq!(option("threads", [1, 2]), " --threads 1,2");
        assert_eq!(option("step", Some(0.2)), " --step 0.2");
        assert_eq!(option::<u32>("threads", []), "");
        assert_eq!([flag("quick", true), flag("quick", false)], [" --quick", ""]);
    }
}

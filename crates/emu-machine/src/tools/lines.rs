//! Values in lines of text.

pub(super) fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(name)).map(str::trim)
}

/// The number that follows `name` in its first line, before any word.
pub(super) fn number_after(text: &str, name: &str) -> Option<f64> {
    after(text, name)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_name() {
        let text = "Number of threads: 2\n  block size: 1024KiB\nrate (MB):  3.5 of 7\n";
        assert_eq!(after(text, "block size:"), Some("1024KiB"));
        assert_eq!(number_after(text, "Number of threads:"), Some(2.0));
        assert_eq!((number_after(text, "rate (MB):"), number_after(text, "block size:")), (Some(3.5), None));
    }
}

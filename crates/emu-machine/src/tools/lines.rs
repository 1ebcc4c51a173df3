//! Values in lines of text.

pub(super) fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(name)).map(str::trim)
}

/// The number that follows `name` in its first line, before any word.
pub(super) fn number_after(text: &str, name: &str) -> Option<f64> {
    after(text, name)?.split_whitespace().next()?.parse().ok()
}

/// A size with its unit in powers of 1024: `4KiB`, `1m`, `512`.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|size| *size > 0)
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
        let sizes = ["4k", "1024KiB", "512", "1M", "0", "k", "4x", "99999999999999g"].map(size);
        assert_eq!(sizes, [Some(4096), Some(1 << 20), Some(512), Some(1 << 20), None, None, None, None]);
    }
}

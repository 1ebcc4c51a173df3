//! For how long a thread has waited for a CPU.

use std::fs;
use std::path::Path;

/// Nanoseconds for which a thread was ready without running, the second number of its schedstat
/// (Documentation/scheduler/sched-stats.rst); `None` on a kernel without it.
pub(crate) fn waited(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_the_second_number_of_schedstat() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("schedstat");
        fs::write(&path, "123 456 7\n").unwrap();
        assert_eq!(waited(&path), Some(456));
        fs::write(&path, "0\n").unwrap();
        assert_eq!(waited(&path), None);
    }
}

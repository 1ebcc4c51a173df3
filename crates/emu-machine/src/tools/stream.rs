//! What STREAM prints (<https://www.cs.virginia.edu/stream/FTP/Code/stream.c>, version 5.10).

use emu_core::{Error, Result};

use super::lines::{after, number_after};
use super::{Figure, Tool, What, truncated};
use crate::kernel::stream::Kernel;

pub(super) fn read(text: &str) -> Result<Vec<Figure>> {
    // Without OpenMP it tells of no threads: there is one.
    let threads = number_after(text, "Number of Threads counted =")
        .or_else(|| number_after(text, "Number of Threads requested ="))
        .map_or(1, |count| count as usize);
    let number = |name: &str| number_after(text, name);
    let array = number("Array size =").zip(number("This system uses"));
    let array_bytes = array.map(|(elements, bytes)| (elements * bytes) as u64);
    let rate = |kernel: Kernel| {
        // Millions of bytes.
        let rate = number_after(text, &format!("{}:", title(kernel)));
        let per_second = rate.ok_or_else(|| truncated(Tool::Stream, "rates"))? * 1e6;
        Ok(Figure { tool: Tool::Stream, what: What::Stream(kernel, threads, array_bytes), per_second })
    };
    let figures = Kernel::ALL.into_iter().map(rate).collect::<Result<Vec<_>>>()?;
    if let Some(failed) = after(text, "Failed Validation") {
        return Err(Error::usage(format!("it is of STREAM, but did not validate: failed {failed}"))
            .hint("its rates are those of a wrong result"));
    }
    after(text, "Solution Validates").map(|_| figures).ok_or_else(|| truncated(Tool::Stream, "validation"))
}

fn title(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::Copy => "Copy",
        Kernel::Scale => "Scale",
        Kernel::Add => "Add",
        Kernel::Triad => "Triad",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its form is that of the `printf` lines of `stream.c`; the numbers are made up.
    #[test]
    fn best_rates_are_read_with_their_threads() {
        let text = include_str!("testdata/stream.txt");
        let figures = super::super::read(text).unwrap();
        assert_eq!(figures.len(), 4);
        let triad = What::Stream(Kernel::Triad, 2, Some(80_000_000));
        assert_eq!((&figures[3].what, figures[3].per_second), (&triad, 45_096.0e6));
        assert_eq!(triad.to_string(), "STREAM triad, 2 threads, arrays of 76.3 MiB");
        let alone: String = text
            .lines()
            .filter(|line| !line.contains("Threads") && !line.contains("Array"))
            .flat_map(|line| [line, "\n"])
            .collect();
        assert_eq!(super::super::read(&alone).unwrap()[0].what, What::Stream(Kernel::Copy, 1, None));
    }

    #[test]
    fn a_run_that_did_not_validate_is_refused() {
        let text = include_str!("testdata/stream.txt");
        let failed = text.replace(
            "Solution Validates: avg error less than",
            "Failed Validation on array a[], AvgRelAbsErr >",
        );
        assert!(
            super::super::read(&failed)
                .unwrap_err()
                .to_string()
                .contains("did not validate: failed on array a[]")
        );
    }
}

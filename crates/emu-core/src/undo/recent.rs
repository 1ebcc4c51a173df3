//! The values that a control file was given recently.

/// How many values are remembered, unless more were given at once.
const KNOWN: usize = 16;

/// The newest last, which the file holds: a session that alternates between few values needs no new record each time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recent(Vec<String>);

impl Recent {
    pub(crate) fn has(&self, value: &str) -> bool {
        self.0.iter().any(|known| known == value)
    }

    pub(crate) fn add<'a>(&mut self, values: impl IntoIterator<Item = &'a str>) {
        let mut count = 0;
        for value in values {
            self.0.retain(|known| known != value);
            self.0.push(value.into());
            count += 1;
        }
        self.0.drain(..self.0.len().saturating_sub(KNOWN.max(count)));
    }

    pub(crate) fn values(&self) -> &[String] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known_and_all_that_were_given_at_once() {
        let mut recent = Recent::default();
        let numbers: Vec<_> = (0..40).map(|number| number.to_string()).collect();
        let given = |from: usize, to: usize| numbers[from..to].iter().map(String::as_str);
        recent.add(given(0, 20));
        assert_eq!(recent.values(), &numbers[..20]);
        recent.add(["3"]);
        assert_eq!(recent.values().len(), KNOWN);
        assert!(recent.has("3") && recent.has("19") && !recent.has("0"));
        assert_eq!(recent.values().last().unwrap(), "3");
    }
}

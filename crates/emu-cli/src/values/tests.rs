//! What each value takes.

use super::*;

#[test]
fn durations_need_a_unit_and_a_length() {
    assert_eq!(duration("10ms").unwrap(), Duration::from_millis(10));
    assert_eq!(duration(" 1m 30s ").unwrap(), Duration::from_secs(90));
    assert_eq!(duration("0.5 ms").unwrap(), Duration::from_micros(500));
    for text in ["", "0", "0s", "10", "-1s", "1 fortnight", "ms", "NaNs", "1e3s", "99999999999999999999s"] {
        let error = duration(text).expect_err(text);
        assert_eq!(error.kind(), emu_core::ErrorKind::Usage, "{text}");
        assert!(error.hint_text().is_some(), "{text}");
    }
}

#[test]
fn periods_out_of_any_methods_reach_are_refused_with_the_range() {
    for text in ["0", "10", "1 ns", "499us", "1001ms", "1 h", "-10ms"] {
        let error = period(text).expect_err(text);
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("500us and 1s") && hint.contains("a unit"), "{text}: {hint}");
    }
    assert_eq!(period("500us").unwrap(), PERIOD_MIN);
    assert_eq!(period("1s").unwrap(), PERIOD_MAX);
}

#[test]
fn shares_lie_between_nothing_and_all() {
    for (text, value) in [("5%", 0.05), ("0.05", 0.05), (" 2.5 %", 0.025)] {
        assert!((share(text).unwrap() - value).abs() < 1e-12, "{text}");
    }
    for text in ["", "%", "0", "0%", "100%", "1", "-5%", "NaN", "inf%", "5%%", "x"] {
        assert!(share(text).unwrap_err().hint_text().is_some(), "{text}");
    }
}

#[test]
fn sizes_have_units_of_powers_of_two() {
    for (text, bytes) in [("1", 1), ("512B", 512), ("4KiB", 4096), (" 64 MiB", 64 << 20), ("2G", 2 << 30)] {
        assert_eq!(size(text).unwrap(), bytes, "{text}");
    }
    for text in ["", "0", "0G", "-1", "1.5G", "KiB", "1KB", "1 T", "99999999999G"] {
        assert!(size(text).unwrap_err().hint_text().is_some(), "{text}");
    }
}

#[test]
fn whole_numbers_out_of_range_are_refused_with_an_example() {
    assert_eq!(threads(" 2").unwrap(), 2);
    for text in ["", "0", "-1", "257", "1.5", "x"] {
        let error = threads(text).unwrap_err();
        assert_eq!(error.to_string(), format!("bad number of threads `{text}`"));
        assert_eq!(error.hint_text().as_deref(), Some("give a whole number from 1 to 256: --threads 1,2"));
    }
    assert_eq!((pairs("2").unwrap(), pairs("1000").unwrap()), (2, 1000));
    assert_eq!((pairs("1").is_err(), pairs("1001").is_err()), (true, true));
    assert_eq!((seed("0").unwrap(), seed("x").is_err(), seed("-1").is_err()), (0, true, true));
}

#[test]
fn numbers_with_a_fraction_are_finite() {
    assert!((step("0.1").unwrap() - 0.1).abs() < 1e-12 && (setting("-1.5").unwrap() + 1.5).abs() < 1e-12);
    for text in ["", "x", "NaN", "inf"] {
        for error in [step(text).unwrap_err(), setting(text).unwrap_err()] {
            assert!(
                error.to_string().contains(&format!("`{text}`")) && error.hint_text().is_some(),
                "{text}"
            );
        }
    }
    assert!(step("0").is_err() && step("-0.1").is_err());
}

#[test]
fn an_option_that_is_to_be_repeated_says_so() {
    assert!(speed_to_repeat("0=25%,1=50%").is_ok());
    let hint = |text: &str| speed_to_repeat(text).unwrap_err().hint_text().unwrap();
    assert_eq!(hint("25%,50%"), "give the option once for each: --speed 25% --speed 50%");
    assert!(hint("140%").starts_with("write "), "{}", hint("140%"));
}

#[test]
fn columns_and_operations_have_the_names_that_are_shown() {
    let command = clap::Command::new("emu");
    let column = |name: &str| column().parse_ref(&command, None, name.as_ref());
    for kind in Column::ALL {
        let parsed = column(kind.name()).ok();
        assert_eq!(parsed, kind.ends_operations().then_some(kind), "{}", kind.name());
    }
    for kind in [Operation::Read, Operation::Write] {
        assert_eq!(operation().parse_ref(&command, None, kind.name().as_ref()).unwrap(), kind);
    }
}

#[test]
fn process_ids_are_positive_numbers() {
    assert_eq!(pid("42").unwrap(), 42);
    for text in ["", "0", "-1", "1x", "99999999999"] {
        assert!(pid(text).is_err(), "{text}");
    }
}

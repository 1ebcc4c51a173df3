use super::*;

#[test]
fn many_chains_come_to_what_one_chain_comes_to() {
    for work in Work::ALL {
        let batch = work.many();
        assert_eq!(batch.digest, batch.must(work.one()), "{}", work.name());
        assert_eq!(batch.operations % (batch.chains * ROUNDS), 0, "{}", work.name());
        assert_eq!(batch, work.many(), "{}", work.name());
    }
}

#[test]
fn chains_come_to_what_is_known_of_them() {
    let double = |operation| f64::from_bits(Work { number: Number::Double, operation }.one());
    let rounds = ROUNDS as f64;
    assert_eq!(double(Operation::Add).to_bits(), (1.0 + HALF * rounds).to_bits());
    assert_eq!(double(Operation::Subtract).to_bits(), (1.0 - HALF * rounds).to_bits());
    assert!((double(Operation::Multiply) - 1.0).abs() < 1e-9);
    assert!((double(Operation::Divide) - FACTOR).abs() < 1e-9);
    // x = ½ x + 1
    assert!((double(Operation::MultiplyAdd) - 2.0).abs() < 1e-12);
    // x (2.5 (x + 1.5) − 0.5) = 30
    let x = double(Operation::Mixed);
    assert!((x * (2.5 * (x + 1.5) - 0.5) - 30.0).abs() < 1e-9, "{x}");

    let integer = |operation| Work { number: Number::Integer, operation }.one();
    // a, b, a + b, a + 2 b: coefficients are Fibonacci numbers, here modulo 2⁶⁴.
    let (mut a, mut b) = INTEGERS;
    for _ in 0..ROUNDS {
        a = a.wrapping_add(b);
        b = b.wrapping_add(a);
    }
    assert_eq!(integer(Operation::Add), a);
    assert_eq!(integer(Operation::Multiply) % 2, 1, "odd factors stay odd");
    let x = integer(Operation::Divide);
    assert!(x.abs_diff(1 << 31) < 1 << 31, "{x}");
}

#[test]
fn no_step_of_a_chain_is_shorter_than_a_cycle() {
    let first = emu_core::Host::detect(&emu_core::Roots::system()).unwrap().allowed.first().unwrap();
    let seconds = |work: Work| {
        let one = || {
            let begin = std::time::Instant::now();
            black_box(work.one());
            begin.elapsed().as_secs_f64()
        };
        (0..200).map(|_| one()).fold(f64::INFINITY, f64::min)
    };
    // What is held up is longer, and a clock that was read before it rose lower: neither makes a step too short.
    for operation in [Operation::Add, Operation::Subtract] {
        let work = Work { number: Number::Integer, operation };
        let cycles = (0..5).filter_map(|_| {
            let clock = emu_core::clock::measure(first, emu_core::clock::BUDGET).ok()?.clock.as_f64();
            Some(seconds(work) * clock / work.steps() as f64)
        });
        let most = cycles.reduce(f64::max);
        assert!(most.is_none_or(|most| most > 0.9), "{}: {most:?} cycles", work.name());
    }
}

#[test]
fn the_instruction_set_has_a_name_and_a_width() {
    let (name, lanes) = instruction_set();
    assert!(!name.is_empty() && lanes.is_power_of_two() && lanes <= 8);
}

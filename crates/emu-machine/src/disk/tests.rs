use std::fs;

use emu_core::{ErrorKind, Roots};

use super::*;
use crate::series;

/// A folder on a disk: where the build is, as `/tmp` may be in memory.
fn on_disk() -> tempfile::TempDir {
    let this = std::env::current_exe().unwrap();
    tempfile::tempdir_in(this.parent().unwrap()).unwrap()
}

fn host() -> Host {
    Host::detect(&Roots::system()).unwrap()
}

fn plan(folder: &Path) -> DiskPlan {
    let blocks = vec![1, 4096];
    DiskPlan {
        folder: folder.into(),
        file_bytes: 1 << 20,
        blocks,
        threads: vec![1, 2],
        phase_ns: 2_000_000,
        rounds: 1,
        seed: 9,
    }
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn every_transfer_is_measured_or_says_why_not() {
    let dir = on_disk();
    let disk = run(&plan(dir.path()), &host(), &mut |_| {
        assert_eq!(entries(dir.path()), 0, "the files have no names");
        Ok(())
    })
    .unwrap();
    assert_eq!(disk.cells.len(), 2 * 2 * 2 * 2 * 4);
    for Cell { transfer, outcome } in &disk.cells {
        match outcome {
            Outcome::Measured(measured) => {
                assert_eq!(measured.samples.len(), 1, "{}", transfer.name());
                assert!(measured.bytes_per_s > 0.0, "{}", transfer.name());
                let must = (transfer.column != Column::WriteBack).then_some(true);
                for times in [measured.latency, measured.back_to_back] {
                    assert_eq!(times.map(|times| times.operations > 0), must, "{}", transfer.name());
                }
                let rate = measured.operations_per_s * transfer.block_bytes as f64;
                assert!((rate / measured.bytes_per_s - 1.0).abs() < 1e-9);
            }
            Outcome::NotAvailable(why) => {
                assert!(transfer.column != Column::Cached, "{}: {why}", transfer.name());
                assert!(!why.is_empty());
            }
        }
    }
    let outcome = |operation, column, block_bytes| {
        let is = |cell: &&Cell| {
            let transfer = cell.transfer;
            (transfer.operation, transfer.column, transfer.block_bytes) == (operation, column, block_bytes)
        };
        &disk.cells.iter().find(is).unwrap().outcome
    };
    let why = |outcome: &Outcome| match outcome {
        Outcome::NotAvailable(why) => why.clone(),
        Outcome::Measured(_) => panic!("{outcome:?}"),
    };
    assert!(why(outcome(Operation::Read, Column::Durable, 4096)).contains("durable"));
    assert!(why(outcome(Operation::Read, Column::WriteBack, 4096)).contains("writes nothing back"));
    let single = why(outcome(Operation::Write, Column::Direct, 1));
    match disk.direct_block_bytes {
        Some(least) => assert!(single.contains(&format!("of {least} bytes")), "{single}"),
        None => assert_eq!(single, why(outcome(Operation::Write, Column::Direct, 4096))),
    }
    let text = serde_json::to_string(&disk).unwrap();
    assert_eq!(serde_json::from_str::<Disk>(&text).unwrap(), disk);
}

#[test]
fn a_refused_transfer_is_unavailable_and_a_failed_one_ends_all() {
    let transfer = plan(Path::new("/")).transfers().pop().unwrap();
    let refused = std::io::Error::from_raw_os_error(nix::libc::EINVAL);
    let refused = Error::io("cannot write", refused).with_kind(ErrorKind::Unavailable);
    let why = tried::<()>(&transfer, Err(refused)).unwrap().unwrap_err();
    assert!(why.starts_with("the kernel refuses to write blocks of 4096 bytes: Invalid argument"), "{why}");
    let failed = Error::io("cannot write", std::io::Error::from_raw_os_error(nix::libc::EIO));
    assert!(tried::<()>(&transfer, Err(failed)).is_err());
    assert_eq!(tried(&transfer, Ok(7)).unwrap(), Ok(7));
}

/// A folder of a file system in memory, where there is one; CI has one.
fn in_memory() -> Option<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return Some(tempfile::tempdir_in(memory).unwrap());
    }
    assert!(std::env::var_os("EMU_NO_SKIP").is_none(), "no /dev/shm");
    eprintln!("left out: no /dev/shm");
    None
}

#[test]
fn a_file_system_in_memory_has_no_disk() {
    let Some(dir) = in_memory() else { return };
    let disk = run(&plan(dir.path()), &host(), &mut |_| Ok(())).unwrap();
    assert_eq!(disk.direct_block_bytes, None);
    for Cell { transfer, outcome } in &disk.cells {
        let measured = matches!(outcome, Outcome::Measured(_));
        assert_eq!(measured, transfer.column == Column::Cached, "{}", transfer.name());
    }
}

#[test]
fn a_measurement_that_is_ended_leaves_nothing() {
    let dir = on_disk();
    let mut calls = 0;
    let error = run(&plan(dir.path()), &host(), &mut |_| {
        calls += 1;
        if calls < 5 { Ok(()) } else { Err(Error::new(ErrorKind::Failed, "ended")) }
    })
    .unwrap_err();
    assert_eq!((error.to_string().as_str(), entries(dir.path())), ("ended", 0));
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error() {
    let dir = on_disk();
    let missing = run(&plan(&dir.path().join("missing")), &host(), &mut |_| Ok(())).unwrap_err();
    assert!(missing.to_string().contains("missing") && missing.hint_text().is_some(), "{missing}");
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = run(&plan(&file), &host(), &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
}

/// A series of ten short samples of one kind of transfer.
fn series_of(steady: &Steady) -> Result<series::Series> {
    let plan = series::SeriesPlan { length_ns: 20_000_000, every_ns: 2_000_000 };
    steady.run(&host(), plan, &mut |_| Ok(()))
}

fn steady(folder: &Path, operation: Operation, column: Column) -> Steady {
    let usual = Steady::usual(folder.into(), 9);
    let transfer = Transfer { block_bytes: 4096, operation, column, ..usual.transfer };
    Steady { file_bytes: 1 << 20, transfer, ..usual }
}

#[test]
fn a_long_series_is_verified_or_says_why_not() {
    let dir = on_disk();
    for (operation, column) in [
        (Operation::Read, Column::Cached),
        (Operation::Write, Column::Cached),
        (Operation::Write, Column::Durable),
        (Operation::Read, Column::Direct),
        (Operation::Write, Column::Direct),
    ] {
        match series_of(&steady(dir.path(), operation, column)) {
            Ok(series) => {
                assert_eq!((series.rates.len(), series.unit.as_str()), (10, "B"), "{}", series.what);
                assert!(series.rates.iter().all(|rate| *rate > 0.0), "{series:?}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(column != Column::Cached && error.hint_text().is_some(), "{error}");
            }
        }
        assert_eq!(entries(dir.path()), 0);
    }
}

#[test]
fn a_long_series_is_never_of_something_else_than_was_asked_for() {
    let dir = on_disk();
    for (operation, column) in [
        (Operation::Read, Column::Durable),
        (Operation::Read, Column::WriteBack),
        (Operation::Write, Column::WriteBack),
    ] {
        let error = series_of(&steady(dir.path(), operation, column)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    }
    let usual = Steady { file_bytes: 1 << 20, ..Steady::usual(dir.path().into(), 9) };
    assert_eq!(usual.check().unwrap_err().kind(), ErrorKind::Usage, "two blocks do not fit");
    let Some(dir) = in_memory() else { return };
    assert!(series_of(&steady(dir.path(), Operation::Read, Column::Cached)).is_ok());
    for (operation, column) in [(Operation::Read, Column::Direct), (Operation::Write, Column::Durable)] {
        let error = series_of(&steady(dir.path(), operation, column)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("in memory") && error.hint_text().is_some(), "{error}");
    }
}

#[test]
fn a_long_series_that_is_ended_leaves_nothing() {
    let dir = on_disk();
    // Far more than is taken: a machine that is held up does not come to its end.
    let plan = series::SeriesPlan { length_ns: 60_000_000_000, every_ns: 2_000_000 };
    let mut calls = 0;
    let error = steady(dir.path(), Operation::Write, Column::Cached)
        .run(&host(), plan, &mut |_| {
            calls += 1;
            if calls < 5 { Ok(()) } else { Err(Error::new(ErrorKind::Failed, "ended")) }
        })
        .unwrap_err();
    assert_eq!((error.to_string().as_str(), entries(dir.path())), ("ended", 0));
}

#[test]
fn a_file_with_a_name_is_read_and_written_where_it_is() {
    let dir = on_disk();
    let path = dir.path().join("file");
    let mut file = Named::make(&path, 1 << 20, Duration::from_millis(2), 3).unwrap();
    let before = fs::read(&path).unwrap();
    let transfer = |operation, block_bytes, column| Transfer {
        block_bytes,
        operation,
        order: Order::Random,
        threads: 1,
        column,
    };
    assert!(file.sample(&transfer(Operation::Read, 4096, Column::Cached)).unwrap().operations > 0);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(file.sample(&transfer(Operation::Write, 4096, Column::Durable)).unwrap().bytes_per_s > 0.0);
    assert_ne!(fs::read(&path).unwrap(), before);
    assert_eq!(
        file.sample(&transfer(Operation::Read, 4096, Column::Durable)).unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert!(Named::make(&path, 1 << 20, Duration::from_millis(2), 3).is_err(), "it exists");
}

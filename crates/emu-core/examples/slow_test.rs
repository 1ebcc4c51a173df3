//! A test that runs as on a slower machine: `cargo test -p emu-cpu-core --example slow_test`.

fn main() {
    println!("There is nothing to run here but tests.");
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};
    use std::{any, env, process};

    use emu_core::{
        Demand, ErrorKind, Host, Pid, Result, Roots, SlowCommand, Stdio, choose, process_cpu_time, restore,
    };

    /// Runs `body`, all that the calling test does, at this speed: in a process that runs this test only. Where the host
    /// cannot do that, it says so, and the test is skipped.
    fn at_speed<T: FnOnce()>(speed: &str, body: T) {
        const IS_SLOW: &str = "TEST_IS_SLOW";
        if env::var_os(IS_SLOW).is_some() {
            return body();
        }
        // CRATE::MODULE::TEST::{{closure}}; the test harness leaves out the crate.
        let path = any::type_name::<T>().trim_end_matches("::{{closure}}");
        let test = path.split_once("::").map_or(path, |(_, test)| test);
        let run = || -> Result<_> {
            let roots = Roots::system();
            restore(&roots)?;
            let host = Host::detect(&roots)?;
            let prepared = choose(&host, &Demand::measured(&host, &speed.parse()?, None)?)?;
            let mut command = SlowCommand::new(env::current_exe().unwrap());
            command.args(["--exact", test, "--nocapture"]).env(IS_SLOW, "").stdout(Stdio::Piped);
            command.spawn(&prepared)?.wait()
        };
        match run() {
            Err(why) if matches!(why.kind(), ErrorKind::Unavailable | ErrorKind::NotPermitted) => {
                assert!(env::var_os("EMU_NO_SKIP").is_none(), "{}", why.in_words());
                eprintln!("skipped {test}: {}", why.in_words());
            }
            ended => {
                let ended = ended.unwrap();
                let output = String::from_utf8_lossy(&ended.stdout);
                assert!(ended.exit.success() && output.contains("1 passed"), "at {speed}: {output}");
                ended.released.unwrap();
            }
        }
    }

    #[test]
    fn a_tenth_of_a_second_of_work_takes_longer() {
        at_speed("25%", || {
            let begin = Instant::now();
            while process_cpu_time(process::id() as Pid).unwrap() < Duration::from_millis(100) {}
            assert!(begin.elapsed() > Duration::from_millis(200), "{:?}", begin.elapsed());
        });
    }
}

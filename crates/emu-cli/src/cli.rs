//! The command line as clap sees it, and which subcommand does what.

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    attach, bench, calibrate, ci, completions, doctor, info, man, measure, methods, node, noise, profile,
    report, restore, run, set, timers, top, trace, verify, worker,
};
use crate::exit::{Exit, Failure};

/// Makes programs run as on a slower CPU, and measures how faithfully
#[derive(Debug, Parser)]
#[command(name = "emu", version, propagate_version = true, max_term_width = 80, after_help = crate::exit::TABLE)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do; one folder in `commands` for each.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::RunArgs),
    Attach(attach::AttachArgs),
    Set(set::SetArgs),
    Top(top::TopArgs),
    #[command(subcommand)]
    Node(node::NodeCommand),
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    Profile(profile::ProfileArgs),
    Ci(ci::CiArgs),
    Methods(methods::MethodsArgs),
    Info(info::InfoArgs),
    Verify(verify::VerifyArgs),
    Bench(bench::BenchArgs),
    Report(report::ReportArgs),
    Calibrate(calibrate::CalibrateArgs),
    #[command(subcommand)]
    Measure(measure::MeasureCommand),
    Noise(noise::NoiseArgs),
    Timers(timers::TimersArgs),
    Doctor(doctor::DoctorArgs),
    Restore(restore::RestoreArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

impl Command {
    pub(crate) fn act(self) -> Result<Exit, Failure> {
        match self {
            Self::Run(args) => run::run(&args),
            Self::Attach(args) => attach::attach(&args),
            Self::Set(args) => set::set(&args),
            Self::Top(args) => top::top(&args),
            Self::Node(command) => node::node(&command),
            Self::Trace(command) => trace::trace(&command),
            Self::Profile(args) => profile::profile(&args),
            Self::Ci(args) => ci::ci(&args),
            Self::Methods(args) => methods::methods(&args),
            Self::Info(args) => info::info(&args),
            Self::Verify(args) => verify::verify(&args),
            Self::Bench(args) => bench::bench(&args),
            Self::Report(args) => report::report(&args),
            Self::Calibrate(args) => calibrate::calibrate(&args),
            Self::Measure(command) => measure::measure(&command),
            Self::Noise(args) => noise::noise(&args),
            Self::Timers(args) => timers::timers(&args),
            Self::Doctor(args) => doctor::doctor(&args),
            Self::Restore(args) => restore::restore(&args),
            Self::Completions(args) => completions::completions(&args),
            Self::Man(args) => man::man(&args, Cli::command()),
            Self::Worker(args) => worker::worker(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' ').map(|word| word.replace('␣', " ")))
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    const UNDERSTOOD: &[&str] = &[
        "emu run --speed 40% -- true",
        "emu run --speed 40% true",
        "emu run -s 0.4 ls -l --speed 3",
        "emu run --speed 1.2GHz --method cpu-hogs --cpus 0-1,3 --period 1ms -- true",
        "emu run --speed 0-1=1.2GHz,2=40% --lift-rt-limit --exclude-background --verify --quiet --json out.json -- sh -c true",
        "emu run --speed 1.2GHz --method cpu-freq --round up --widen -- true",
        "emu run --speed 800␣MHz --method cpu-lim:published -- true",
        "emu run --speed 40% --period 1␣s --no-hold-clock -- true",
        "emu run --speed 40% --period 0.5ms -- true",
        "emu run --speed 40% --method cpu-lim:published -- true",
        "emu attach --pid 1,2 --speed 40%",
        "emu attach --pid 1 --speed 40% --method fracas:shares",
        "emu attach --pid 1 --pid 2 --speed 40% --for 10s",
        "emu attach --cgroup /x.slice --speed 40% --for 1m30s",
        "emu attach --unit redis --speed 40%",
        "emu attach --container web --speed 40% --for 10s",
        "emu attach --name redis-server --speed 40%",
        "emu set 4711 --speed 25%",
        "emu set 4711 -s 0=40%,1=1.2GHz --quiet",
        "emu top",
        "emu top --once --json",
        "emu top --every 500ms",
        "emu node create a --cpus 0 --speed 40% --method cpu-hogs --quiet",
        "emu node create a-1.b_c --speed 0=40%,1=1.2GHz",
        "emu node exec a -- ls -l --json",
        "emu node exec a ls",
        "emu node set a --speed 1=40%",
        "emu node list --json",
        "emu node list --watch",
        "emu node remove a --kill",
        "emu node apply nodes.toml --dry-run",
        "emu node apply - --quiet",
        "emu node dump",
        "emu run --trace x.csv --trace-end loop -- true",
        "emu attach --pid 1 --trace x.csv",
        "emu node create a --trace x.csv --cpus 0",
        "emu run --like x.json -- true",
        "emu node create a --like x.json --metric command:gcc␣x.c",
        "emu profile x.json",
        "emu profile x.json --quick --command true --command false",
        "emu ci -- true",
        "emu ci make check -j2",
        "emu ci --speeds 100%,20% --reps 1 --timeout 5m --junit a.xml --junit b --summary s.md --json x.json --quiet -- true",
        "emu ci -s 1.2GHz,600MHz -m cpu-lim --cpus 0 --period 10ms -- true",
        "emu trace record x.csv",
        "emu trace record x.csv --for 10s --every 50ms --cpus 0 --clocks --quiet",
        "emu trace show x.csv --figure x.svg",
        "emu methods",
        "emu methods --method cpu-lim --speed 0=40% --cpus 0 --period 100ms",
        "emu methods --speed 1.2GHz --method cpu-freq --cpus 0 --round down --widen",
        "emu methods --method cpu-lim:published --json",
        "emu info",
        "emu info --json",
        "emu verify",
        "emu verify --speed 25% --speed 0=40%,1=80% --method all --cpus 0-1 --period 1ms --pairs 40",
        "emu verify --speed 1.2GHz --method cpu-freq --cpus 0 --round up --widen",
        "emu verify --speeds 25% --method cpu-lim:published",
        "emu verify --workloads cpu-loop,multithread --tolerance 2.5% --quick --seed 7 --json",
        "emu bench",
        "emu bench --quick",
        "emu bench --full --preset buchert-2011 --json",
        "emu bench --methods none,cpu-lim:published --workloads cpu-loop --speeds 40%,1.2GHz --cores 1,2 --reps 40",
        "emu bench --time 60s --period 10ms --no-hold-clock --tolerance 2% --seed 7 --out x",
        "emu bench --pairs 40",
        "emu bench --preset fidelity --methods cpu-hogs --period 10ms --exclude-background",
        "emu bench --preset peers --methods cpu-hogs,cpulimit,quota,weights",
        "emu bench --preset crowd-asleep --full",
        "emu bench --for 60s",
        "emu bench --resume x --json",
        "emu report x",
        "emu report x y --out z --json",
        "emu report x y --table errors",
        "emu report --splice README.md docs/FIDELITY.md --check",
        "emu calibrate",
        "emu calibrate --quick --json --out x --seed 7 --step 0.2 --preset semode-2021",
        "emu calibrate --reps 25 --size 1000,5000,10000",
        "emu calibrate map a b.csv --setting 1769 --json",
        "emu calibrate compare a b c --json --figure f.svg",
        "emu calibrate compare 1.a=a 1.b=b/c",
        "emu measure hpcc",
        "emu measure hpcc --quick --threads 1,2 --json --out x --seed 7",
        "emu measure hpcc --sizes 1000,2000 --reference a --compare b.txt,c.txt --compare d.txt",
        "emu measure cpu --compare a",
        "emu measure disk --compare a.json --dir x",
        "emu measure cpu",
        "emu measure cpu --quick --threads 1,2 --out x --json --seed 7",
        "emu measure cpu --for 10m --every 1s --threads 4 --numbers integer",
        "emu measure memory",
        "emu measure memory --quick --size 64MiB --blocks 1,1KiB --threads 1 --json",
        "emu measure memory --for 10m --every 1s --size 1G --blocks 64KiB --threads 4",
        "emu measure disk",
        "emu measure disk --quick --dir x --size 64MiB --blocks 1,4KiB,1M --threads 1,2 --out y --json",
        "emu measure disk --for 10m --every 1s --blocks 4KiB --operation write --column durable",
        "emu noise",
        "emu noise --quick --json --out x --seed 7 --threshold 5us",
        "emu noise --node 0 --smt off",
        "emu timers",
        "emu timers --quick --json --out x --seed 7 --reference y",
        "emu doctor show",
        "emu doctor show --knobs aslr,thp --cpus 0 --json",
        "emu doctor tune",
        "emu doctor tune --for 10s --quiet",
        "emu doctor tune --knobs aslr -- ls -l --json",
        "emu doctor tune --measure --quick --json --out x --seed 7",
        "emu doctor tune --measure --pairs 40 --knobs thp,aslr",
        "emu doctor reset",
        "emu doctor reset --json",
        "emu restore",
        "emu restore --json",
        "emu completions bash",
        "emu man",
        "emu man --dir x",
    ];

    #[test]
    fn command_lines_that_are_understood() {
        for line in UNDERSTOOD {
            assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
        }
    }

    const REFUSED: &[&str] = &[
        "emu",
        "emu walk",
        "emu run -- true",
        "emu run --speed 40%",
        "emu run --speed 40% --",
        "emu run --speed 0 -- true",
        "emu run --speed -5% -- true",
        "emu run --speed 140% -- true",
        "emu run --speed 1.2␣parsecs -- true",
        "emu run --speed NaN -- true",
        "emu run --speed 40% --speed 50% -- true",
        "emu run --speed 40% --cpus  -- true",
        "emu run --speed 40% --cpus 3-1 -- true",
        "emu run --speed 40% --cpus -1 -- true",
        "emu run --speed 40% --cpus 9999 -- true",
        "emu run --speed 40% --period 0 -- true",
        "emu run --speed 40% --period 0s -- true",
        "emu run --speed 40% --period 1␣ns -- true",
        "emu run --speed 40% --period 1␣h -- true",
        "emu run --speed 40% --period -10ms -- true",
        "emu run --speed 40% --period 10 -- true",
        "emu run --speed 40% --period soon -- true",
        "emu run --speed 40% --method cpu-hog -- true",
        "emu run --speed 40% --method  -- true",
        "emu run --speed 40% --method cpu-hogs:published -- true",
        "emu run --speed 40% --method none -- true",
        "emu run --speed 40%,50% -- true",
        "emu run --speed 40% --method cpu-lim --variant published -- true",
        "emu run --speed 40% --spare-others -- true",
        "emu run --speed 40% --method cpu-freq --round off -- true",
        "emu run --speed 40% --json - -- true",
        "emu methods --round off",
        "emu attach --speed 40%",
        "emu attach --pid 1 --cgroup /x --speed 40%",
        "emu attach --unit a --name b --speed 40%",
        "emu attach --pid 0 --speed 40%",
        "emu attach --pid -1 --speed 40%",
        "emu attach --pid x --speed 40%",
        "emu attach --pid 1, --speed 40%",
        "emu attach --pid 99999999999 --speed 40%",
        "emu attach --pid 1 --speed 40% --for -1s",
        "emu attach --pid 1 --speed 40% true",
        "emu run --speed 40% --trace x.csv -- true",
        "emu run --trace x.csv --trace-end never -- true",
        "emu run --like x.json --speed 40% -- true",
        "emu run --like x.json --metric lop -- true",
        "emu ci",
        "emu ci --speeds 140% -- true",
        "emu ci --speeds  -- true",
        "emu ci --reps 0 -- true",
        "emu ci --reps 1001 -- true",
        "emu ci --timeout 0 -- true",
        "emu ci --json - -- true",
        "emu ci --method none -- true",
        "emu profile",
        "emu trace",
        "emu trace record",
        "emu trace record x.csv --for 0",
        "emu trace show",
        "emu set --speed 40%",
        "emu set 4711",
        "emu set 0 --speed 40%",
        "emu set 4711 --speed 140%",
        "emu top --every 0",
        "emu top x",
        "emu node",
        "emu node create --speed 40%",
        "emu node create a",
        "emu node create a/b --speed 40%",
        "emu node create  --speed 40%",
        "emu node create -a --speed 40%",
        "emu node exec a",
        "emu node set a",
        "emu node remove",
        "emu verify --speed 0",
        "emu verify --round off",
        "emu verify --workloads cpu-lop",
        "emu verify --speed 25%,50%",
        "emu verify --seed -1",
        "emu verify --pairs 1",
        "emu verify --pairs 1001",
        "emu verify --tolerance 0",
        "emu verify --tolerance -5%",
        "emu verify --tolerance 100%",
        "emu verify --method best",
        "emu verify true",
        "emu bench --methods cpu-hog",
        "emu bench --methods cpu-hogs:published",
        "emu bench --methods ",
        "emu bench --workloads cpu-lop",
        "emu bench --workloads ",
        "emu bench --speeds 140%",
        "emu bench --speeds 0",
        "emu bench --speeds NaN",
        "emu bench --speeds ",
        "emu bench --cores 0",
        "emu bench --cores -1",
        "emu bench --reps 0",
        "emu bench --reps 1",
        "emu bench --reps 1001",
        "emu bench --time 0s",
        "emu bench --time 10",
        "emu bench --time 60s --reps 5",
        "emu bench --for 60s --pairs 5",
        "emu bench --quick --full",
        "emu bench --resume x --quick",
        "emu bench --preset knuth-1968",
        "emu bench --preset peers --quick",
        "emu bench true",
        "emu report",
        "emu report x --check",
        "emu report x --splice y",
        "emu report x --table erors",
        "emu measure",
        "emu measure tape",
        "emu calibrate --preset knuth-1968",
        "emu calibrate --step x",
        "emu calibrate --reps 0",
        "emu calibrate --reps -1",
        "emu calibrate --size 0",
        "emu calibrate --size 99",
        "emu calibrate --size 18446744073709551616",
        "emu calibrate --size 1000,",
        "emu calibrate compare a",
        "emu calibrate compare",
        "emu calibrate --reps 2 compare a b",
        "emu calibrate x",
        "emu calibrate map a --setting 1",
        "emu calibrate map a b",
        "emu calibrate map a b --setting x",
        "emu calibrate --quick map a b --setting 1",
        "emu measure hpcc --threads 0",
        "emu measure hpcc --sizes 0",
        "emu measure hpcc --sizes 18446744073709551616",
        "emu measure cpu --for 10m --compare a",
        "emu noise --node -1",
        "emu noise --node x",
        "emu noise --smt on",
        "emu measure hpcc --threads 129",
        "emu measure hpcc --threads ",
        "emu measure hpcc x",
        "emu measure cpu --threads 0",
        "emu measure cpu --every 1s",
        "emu measure cpu --for 0s",
        "emu measure cpu --for 10m --quick",
        "emu measure cpu --for 10m --numbers roman",
        "emu measure memory --size 0",
        "emu measure memory --blocks -1",
        "emu measure memory --every 1s",
        "emu measure memory --for 0s",
        "emu measure memory --for 10m --quick",
        "emu measure memory --for 10m --numbers integer",
        "emu measure disk --size 0",
        "emu measure disk --size -1",
        "emu measure disk --size 64␣parsecs",
        "emu measure disk --blocks ",
        "emu measure disk --blocks x",
        "emu measure disk --threads 0",
        "emu measure disk --every 1s",
        "emu measure disk --operation write",
        "emu measure disk --column cached",
        "emu measure disk --for 10m --quick",
        "emu measure disk --for 10m --operation erase",
        "emu measure disk --for 10m --column write-back",
        "emu measure disk x",
        "emu noise --seed x",
        "emu noise --threshold 0s",
        "emu noise --threshold -1us",
        "emu noise --out",
        "emu noise true",
        "emu timers --reference",
        "emu timers true",
        "emu doctor",
        "emu doctor cure",
        "emu doctor show --knobs turbot",
        "emu doctor show --cpus 3-1",
        "emu doctor show true",
        "emu doctor tune --for 10s -- true",
        "emu doctor tune --measure -- true",
        "emu doctor tune --measure --for 1s",
        "emu doctor tune --measure --pairs 5",
        "emu doctor tune --measure --pairs 1001",
        "emu doctor tune --pairs 12",
        "emu doctor tune --for 0s",
        "emu doctor reset --force",
        "emu restore --force",
        "emu completions tcsh",
    ];

    #[test]
    fn command_lines_that_are_refused() {
        for line in REFUSED {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    /// The visible commands, each with the examples of its help and that of the commands above it.
    fn examples(command: &clap::Command, path: &str, above: &[String]) -> Vec<(String, Vec<String>)> {
        let help = command.clone().render_long_help().to_string();
        let own = help.split_once("Examples:\n").map_or("", |(_, rest)| rest);
        let own = own.lines().map_while(|line| line.strip_prefix("  ")).map(str::to_owned);
        let examples: Vec<_> = own.chain(above.iter().cloned()).collect();
        if !command.has_subcommands() {
            return vec![(path.to_owned(), examples)];
        }
        let below = command.get_subcommands().filter(|command| !command.is_hide_set());
        below
            .flat_map(|command| self::examples(command, &format!("{path} {}", command.get_name()), &examples))
            .collect()
    }

    #[test]
    fn every_command_is_shown_in_an_example_that_is_true() {
        for (path, examples) in examples(&Cli::command(), "emu", &[]) {
            assert!(examples.iter().any(|line| line.contains(&path)), "{path}: {examples:#?}");
            for line in examples {
                let (_, shown) = line.split_at(line.find("emu ").unwrap());
                let end = [" > ", " | ", " &", "  #", ")"].iter().filter_map(|end| shown.find(end)).min();
                let shown = shown[..end.unwrap_or(shown.len())].trim_end();
                let quoted = |(at, part): (usize, &str)| {
                    if at % 2 == 0 { part.to_owned() } else { part.replace(' ', "␣") }
                };
                let words: String = shown.split(['\'', '"']).enumerate().map(quoted).collect();
                assert!(parse(&words).is_ok(), "{line}: {}", parse(&words).unwrap_err());
            }
        }
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let Command::Run(run) = parse("emu run -s 40% ls -l --method x -- y").unwrap().command else {
            panic!()
        };
        assert_eq!(run.command, ["ls", "-l", "--method", "x", "--", "y"]);
    }
}

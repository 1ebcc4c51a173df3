//! `emu completions`: scripts by which a shell asks emu for what may come next, so that it knows what runs here.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::{Arg, Args, Command, ValueHint};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use emu_core::{CpuList, Error, Host, Roots, named};

use crate::exit::{Exit, Failure};
use crate::output;

/// A shell that asks names itself in this variable.
const ASKED: &str = "EMU_COMPLETE";

/// A file `_emu` in zsh's search path is the body of a function, run when something is first to be completed: it answers then.
const AS_FUNCTION: &str = "\
if [[ $funcstack[1] == _emu ]]; then
    _clap_dynamic_completer_emu \"$@\"
fi
";

const EXAMPLES: &str = "\
Examples:
  source <(emu completions bash)        # in ~/.bashrc
  emu completions zsh > ~/.zfunc/_emu
  emu completions fish > ~/.config/fish/completions/emu.fish";

/// Write a completion script for a shell
///
/// The script asks emu, which knows the CPUs, processes, containers, units and nodes of this machine: put
/// `source <(emu completions bash)` into ~/.bashrc.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    pub(crate) shell: Shell,
}

/// Writes the script of a shell to stdout.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let shell = args.shell.to_string();
    let mut script = Vec::new();
    let asker = Shells::builtins();
    let asker =
        asker.completer(&shell).ok_or_else(|| Error::usage(format!("nothing is known of `{shell}`")))?;
    asker
        .write_registration(ASKED, "emu", "emu", "emu", &mut script)
        .map_err(|e| Error::io("cannot write the script", e))?;
    if args.shell == Shell::Zsh {
        script.extend_from_slice(AS_FUNCTION.as_bytes());
    }
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}

/// Answers a shell that asks what may come next on the `whole` command line; `false` where none does.
pub(crate) fn answer(whole: fn() -> Command) -> clap::error::Result<bool> {
    let current = env::current_dir().ok();
    CompleteEnv::with_factory(|| taught(whole())).var(ASKED).try_complete(env::args_os(), current.as_deref())
}

/// The same command line, whose arguments know their values.
fn taught(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|arg| with_values(&name, arg)).mut_subcommands(taught)
}

/// An argument of a subcommand with what its values may be.
fn with_values(command: &str, arg: Arg) -> Arg {
    let shown =
        arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string).unwrap_or_default();
    match (command, arg.get_id().as_str(), shown.as_str()) {
        (_, "cpus", _) => arg.add(ArgValueCompleter::new(cpus)),
        (_, _, "COMMAND") => arg.add(ArgValueCompleter::new(programs_or_files)),
        (_, _, "PID") => arg.add(ArgValueCandidates::new(processes)),
        (_, _, "CONTAINER") => arg.add(ArgValueCandidates::new(containers)),
        (_, _, "UNIT") => arg.add(ArgValueCandidates::new(units)),
        ("attach", "name", _) => arg.add(ArgValueCandidates::new(names)),
        ("exec" | "set" | "remove", "name", _) => arg.add(ArgValueCandidates::new(nodes)),
        (_, _, "FILE" | "LOCAL" | "OTHER" | "SVG") => arg.value_hint(ValueHint::FilePath),
        (_, "junit", _) => arg.value_hint(ValueHint::AnyPath),
        (_, _, "DIR" | "PATH") => arg.value_hint(ValueHint::DirPath),
        _ => arg,
    }
}

/// CPUs that the caller may use, behind those that are there already.
fn cpus(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let Ok(allowed) = host(|host| host.allowed.clone()) else { return Vec::new() };
    let begin = current.rfind([',', '-']).map_or(0, |at| at + 1);
    let (before, last) = current.split_at(begin);
    let named: CpuList = before.trim_end_matches([',', '-']).parse().unwrap_or_default();
    let free = allowed.iter().filter(|cpu| !named.contains(*cpu)).map(|cpu| cpu.to_string());
    let whole = (before.is_empty() && allowed.len() > 1).then(|| allowed.to_string());
    let fitting = free.chain(whole).filter(|one| one.starts_with(last));
    candidates(fitting.map(|one| format!("{before}{one}")))
}

/// A program in the search path where the command begins, and files else.
fn programs_or_files(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = PathCompleter::any().complete(current);
    if is_first() && !current.as_encoded_bytes().contains(&b'/') {
        found.extend(programs(current));
    }
    found
}

/// Whether the word that is asked for follows `--`.
fn is_first() -> bool {
    let words: Vec<OsString> = env::args_os().collect();
    // The script's own `--` stands before those words.
    let words =
        words.iter().position(|word| word == "--").and_then(|at| words.get(at + 1..)).unwrap_or_default();
    let at = env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse().ok());
    let at: usize = at.unwrap_or_else(|| words.len().saturating_sub(1));
    at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|before| before == "--")
}

fn programs(current: &OsStr) -> Vec<CompletionCandidate> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).filter_map(|folder| fs::read_dir(folder).ok());
    let begins = |name: &OsString| name.as_encoded_bytes().starts_with(current.as_encoded_bytes());
    let begun = folders.flatten().flatten().filter(|entry| begins(&entry.file_name()));
    let programs = begun.filter(|entry| is_program(&entry.path())).map(|entry| entry.file_name());
    candidates(programs.collect::<BTreeSet<_>>())
}

fn candidates(values: impl IntoIterator<Item = impl Into<OsString>>) -> Vec<CompletionCandidate> {
    values.into_iter().map(CompletionCandidate::new).collect()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn nodes() -> Vec<CompletionCandidate> {
    candidates(super::node::names())
}

fn containers() -> Vec<CompletionCandidate> {
    candidates(host(named::running_containers).unwrap_or_default())
}

fn units() -> Vec<CompletionCandidate> {
    candidates(host(named::running_units).unwrap_or_default())
}

fn processes() -> Vec<CompletionCandidate> {
    let named = |(pid, mut names): (_, Vec<String>)| {
        CompletionCandidate::new(format!("{pid}")).help(names.pop().map(Into::into))
    };
    named::own_processes(&Roots::system()).unwrap_or_default().into_iter().map(named).collect()
}

fn names() -> Vec<CompletionCandidate> {
    let processes = named::own_processes(&Roots::system()).unwrap_or_default();
    candidates(processes.into_iter().flat_map(|(_, names)| names).collect::<BTreeSet<_>>())
}

/// What is wanted of the host, which is only looked at: nothing is undone while somebody types.
fn host<T>(wanted: impl FnOnce(&Host) -> T) -> emu_core::Result<T> {
    Host::detect(&Roots::system()).map(|host| wanted(&host))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// What may come at the end of a line.
    fn next(line: &str) -> Vec<String> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut taught(Cli::command()), words, last, None).unwrap();
        found.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn what_runs_here_may_be_named() {
        let own = std::process::id().to_string();
        assert!(next(&format!("emu attach --pid {own}")).contains(&own));
        assert!(next("emu set ").contains(&own));
        let name = named::own_processes(&Roots::system())
            .unwrap()
            .into_iter()
            .find(|(pid, _)| pid.to_string() == own)
            .unwrap()
            .1
            .pop()
            .unwrap();
        assert!(next(&format!("emu attach --name {}", &name[..2])).contains(&name));
        assert!(!next(&format!("emu node create {}", &name[..2])).contains(&name), "it is to be a new one");
    }

    #[test]
    fn cpus_come_one_behind_the_other() {
        let allowed = Host::detect(&Roots::system()).unwrap().allowed;
        let first = allowed.first().unwrap().to_string();
        assert!(next("emu run --cpus ").contains(&first));
        assert!(!next(&format!("emu run --cpus {first},")).contains(&format!("{first},{first}")));
        assert_eq!(next("emu run --cpus x"), [""; 0]);
    }

    #[test]
    fn files_come_where_a_file_or_a_folder_may() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("junit.xml"), "").unwrap();
        let line = |option| next(&format!("emu {option} {}/", dir.path().display()));
        assert_eq!(line("ci --junit"), [dir.path().join("junit.xml").display().to_string()]);
        assert_eq!(line("noise --out"), [""; 0], "it is to be a folder");
    }

    #[test]
    fn what_is_hidden_is_not_taught() {
        let all = next("emu ");
        for command in Cli::command().get_subcommands() {
            assert_eq!(
                all.contains(&command.get_name().to_owned()),
                !command.is_hide_set(),
                "{}",
                command.get_name()
            );
        }
        assert!(!next("emu run --v").contains(&"--variant".to_owned()));
        assert!(next("emu run --method cpu-h").contains(&"cpu-hogs".to_owned()));
    }
}

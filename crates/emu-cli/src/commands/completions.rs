//! `emu completions`: scripts that teach a shell emu's options.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::{Exit, Failure};
use crate::output;

/// Write a completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    pub(crate) shell: Shell,
}

pub(crate) fn completions(args: &CompletionsArgs, whole: &Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown(whole), "emu", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}

/// The command without what is hidden, which the generators do not leave out.
fn shown(whole: &Command) -> Command {
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("emu")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .about(whole.get_about().cloned().unwrap_or_default())
        .subcommands(shown)
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn no_shell_is_taught_what_is_hidden() {
        let whole = Cli::command();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut shown(&whole), "emu", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in whole.get_subcommands() {
                let (name, about) = (command.get_name(), command.get_about().unwrap().to_string());
                let is_taught = script.contains(&about) || script.contains(&format!("emu__subcmd__{name}"));
                assert_eq!(is_taught, !command.is_hide_set(), "{shell}: {name}");
            }
        }
    }
}

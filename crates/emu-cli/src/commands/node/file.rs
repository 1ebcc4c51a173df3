//! The file of `emu node apply`: tables of nodes, with the options of `emu node create`, and of what several have in common.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

use emu_core::{Error, ErrorKind, Result, input_file, nearest};
use rustix::fs::fstat;
use serde::{Deserialize, Serialize};

use super::spec::Specs;
use crate::control::Member;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    #[serde(default, skip_serializing_if = "Specs::is_empty")]
    class: Specs,
    #[serde(default)]
    node: Specs,
}

/// The most nodes of one table.
const COUNT_MAX: u16 = 1024;

pub(super) fn read(path: &Path) -> Result<Specs> {
    let failed = |e| {
        Error::file("read", path, e).with_kind(ErrorKind::Usage).hint("name a file of nodes, or - for stdin")
    };
    let (name, text) = if path == Path::new("-") {
        check_stdin()?;
        ("stdin".into(), input_file::read_all(io::stdin(), input_file::SIZE_MAX))
    } else {
        (path.display().to_string(), input_file::read_any(path, input_file::SIZE_MAX))
    };
    let nodes = parse(&text.map_err(failed)?).map_err(|e| {
        let message = format!("{name} does not tell of nodes: {}", e.to_string().trim_end());
        let error = Error::usage(message);
        if let Some(near) = nearest_key(e.message()) {
            return error.hint(format!("did you mean `{near}`?"));
        }
        error.hint(
            "a node is `[node.NAME]` with `speed`, `trace` or `like`, and `cpus` or `cores`, `count`, `class`, `method`, \
             `period`, `memory` and `exclusive` if wanted",
        )
    })?;
    let mut specs = resolve(nodes)?;
    // A trace is named as seen from the file.
    let folder = path.parent().filter(|_| path != Path::new("-")).unwrap_or(Path::new(""));
    let files = specs.values_mut().flat_map(|spec| spec.trace.iter_mut().chain(&mut spec.like));
    files.for_each(|file| *file = folder.join(&file));
    Ok(specs)
}

/// A stdin that was closed is `/dev/null` by now. Read as a file without nodes, it would remove all that there are.
fn check_stdin() -> Result<()> {
    let null = fs::metadata("/dev/null").map(|of| of.rdev());
    if null.is_ok_and(|null| fstat(io::stdin()).is_ok_and(|of| of.st_rdev == null)) {
        return Err(Error::usage("stdin is closed, or /dev/null: it tells of no nodes")
            .hint("give a file by `<`; `emu node remove --all` removes all nodes"));
    }
    Ok(())
}

/// The key that is meant by one that does not exist, from what the parser says of it.
fn nearest_key(message: &str) -> Option<&str> {
    let (unknown, known) = message.strip_prefix("unknown field `")?.split_once('`')?;
    nearest(unknown, known.split('`').skip(1).step_by(2))
}

fn parse(text: &str) -> std::result::Result<Nodes, toml::de::Error> {
    toml::from_str(text)
}

/// Every node by itself, with what it has from its class.
fn resolve(Nodes { class: classes, node }: Nodes) -> Result<Specs> {
    for (name, class) in &classes {
        let is_of_node = |member: &Member| !matches!(member, Member::Run(_));
        let has_members = class.members().iter().any(is_of_node);
        if class.class.is_some() || class.count.is_some() || class.cpus.is_some() || has_members {
            return Err(Error::usage(format!(
                "class `{name}` of the file has a class, a count, CPUs or processes of its own"
            ))
            .hint("these are of a node; a class has `cores`"));
        }
    }
    let mut specs = Specs::new();
    for (name, spec) in node {
        let count = spec.count;
        let one = spec.with_class(&name, &classes)?;
        let names = match count {
            None => vec![name.clone()],
            Some(count) if (1..=COUNT_MAX).contains(&count) && !one.names_cpus() => {
                (1..=count).map(|number| format!("{name}{number}")).collect()
            }
            Some(count) => {
                let error = Error::usage(format!("node `{name}` of the file cannot be there {count} times"));
                return Err(error
                    .hint(format!("give a `count` from 1 to {COUNT_MAX}, and `cores` instead of `cpus`")));
            }
        };
        for name in names {
            if specs.insert(name.clone(), one.clone()).is_some() {
                return Err(Error::usage(format!("the file has two nodes `{name}`"))
                    .hint("a `count` of 3 of `a` makes a1, a2 and a3"));
            }
        }
    }
    Ok(specs)
}

pub(super) fn text(specs: Specs) -> Result<String> {
    toml::to_string(&Nodes { class: Specs::new(), node: specs })
        .map_err(|e| Error::io("cannot write nodes as TOML", io::Error::other(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<Specs> {
        resolve(parse(text).unwrap())
    }

    fn to_be_placed(specs: &Specs, name: &str) -> Result<Option<usize>> {
        specs[name].to_be_placed(name, &specs[name].args(name).unwrap().zone)
    }

    #[test]
    fn a_file_is_read_and_written() {
        let text_of = "[node.a]\nspeed = \"25%\"\n\n[node.b-1]\nspeed = \"0=40%,1=1.2GHz\"\ncpus = \"0-1\"\nmethod = \"fracas\"\n";
        let specs = resolved(text_of).unwrap();
        assert_eq!(text(specs.clone()).unwrap(), text_of);
        let args = specs["b-1"].args("b-1").unwrap();
        assert_eq!((args.name.as_str(), args.zone.demand.cpus.unwrap().len()), ("b-1", 2));
        assert_eq!(resolved("").unwrap(), Specs::new());
    }

    #[test]
    fn nodes_of_a_class_have_what_they_do_not_say_themselves() {
        let specs = resolved(
            "[class.small]\nspeed = \"25%\"\nmethod = \"fracas\"\n[class.pi]\nlike = \"pi.json\"\nmetric = \"int\"\n\
             [node.w]\nclass = \"small\"\ncount = 3\n[node.fast]\nclass = \"small\"\nspeed = \"0=80%\"\ncpus = \"0\"\n\
             [node.b]\nclass = \"pi\"\nperiod = \"50ms\"\n[node.c]\ncount = 2\nspeed = \"30%\"\ncores = 2\n",
        )
        .unwrap();
        let words = |name: &str| specs[name].words(name)[1..].join(" ");
        assert_eq!(specs.keys().collect::<Vec<_>>(), ["b", "c1", "c2", "fast", "w1", "w2", "w3"]);
        assert_eq!(words("w2"), "--speed=25% --method=fracas");
        assert_eq!(words("fast"), "--speed=0=80% --cpus=0 --method=fracas");
        assert_eq!(words("b"), "--like=pi.json --metric=int --period=50ms");
        let placed = |name: &str| to_be_placed(&specs, name).unwrap();
        assert_eq!((placed("w1"), placed("fast"), placed("c1")), (Some(1), None, Some(2)));
        let all =
            resolved("[class.a]\nmethod = \"fracas\"\n[node.b]\nclass = \"a\"\nspeed = \"1=80%\"\n").unwrap();
        assert_eq!(to_be_placed(&all, "b").unwrap(), None, "a class alone counts nothing");
        assert_eq!(specs["c2"].clone().on(&"4-5".parse().unwrap()).words("c2")[2], "--cpus=4-5");
    }

    #[test]
    fn classes_and_counts_that_make_no_sense_are_refused() {
        for (text, wrong, hint) in [
            ("[class.small]\nspeed = \"1\"\n[node.a]\nclass = \"smal\"\n", "class `smal`", "`small`"),
            ("[node.a]\nclass = \"x\"\n", "class `x`", "[class.NAME]"),
            ("[class.a]\ncount = 2\n", "class `a`", "cores"),
            ("[node.a]\nspeed = \"1\"\ncount = 0\n", "0 times", "from 1"),
            ("[node.a]\nspeed = \"1\"\ncount = 2\ncpus = \"0\"\n", "2 times", "`cores`"),
            ("[node.a]\nspeed = \"1=80%\"\ncount = 2\n", "2 times", "`cores`"),
            ("[node.a]\nspeed = \"1\"\ncount = 2\n[node.a2]\nspeed = \"1\"\n", "two nodes `a2`", "a1"),
        ] {
            let error = resolved(text).unwrap_err();
            assert!(error.to_string().contains(wrong), "{text}: {error}");
            assert!(error.hint_text().is_some_and(|is| is.contains(hint)), "{text}: {:?}", error.hint_text());
        }
        for by in ["speed = \"1\"\ncpus = \"0\"", "speed = \"1=80%\""] {
            let both = resolved(&format!("[node.a]\n{by}\ncores = 1\n")).unwrap();
            assert!(to_be_placed(&both, "a").unwrap_err().to_string().contains("`cpus` and `cores`"), "{by}");
        }
    }

    #[test]
    fn members_are_read_and_a_class_has_none_that_runs_already() {
        let text_of = "[node.a]\nspeed = \"25%\"\nexclude-background = true\nmemory = \"2G\"\nexclusive = true\nrun = [\"sleep\", \"9\"]\npids = [7, 8]\nunits = [\"redis\"]\n";
        let specs = resolved(text_of).unwrap();
        assert_eq!(text(specs.clone()).unwrap(), text_of);
        assert_eq!(
            specs["a"].words("a")[1..],
            ["--speed=25%", "--memory=2G", "--exclude-background", "--exclusive"]
        );
        let words: Vec<_> = specs["a"].members().iter().map(ToString::to_string).collect();
        assert_eq!(words, ["`sleep 9`", "process 7", "process 8", "unit redis"]);
        let class = "[class.c]\nspeed = \"30%\"\nrun = [\"a\"]\nmemory = \"1G\"\n[node.w]\nclass = \"c\"\ncount = 2\n";
        let worker = &resolved(class).unwrap()["w2"];
        assert_eq!((worker.members().len(), worker.args("w2").unwrap().memory), (1, Some(1 << 30)));
        assert!(resolved("[class.c]\npids = [7]\n").is_err());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, place, wrong) in [
            ("[node.a]\nspeed = \"25%\"\nsped = \"3\"\n", "line 3", "sped"),
            ("[nodes.a]\nspeed = \"25%\"\n", "line 1", "nodes"),
            ("[node.a]\nspeed = 25\n", "line 2", "string"),
            ("[node.a]\nspeed = \"2\"\n[node.a]\n", "line 3", "duplicate"),
        ] {
            let why = parse(text).unwrap_err().to_string();
            assert!(why.contains(place) && why.contains(wrong), "{text}: {why}");
        }
        let typo = parse("[node.a]\nunit = [\"x\"]\n").unwrap_err();
        assert_eq!(nearest_key(typo.message()), Some("units"));
        assert_eq!(nearest_key(parse("[node.a]\nspeed = 25\n").unwrap_err().message()), None);
        let specs = resolved(
            "[node.none]\ncpus = \"0\"\n[node.both]\nspeed = \"40%\"\ntrace = \"x\"\n[node.a]\nspeed = \"140%\"\n[node.\"../b\"]\nspeed = \"40%\"\n[node.c]\nspeed = \"40%\"\nmethod = \"--kill\"\n",
        );
        for (name, spec) in specs.unwrap() {
            let why = spec.args(&name).unwrap_err().to_string();
            assert!(why.contains(&format!("node `{name}`")), "{why}");
        }
    }
}

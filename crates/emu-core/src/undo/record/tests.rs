use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn text(field: Field<'_>) -> String {
    String::from_utf8(field.bytes().collect()).unwrap()
}

fn path(field: Field<'_>) -> PathBuf {
    OsString::from_vec(field.bytes().collect()).into()
}

impl Step<'_> {
    fn to_undo(self) -> Undo {
        match self {
            Self::File { form, path: file, old, new } => {
                let (path, old, new) = (path(file), text(old), new.fields().map(text).collect());
                match form {
                    Form::Plain => Undo::File { path, old, new },
                    Form::Choice => Undo::Choice { path, old, new },
                }
            }
            Self::Group { path: group, members, return_to } => {
                Undo::Group { path: path(group), members: text(members), return_to: path(return_to) }
            }
            Self::Thaw { file, value } => Undo::Thaw { file: path(file), value: text(value) },
            Self::Continue(Task { pid, starttime }) => Undo::Continue { pid, starttime },
            Self::ContinueAll { members } => Undo::ContinueAll { members: path(members) },
            Self::Continued => Undo::Continued,
            Self::Return { task: Task { pid, starttime }, members } => {
                Undo::Return { pid, starttime, members: path(members) }
            }
            Self::Affinity { task: Task { pid, starttime }, cpus, ours } => Undo::Affinity {
                tid: pid,
                starttime,
                cpus: text(cpus).parse().unwrap(),
                ours: ours.map(|ours| text(ours).parse().unwrap()).unwrap_or_default(),
            },
            Self::Inherited { tasks, since, cpus, ours } => Undo::Inherited {
                tasks: match tasks {
                    TaskSetField::All => TaskSet::All,
                    TaskSetField::Members(members) => TaskSet::Members(path(members)),
                    TaskSetField::DescendantsOf(Task { pid, starttime }) => {
                        TaskSet::DescendantsOf { pid, starttime }
                    }
                },
                since,
                cpus: text(cpus).parse().unwrap(),
                ours: text(ours).parse().unwrap(),
            },
            Self::Kill(Task { pid, starttime }) => Undo::Kill { pid, starttime },
        }
    }
}

/// Paths of any bytes but NUL, with more characters that need escapes than chance gives.
pub(crate) fn any_path() -> impl Strategy<Value = PathBuf> {
    let byte = prop_oneof![Just(b'\t'), Just(b'\n'), Just(b'\\'), Just(b'/'), 1u8..];
    vec(byte, 0..60).prop_map(|bytes| OsString::from_vec(bytes).into())
}

pub(crate) fn any_undo() -> impl Strategy<Value = Undo> {
    let value = || prop_oneof!["[a-z0-9]{0,9}", "([a-z\\\\][\\t\\n\\\\tn]{0,9}[a-z\\\\])?", "\\PC{0,9}"];
    let value = move || value().prop_map(|text| text.trim().to_owned());
    let task = || (1..Pid::MAX, any::<u64>());
    let cpus = |least: usize| {
        proptest::collection::btree_set(0..1024usize, least..9)
            .prop_map(|cpus| cpus.into_iter().collect::<CpuList>())
    };
    prop_oneof![
        (any_path(), value(), vec(value(), 0..4)).prop_map(|(path, old, new)| Undo::File { path, old, new }),
        (any_path(), value(), vec(value(), 0..4)).prop_map(|(path, old, new)| Undo::Choice {
            path,
            old,
            new
        }),
        (any_path(), value(), any_path()).prop_map(|(path, members, return_to)| Undo::Group {
            path,
            members,
            return_to
        }),
        (any_path(), value()).prop_map(|(file, value)| Undo::Thaw { file, value }),
        task().prop_map(|(pid, starttime)| Undo::Continue { pid, starttime }),
        any_path().prop_map(|members| Undo::ContinueAll { members }),
        Just(Undo::Continued),
        (task(), any_path()).prop_map(|((pid, starttime), members)| Undo::Return { pid, starttime, members }),
        (task(), cpus(1), cpus(0)).prop_map(|((tid, starttime), cpus, ours)| Undo::Affinity {
            tid,
            starttime,
            cpus,
            ours
        }),
        (task(), any_path(), any::<bool>(), cpus(1), cpus(1)).prop_map(
            |((pid, starttime), members, is_group, cpus, ours)| Undo::Inherited {
                tasks: if is_group {
                    TaskSet::Members(members)
                } else {
                    TaskSet::DescendantsOf { pid, starttime }
                },
                since: starttime,
                cpus,
                ours
            }
        ),
        task().prop_map(|(pid, starttime)| Undo::Kill { pid, starttime }),
    ]
}

proptest! {
    #[test]
    fn records_round_trip_whatever_bytes_are_in_them(undo in any_undo()) {
        let line = undo.line();
        let (newline, text) = line.split_last().unwrap();
        prop_assert_eq!(*newline, b'\n');
        prop_assert!(!text.contains(&b'\n'));
        prop_assert_eq!(Step::parse(text).unwrap().to_undo(), undo);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(line in vec(any::<u8>(), 0..200)) {
        if let Some(step) = Step::parse(&line) {
            let _ = format!("{step:?}");
        }
    }
}

#[test]
fn lines_that_are_no_records_are_refused() {
    for line in [
        "",
        "file",
        "file\t/sys/a",
        "thaw\t/sys/a",
        "thaw\t/sys/a\t0\textra",
        "kill\t1",
        "kill\t0\t1",
        "kill\t-1\t1",
        "kill\t+1\t1",
        "kill\t99999999999\t1",
        "kill\t1\t",
        "kill\t1\t1\t1",
        "File\t/sys/a\tb",
        "thaw\t/sys/a\\\t0",
        "thaw\t/sys/\\x\t0",
        "done",
        "\t",
        "continue\t1\t1 ",
        "continued\t1",
        "affinity\t1\t1",
        "affinity\t1\t1\t0\t0\t0",
        "inherited-in\t/sys/a\t1\t0",
        "inherited-of\t1\t1\t1\t0",
    ] {
        assert!(Step::parse(line.as_bytes()).is_none(), "{line:?}");
    }
}

#[test]
fn no_new_value_differs_from_an_empty_new_value() {
    let none = Undo::File { path: "/sys/a".into(), old: "1".into(), new: vec![] };
    let empty = Undo::File { path: "/sys/a".into(), old: "1".into(), new: vec![String::new()] };
    assert_eq!(none.line(), b"file\t/sys/a\t1\n");
    assert_eq!(empty.line(), b"file\t/sys/a\t1\t\n");
    for undo in [none, empty] {
        let line = undo.line();
        assert_eq!(Step::parse(&line[..line.len() - 1]).unwrap().to_undo(), undo);
    }
}

//! What each test came to, from the JUnit XML that a run has written.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use emu_core::{Error, ErrorKind, Result, input_file};
use roxmltree::{Document, Node};

/// What a test came to. One that was run several times has failed if it has failed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Came {
    Skipped,
    Passed,
    Failed,
}

pub(super) type Tests = BTreeMap<String, Test>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) came: Came,
    /// The first line of what it failed with.
    pub(super) message: Option<String>,
}

/// The files that the runs write, and how they were when they were looked at last.
#[derive(Debug)]
pub(super) struct Reports {
    paths: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Stamp>,
}

/// Changes whenever a file is written.
type Stamp = [i64; 6];

impl Reports {
    /// Looks at what is there already: it is not of any run.
    pub(super) fn new(paths: &[PathBuf]) -> Result<Self> {
        let mut reports = Self { paths: paths.to_vec(), seen: BTreeMap::new() };
        reports.written()?;
        Ok(reports)
    }

    pub(super) fn are_wanted(&self) -> bool {
        !self.paths.is_empty()
    }

    /// The tests in what was written since the last look, `None` where no file of it can be used; and what is wrong with
    /// those that cannot.
    pub(super) fn read(&mut self) -> (Option<Tests>, Vec<Error>) {
        let written = match self.written() {
            Ok(written) => written,
            Err(error) => return (None, vec![error]),
        };
        let (mut all, mut broken) = (None, Vec::new());
        for file in written {
            match read(&file) {
                Ok(tests) => {
                    let all = all.get_or_insert_with(Tests::new);
                    for (name, test) in tests {
                        add(all, name, test);
                    }
                }
                Err(error) => broken.push(error),
            }
        }
        (all, broken)
    }

    fn written(&mut self) -> Result<Vec<PathBuf>> {
        let mut written = Vec::new();
        for path in &self.paths {
            for file in files(path)? {
                let Some(stamp) = stamp(&file)? else { continue };
                if self.seen.insert(file.clone(), stamp) != Some(stamp) {
                    written.push(file);
                }
            }
        }
        Ok(written)
    }
}

/// The file itself, or all XML in a folder and those below it; links to folders are not followed, as they may lead in a circle.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut files, mut folders) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        let failed = |e| Error::file("read", &folder, e);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let file = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(file);
            } else if file.extension().is_some_and(|extension| extension == "xml") {
                files.push(file);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn stamp(file: &Path) -> Result<Option<Stamp>> {
    match fs::metadata(file) {
        Ok(of) => Ok(Some([
            of.ino() as i64,
            of.size() as i64,
            of.mtime(),
            of.mtime_nsec(),
            of.ctime(),
            of.ctime_nsec(),
        ])),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::file("read", file, e).with_kind(ErrorKind::Usage)),
    }
}

fn read(file: &Path) -> Result<Tests> {
    let failed = |e| Error::file("read", file, e).with_kind(ErrorKind::Usage);
    let text = input_file::read(file, input_file::TRACE_MAX)
        .map_err(|e| failed(e).hint("name a file of JUnit XML in UTF-8"))?;
    parse(&text).map_err(|Broken { line, what }| {
        Error::usage(format!("cannot use the JUnit XML in {}, line {line}: {what}", file.display()))
            .hint("name files that the command writes anew in each run, with <testsuite> or <testsuites>")
    })
}

/// A test that is there already has come to the worse of the two.
fn add(tests: &mut Tests, name: String, test: Test) {
    match tests.entry(name) {
        Entry::Occupied(mut known) if known.get().came < test.came => drop(known.insert(test)),
        Entry::Occupied(_) => {}
        Entry::Vacant(new) => drop(new.insert(test)),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Broken {
    line: u32,
    what: String,
}

fn parse(text: &str) -> Result<Tests, Broken> {
    let document = Document::parse(text).map_err(|e| Broken { line: e.pos().row, what: e.to_string() })?;
    let broken = |node: Node<'_, '_>, what: String| {
        Err(Broken { line: document.text_pos_at(node.range().start).row, what })
    };
    let root = document.root_element();
    if !matches!(root.tag_name().name(), "testsuites" | "testsuite") {
        return broken(root, format!("<{}> where <testsuites> is expected", root.tag_name().name()));
    }
    let mut tests = Tests::new();
    for case in root.descendants().filter(|node| node.has_tag_name("testcase")) {
        let Some(name) = case.attribute("name") else {
            return broken(case, "a <testcase> without a name".into());
        };
        let suite = case.ancestors().find(|node| node.has_tag_name("testsuite"));
        let class = case.attribute("classname").or_else(|| suite?.attribute("name"));
        let name =
            class.filter(|class| !class.is_empty()).map_or(name.into(), |class| format!("{class}::{name}"));
        add(&mut tests, name, test(case));
    }
    Ok(tests)
}

fn test(case: Node<'_, '_>) -> Test {
    let child = |names: &[&str]| case.children().find(|node| names.contains(&node.tag_name().name()));
    // What fails and then passes on a retry has failed once; Surefire and nextest write it so.
    if let Some(failure) = child(&["failure", "error", "flakyFailure", "flakyError"]) {
        let said = failure.attribute("message").filter(|said| !said.trim().is_empty()).or(failure.text());
        let message = said.and_then(|said| said.trim().lines().next()).map(str::to_owned);
        return Test { came: Came::Failed, message };
    }
    // GoogleTest has no element for it.
    let is_skipped = child(&["skipped"]).is_some() || case.attribute("status") == Some("notrun");
    Test { came: if is_skipped { Came::Skipped } else { Came::Passed }, message: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_by_class_and_name() {
        let tests = parse(r#"<?xml version="1.0"?>
            <testsuites><testsuite name="suite">
              <testcase classname="a.B" name="passes" time="0.1"/>
              <testcase name="of the suite"><skipped/></testcase>
              <testcase classname="a.B" name="fails"><failure message="too late&#10;by 3 s">trace</failure></testcase>
              <testcase classname="a.B" name="errs"><error>
                 Timeout &gt;1.0s
                 trace</error></testcase>
              <testcase classname="a.B" name="retried"><flakyFailure message="too early"/></testcase>
              <testcase classname="a.B" name="retries"><flakyError type="E">gone</flakyError></testcase>
              <testcase classname="" name="again" status="notrun"/><testcase classname="" name="again"/>
              <testcase classname="" name="again"><failure/></testcase><testcase classname="" name="again"/>
            </testsuite></testsuites>"#)
        .unwrap();
        let told: Vec<_> =
            tests.iter().map(|(name, test)| (&**name, test.came, test.message.as_deref())).collect();
        assert_eq!(
            told,
            [
                ("a.B::errs", Came::Failed, Some("Timeout >1.0s")),
                ("a.B::fails", Came::Failed, Some("too late")),
                ("a.B::passes", Came::Passed, None),
                ("a.B::retried", Came::Failed, Some("too early")),
                ("a.B::retries", Came::Failed, Some("gone")),
                ("again", Came::Failed, None),
                ("suite::of the suite", Came::Skipped, None),
            ]
        );
    }

    #[test]
    fn what_is_broken_is_told_with_its_line() {
        for (text, line, part) in [
            ("", 1, ""),
            ("<testsuite>\n<testcase name='a'>\n</testsuite>", 3, "testcase"),
            ("<html>\n</html>", 1, "<html>"),
            ("<testsuite>\n<testcase/></testsuite>", 2, "without a name"),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]>\n<testsuite/>", 1, "DTD"),
        ] {
            let Broken { line: told, what } = parse(text).expect_err(text);
            assert!(told == line && what.contains(part), "{text}: {told}, {what}");
        }
    }

    /// The names of the tests, and how many files are broken.
    fn read(reports: &mut Reports) -> (Option<Vec<String>>, usize) {
        let (tests, broken) = reports.read();
        (tests.map(|tests| tests.into_keys().collect()), broken.len())
    }

    #[test]
    fn only_what_a_run_has_written_is_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, test: &str| {
            let text = format!("<testsuite><testcase name='{test}'/></testsuite>");
            fs::write(folder.path().join(name), text).unwrap();
        };
        write("old.xml", "old");
        write("other.txt", "other");
        let mut reports = Reports::new(&[folder.path().into(), folder.path().join("none")]).unwrap();
        assert_eq!(read(&mut reports), (None, 0));
        write("new.xml", "new");
        assert_eq!(read(&mut reports), (Some(vec!["new".into()]), 0));
        assert_eq!(read(&mut reports), (None, 0));
    }

    #[test]
    fn a_folder_has_what_is_below_it_but_for_linked_folders() {
        let dir = tempfile::tempdir().unwrap();
        let nested = dir.path().join("test/deep");
        fs::create_dir_all(&nested).unwrap();
        std::os::unix::fs::symlink(dir.path(), nested.join("circle")).unwrap();
        for file in ["1.xml", "test/deep/2.xml", "test/notes.txt"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let found = files(dir.path()).unwrap();
        assert_eq!(found, ["1.xml", "test/deep/2.xml"].map(|file| dir.path().join(file)));
    }

    #[test]
    fn what_is_right_stays_beside_what_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let mut reports = Reports::new(&[folder.path().into()]).unwrap();
        let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
        write("a.xml", b"<testsuite><testcase name='a'/></testsuite>");
        write("b.xml", b"<testsuite><testcase name='b'/><testcase/></testsuite>");
        write("c.xml", b"<testsuite><testcase name='c");
        write("d.xml", b"<testsuite><testcase name='d'/></testsuite>");
        write("e.xml", b"<testsuite><testcase name='\xff'/></testsuite>");
        assert_eq!(read(&mut reports), (Some(vec!["a".into(), "d".into()]), 3));
        write("c.xml", b"<tests");
        assert_eq!(read(&mut reports), (None, 1));
    }
}

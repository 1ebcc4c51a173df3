//! What each test came to at each speed, as one JUnit XML file: a suite for each speed.

use std::io;

use quick_xml::Writer;

use super::result::{Report, Tally};

/// The class of the test that stands for the command.
const CLASS: &str = "emu ci";

pub(super) fn junit(report: &Report) -> io::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.create_element("testsuites").with_attribute(("name", CLASS)).write_inner_content(|writer| {
        (0..report.speeds.len()).try_for_each(|speed| suite(writer, report, speed))
    })?;
    let mut text = String::from_utf8(writer.into_inner()).map_err(io::Error::other)?;
    text.push('\n');
    Ok(text)
}

fn suite(writer: &mut Writer<Vec<u8>>, report: &Report, speed: usize) -> io::Result<()> {
    let (Some(name), Some(&whole)) = (report.speeds.get(speed), report.by_speed.get(speed)) else {
        return Ok(());
    };
    let tests = report.tests.iter().filter_map(|(name, judged)| {
        let (class, name) = name.rsplit_once("::").unwrap_or(("", name));
        Some(Case { class, name, tally: *judged.by_speed.get(speed)?, message: judged.message.as_deref() })
    });
    let command = Case { class: CLASS, name: "command", tally: whole, message: None };
    let cases: Vec<_> =
        std::iter::once(command).chain(tests).filter(|case| case.tally != Tally::default()).collect();
    let count = |is: fn(&Tally) -> bool| cases.iter().filter(|case| is(&case.tally)).count().to_string();
    let wall: u64 = report.runs.iter().filter(|run| run.speed == *name).map(|run| run.wall_ns).sum();
    writer
        .create_element("testsuite")
        .with_attribute(("name", format!("at {name}").as_str()))
        .with_attribute(("tests", cases.len().to_string().as_str()))
        .with_attribute(("failures", count(|tally| tally.fails() > 0).as_str()))
        .with_attribute(("skipped", count(|tally| tally.runs() == 0).as_str()))
        .with_attribute(("time", format!("{:.3}", wall as f64 / 1e9).as_str()))
        .write_inner_content(|writer| cases.iter().try_for_each(|case| case.write(writer, name)))?;
    Ok(())
}

struct Case<'a> {
    class: &'a str,
    name: &'a str,
    tally: Tally,
    message: Option<&'a str>,
}

impl Case<'_> {
    fn write(&self, writer: &mut Writer<Vec<u8>>, speed: &str) -> io::Result<()> {
        // The speed is part of the class: services tell tests of one file apart by class and name.
        let class =
            [self.class, speed].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("@");
        let case = writer
            .create_element("testcase")
            .with_attribute(("classname", class.as_str()))
            .with_attribute(("name", self.name));
        let (fails, runs) = (self.tally.fails(), self.tally.runs());
        if runs == 0 {
            case.write_inner_content(|writer| writer.create_element("skipped").write_empty().map(drop))?;
        } else if fails > 0 {
            let why = self.message.map_or(String::new(), |message| format!(": {message}"));
            let message = format!("fails in {fails} of {runs} runs at {speed}{why}");
            case.write_inner_content(|writer| {
                let failure = writer.create_element("failure").with_attribute(("message", message.as_str()));
                failure.write_empty().map(drop)
            })?;
        } else {
            case.write_empty()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::super::junit::Came;
    use super::super::result::Outcome;
    use super::super::result::testing::{add, report};
    use super::*;

    #[test]
    fn each_speed_is_a_suite_of_its_own() {
        let mut report = report();
        add(&mut report, 0, Outcome::Passed, &[("suite::a<b", Came::Passed), ("late", Came::Skipped)]);
        add(&mut report, 1, Outcome::Failed, &[("suite::a<b", Came::Failed)]);
        add(&mut report, 1, Outcome::Passed, &[("suite::a<b", Came::Passed)]);
        let text = junit(&report).unwrap();
        let document = Document::parse(&text).unwrap();
        let suites: Vec<_> =
            document.root_element().children().filter(|node| node.has_tag_name("testsuite")).collect();
        let told = |name| suites.iter().map(|suite| suite.attribute(name).unwrap()).collect::<Vec<_>>();
        assert_eq!(told("name"), ["at 100%", "at 25%"]);
        assert_eq!([told("tests"), told("failures"), told("skipped")], [["3", "2"], ["0", "2"], ["1", "0"]]);
        assert_eq!(told("time"), ["1.500", "3.000"]);
        let failure = suites[1].descendants().rfind(|node| node.has_tag_name("failure")).unwrap();
        assert_eq!(failure.attribute("message"), Some("fails in 1 of 2 runs at 25%: too <late>"));
        let case = failure.parent().unwrap();
        assert_eq!([case.attribute("classname"), case.attribute("name")], [Some("suite@25%"), Some("a<b")]);
    }
}

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::host::Host;
use crate::roots::Roots;

fn trace(lines: &str) -> Result<Trace> {
    format!("time_s,cpu,speed\n{}", lines.replace(' ', "\n")).parse()
}

#[test]
fn a_trace_is_read_line_by_line() {
    let text = "\u{feff}# of a laptop\r\ntime_s, cpu, speed\r\n\r\n0,*,100%\r\n0.01,0-1,40%\r\n0.01,2,1.2GHz\r\n3,*,end\r\n";
    let trace: Trace = text.parse().unwrap();
    assert_eq!((trace.steps(), trace.length()), (2, Some(Duration::from_secs(3))));
    assert_eq!(trace.shortest_step(), Some(Duration::from_millis(10)));
    assert_eq!(trace.cpus().unwrap().to_string(), "0-2");
    let one = self::trace("0,*,0.5").unwrap();
    assert_eq!((one.cpus(), one.shortest_step()), (None, None));
}

#[test]
fn a_load_leaves_the_rest() {
    let speeds = |load: &str| format!("time_s,cpu,load\n0,*,{load}").parse::<Trace>();
    assert_eq!(speeds("30%").unwrap(), trace("0,*,0.7").unwrap());
    assert_eq!(speeds("0").unwrap(), trace("0,*,1").unwrap());
    for load in ["100%", "-1%", "NaN", "inf", "1GHz", ""] {
        assert_eq!(speeds(load).unwrap_err().kind(), ErrorKind::Usage, "{load}");
    }
}

#[test]
fn what_is_no_trace_is_told_by_its_line() {
    for (lines, line, why) in [
        ("", 1, "nothing follows"),
        ("1,*,40%", 1, "begin at time 0"),
        ("0,*,40% 0.5,*,50% 0.2,*,60%", 4, "before the line above"),
        ("0,*,40% 0.005,*,50%", 3, "shorter than 10 ms"),
        ("0,*,40% NaN,*,50%", 3, "no time"),
        ("0,*,40% 1e300,*,50%", 3, "no time"),
        ("0,*,40% -1,*,50%", 3, "no time"),
        ("0,*,140%", 2, "140%"),
        ("0,*,", 2, "bad speed"),
        ("0,*", 2, "three fields"),
        ("0,,40%", 2, "CPU"),
        ("0,x,40%", 2, "CPU"),
        ("0,*,40% 1,0,end", 3, "for all CPUs"),
        ("0,*,40% 0,*,end", 3, "begin of its step"),
        ("0,*,40% 1,*,end 2,*,50%", 4, "follows the end"),
    ] {
        let told = trace(lines).unwrap_err().to_string();
        assert!(told.contains(&format!("line {line}:")) && told.contains(why), "{lines}: {told}");
    }
    assert!("time,speed\n0,40%".parse::<Trace>().unwrap_err().to_string().contains("columns"));
    assert!("".parse::<Trace>().unwrap_err().to_string().contains("empty"));
}

#[test]
fn a_trace_must_fit_its_zone() {
    let host = Host::detect(&Roots::system()).unwrap();
    let first = host.allowed.iter().take(1).collect::<CpuList>();
    let player = |lines: &str, at_end| Player::new(&host, trace(lines).unwrap(), Some(&first), at_end);
    let cpu = first.to_string();
    assert!(player(&format!("0,{cpu},40%"), AtEnd::Hold).is_ok());
    for (lines, at_end, why) in [
        ("0,*,40% 1,1023,50%", AtEnd::Hold, "names CPUs 1023"),
        (&format!("0,*,40% 1,{cpu},50%"), AtEnd::Loop, "where it ends"),
        ("0,*,40%", AtEnd::Full, "where it ends"),
        ("0,*,40% 1,*,90GHz", AtEnd::Hold, "its own clock"),
    ] {
        let told = player(lines, at_end).unwrap_err().to_string();
        assert!(told.contains(why), "{lines}: {told}");
    }
}

#[test]
fn extremes_are_those_of_all_steps() {
    let host = Host::detect(&Roots::system()).unwrap();
    let first = host.allowed.iter().take(1).collect::<CpuList>();
    let shares = |at_end| {
        let trace = trace("0,*,40% 1,*,10% 2,*,70% 3,*,end").unwrap();
        let player = Player::new(&host, trace, Some(&first), at_end).unwrap();
        player
            .extremes()
            .unwrap()
            .map(|targets| Speed::Share(targets.values().next().unwrap().share).to_string())
    };
    assert_eq!(shares(AtEnd::Loop), ["10%", "70%"]);
    assert_eq!(shares(AtEnd::Full), ["10%", "100%"]);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "(time_s,cpu,(speed|load)\n)?([0-9.*e,%-]|end|\n|\\PC){0,80}") {
        let _ = text.parse::<Trace>();
    }
}

//! Owns where `run` looks for its own options: before the script's name, and behind it among the script's arguments. The
//! parser calls it before clap, which cannot know that `--report` takes a name only when one follows.

use crate::reports::ends_with;
use std::ffi::OsString;
use std::path::Path;

/// What a report's file may end with.
pub(crate) const REPORT_ENDS: [&str; 4] = ["html", "htm", "json", "txt"];

/// Brings the arguments behind `run` in order: options of `run`, the script, `--`, and what is the script's.
pub(super) fn sorted(args: Vec<OsString>) -> Vec<OsString> {
    let (mut options, mut rest) = (Vec::new(), Vec::new());
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            // Whatever follows is the script's, as it is.
            Some("--") => {
                rest.extend(args);
                break;
            }
            Some("--report") => {
                let file = args.next_if(|next| ends_with(Path::new(next), &REPORT_ENDS));
                options.push(match file {
                    Some(file) => joined("--report=", &file),
                    None => arg,
                });
            }
            Some("--trace") => {
                options.push(arg);
                options.extend(args.next());
            }
            Some(text) if text.starts_with("--report=") || text.starts_with("--trace=") => {
                options.push(arg);
            }
            // Only before the script: it may have a store of its own.
            Some("--store") if rest.is_empty() => {
                options.push(arg);
                options.extend(args.next());
            }
            // Before the script an unknown option is ours to refuse.
            Some(text) if rest.is_empty() && text.starts_with('-') => options.push(arg),
            _ => rest.push(arg),
        }
    }
    if rest.len() > 1 {
        rest.insert(1, "--".into());
    }
    options.extend(rest);
    options
}

fn joined(option: &str, file: &OsString) -> OsString {
    let mut joined = OsString::from(option);
    joined.push(file);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_run_are_found_on_both_sides_of_the_script() {
        for (given, expected) in [
            ("a.py --rows 5", "a.py -- --rows 5"),
            ("a.py --help", "a.py -- --help"),
            ("--help", "--help"),
            ("--report a.py", "--report a.py"),
            ("--report r.html a.py x", "--report=r.html a.py -- x"),
            ("a.py --report", "--report a.py"),
            ("a.py --report r.html x", "--report=r.html a.py -- x"),
            (
                "a.py x --report --trace t.json y",
                "--report --trace t.json a.py -- x y",
            ),
            ("a.py --report=r.txt", "--report=r.txt a.py"),
            ("a.py -- --report", "a.py -- --report"),
            ("--store d --fresh a.py x", "--store d --fresh a.py -- x"),
            ("a.py --store d", "a.py -- --store d"),
            ("--strange a.py", "--strange a.py"),
        ] {
            let args = given.split(' ').map(OsString::from).collect();
            let found: Vec<_> = sorted(args)
                .into_iter()
                .map(|it| it.into_string().unwrap())
                .collect();
            assert_eq!(found.join(" "), expected, "{given}");
        }
    }
}

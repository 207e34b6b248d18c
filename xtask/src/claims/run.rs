//! Runs a claim's check and judges it.

use std::collections::HashMap;
use std::process::{Command, Output};

use serde_json::Value;

use super::expression::{self, Comparison};
use super::file::{Check, Claim, Limit};
use crate::workspace;

/// What became of a claim.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// The bar is kept.
    Held(Shown),
    /// The bar is not kept, or the check could not run.
    Missed(Shown),
    /// A person looked, and this is what was seen.
    Seen(Shown),
}

impl Verdict {
    /// Whether the acceptance fails because of this claim.
    pub fn is_missed(&self) -> bool {
        matches!(self, Self::Missed(_))
    }
}

/// The table's two middle columns.
#[derive(Debug, PartialEq)]
pub struct Shown {
    /// Our figure, or what happened.
    pub ours: String,
    /// What was asked.
    pub bar: String,
    /// What bounds a figure that misses its bar, where the claim says so.
    pub limit: Option<String>,
}

impl Shown {
    fn new(ours: impl Into<String>, bar: impl Into<String>) -> Shown {
        Shown {
            ours: ours.into(),
            bar: bar.into(),
            limit: None,
        }
    }
}

/// No check may take longer: a hang is a miss, not a wait.
const LIMIT_S: &str = "3600";

/// Runs checks; a command that several claims share runs once.
#[derive(Default)]
pub struct Runner {
    outputs: HashMap<String, Result<Value, String>>,
}

impl Runner {
    /// Runs the check of one claim.
    pub fn judge(&mut self, claim: &Claim) -> Verdict {
        match &claim.check {
            Check::Measured {
                command,
                figure,
                bar,
                limit,
            } => self.compare(command, (figure, bar), limit.as_ref()),
            Check::Tests { tests, environment } => judge_tests(tests, environment),
            Check::Command { command } => judge_command(command),
            Check::ByEye { look, seen } => judge_by_eye(look, seen),
        }
    }

    fn compare(
        &mut self,
        command: &str,
        (figure, bar): (&str, &str),
        limit: Option<&Limit>,
    ) -> Verdict {
        let output = self
            .outputs
            .entry(command.to_owned())
            .or_insert_with(|| json_of(command));
        let json = match output {
            Ok(json) => json,
            Err(reason) => return missed(reason.clone(), bar),
        };
        let compared = expression::compare(figure, bar, json);
        let shown = |it: &Comparison| {
            Shown::new(number(it.figure), format!("{bar} = {}", number(it.limit)))
        };
        match (compared, limit) {
            (Err(reason), _) => missed(reason, bar),
            (Ok(it), _) if it.holds => Verdict::Held(shown(&it)),
            (Ok(it), None) => Verdict::Missed(shown(&it)),
            (Ok(it), Some(limit)) => Verdict::Missed(Shown {
                limit: Some(told(limit, json)),
                ..shown(&it)
            }),
        }
    }
}

/// What bounds a figure, and whether that is the reason.
fn told(limit: &Limit, json: &Value) -> String {
    match expression::compare(&limit.figure, &limit.bar, json) {
        Err(reason) => reason,
        Ok(it) => {
            let misses = if it.holds {
                "which keeps the bar"
            } else {
                "which misses the bar too"
            };
            let (figure, asked) = (number(it.figure), number(it.limit));
            format!("{figure} for {asked}: {}, {misses}", limit.is)
        }
    }
}

fn json_of(command: &str) -> Result<Value, String> {
    let text = succeed(command, &[])?;
    let whole = serde_json::from_str(&text);
    let last_line = || {
        text.trim_end()
            .lines()
            .next_back()
            .map(serde_json::from_str)
    };
    match (whole, last_line()) {
        (Ok(json), _) | (Err(_), Some(Ok(json))) => Ok(json),
        (Err(trouble), _) => Err(format!("the output is not JSON: {trouble}")),
    }
}

fn judge_command(command: &str) -> Verdict {
    match succeed(command, &[]) {
        Ok(_) => Verdict::Held(Shown::new("exit 0", "exit 0")),
        Err(reason) => missed(reason, "exit 0"),
    }
}

fn judge_tests(tests: &str, environment: &[(String, String)]) -> Verdict {
    match succeed(&format!("cargo test --release {tests}"), environment) {
        Err(reason) => missed(reason, ALL_PASS),
        Ok(output) => judge_passed(tests_passed(&output)),
    }
}

const ALL_PASS: &str = "all pass, one at least";

/// Cargo is content with a filter that matches nothing; an acceptance is not.
fn judge_passed(passed: u64) -> Verdict {
    match passed {
        0 => missed("no test has this name".to_owned(), ALL_PASS),
        passed => Verdict::Held(Shown::new(format!("{passed} passed"), ALL_PASS)),
    }
}

fn judge_by_eye(look: &str, seen: &str) -> Verdict {
    match seen {
        "" => missed("nobody has looked yet".to_owned(), look),
        seen => Verdict::Seen(Shown::new(seen, look)),
    }
}

/// The sum of the "N passed" that `cargo test` prints, one per test binary.
fn tests_passed(output: &str) -> u64 {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Standard output of a command that has exited with 0, or why it did not.
fn succeed(command: &str, environment: &[(String, String)]) -> Result<String, String> {
    let run = Command::new("timeout")
        .args([LIMIT_S, "bash", "-c", command])
        .current_dir(workspace::root())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .output();
    let output = run.map_err(|trouble| format!("cannot start: {trouble}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{}: {}", output.status, last_words(&output)))
}

/// The last line that says something: errors stand at the end.
fn last_words(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    let plain = String::from_utf8_lossy(&output.stdout);
    let last = |text: &str| {
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(line.trim().to_owned())
    };
    last(&error).or_else(|| last(&plain)).unwrap_or_default()
}

fn missed(ours: String, bar: &str) -> Verdict {
    Verdict::Missed(Shown::new(ours, bar))
}

fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100_000.0 => format!("{value:.3e}"),
        large if large >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(check: Check) -> Verdict {
        Runner::default().judge(&Claim {
            id: "id".to_owned(),
            point: "point".to_owned(),
            check,
        })
    }

    fn measured(command: &str, bar: &str) -> Verdict {
        judge(Check::Measured {
            command: command.to_owned(),
            figure: "ns".to_owned(),
            bar: bar.to_owned(),
            limit: Some(Limit {
                figure: "bare".to_owned(),
                bar: bar.to_owned(),
                is: "a loop".to_owned(),
            }),
        })
    }

    /// A limit says why a point is missed, and never makes one held.
    #[test]
    fn what_bounds_a_figure_is_told_where_it_is_missed() {
        let said = |bare: u32, bar: &str| {
            let print = format!("echo '{{\"ns\": 30, \"bare\": {bare}}}'");
            match measured(&print, bar) {
                Verdict::Held(shown) => (true, shown.limit),
                Verdict::Missed(shown) | Verdict::Seen(shown) => (false, shown.limit),
            }
        };
        let (bound, free) = (said(20, "<= 10"), said(5, "<= 10"));
        assert_eq!(
            bound,
            (
                false,
                Some("20.000 for 10.000: a loop, which misses the bar too".into())
            )
        );
        assert_eq!(
            free,
            (
                false,
                Some("5.000 for 10.000: a loop, which keeps the bar".into())
            )
        );
        assert_eq!(said(20, "<= 40"), (true, None));
    }

    #[test]
    fn figures_are_compared_with_their_bars() {
        let print = "echo some text; echo '{\"ns\": 30, \"call\": 2}'";
        assert!(matches!(measured(print, "<= 25 * call"), Verdict::Held(_)));
        assert!(measured(print, "<= 10 * call").is_missed());
    }

    #[test]
    fn what_cannot_run_is_missed_with_its_reason() {
        let absent = measured("echo gone >&2; exit 3", "<= 1");
        let expected = "exit status: 3: gone";
        assert!(matches!(absent, Verdict::Missed(Shown { ours, .. }) if ours == expected));
        assert!(measured("echo no figures", "<= 1").is_missed());
    }

    #[test]
    fn exit_codes_count() {
        let run = |command: &str| {
            judge(Check::Command {
                command: command.to_owned(),
            })
        };
        assert!(matches!(run("true"), Verdict::Held(_)));
        assert!(run("false").is_missed());
    }

    #[test]
    fn a_test_filter_that_matches_nothing_is_not_a_pass() {
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 9 filtered out";
        assert!(judge_passed(tests_passed(none)).is_missed());
        let some = "test result: ok. 2 passed; 0 failed\n\ntest result: ok. 3 passed; 0 failed";
        assert_eq!(tests_passed(some), 5);
    }

    #[test]
    fn nobody_looked_is_missed() {
        assert!(judge_by_eye("at the page", "").is_missed());
        assert!(!judge_by_eye("at the page", "reads well").is_missed());
    }
}

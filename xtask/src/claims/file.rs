//! The claim files: what a point says and how it is checked.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

use serde::Deserialize;

use crate::workspace;

/// One point of the acceptance.
#[derive(Debug)]
pub struct Claim {
    /// Names the claim on the command line.
    pub id: String,
    /// The point in words.
    pub point: String,
    /// How it is checked.
    pub check: Check,
}

/// How a claim is checked. The keys that are present decide.
#[derive(Debug, PartialEq)]
pub enum Check {
    /// A shell command whose last line of output is JSON, compared with the bar. A bench is one.
    Measured {
        /// Run from the workspace's root.
        command: String,
        /// An expression over the JSON.
        figure: String,
        /// A comparison and an expression over the same JSON.
        bar: String,
        /// What bounds the figure, measured in the same run. It does not change the verdict: a missed point is missed.
        limit: Option<Limit>,
    },
    /// `cargo test --release TESTS`: all pass, and at least one exists.
    Tests {
        /// Options and filter of `cargo test`.
        tests: String,
        /// Variables of the environment, for loom's `RUSTFLAGS` and the like.
        environment: Vec<(String, String)>,
    },
    /// A shell command whose exit code counts.
    Command {
        /// Run from the workspace's root.
        command: String,
    },
    /// A person judges; the table says what was looked at.
    ByEye {
        /// What to look at.
        look: String,
        /// What was seen, and when. Empty until somebody looked: the claim is missed.
        seen: String,
    },
}

/// The nearest that a bare loop of the bench comes to a point: shown beside a point that is missed.
#[derive(Debug, PartialEq)]
pub struct Limit {
    /// An expression over the JSON.
    pub figure: String,
    /// A comparison and an expression over the same JSON: what the point asks, of the loop.
    pub bar: String,
    /// What the loop is.
    pub is: String,
}

/// A claim as it stands in the file: every key of every kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    point: String,
    bench: Option<String>,
    command: Option<String>,
    tests: Option<String>,
    look: Option<String>,
    figure: Option<String>,
    bar: Option<String>,
    limit: Option<String>,
    limit_bar: Option<String>,
    limit_is: Option<String>,
    #[serde(default)]
    environment: Vec<(String, String)>,
    #[serde(default)]
    seen: String,
}

impl Entry {
    fn into_claim(self) -> Result<Claim, String> {
        let command = self.command.or(self.bench.as_deref().map(bench_command));
        let limit = match (self.limit, self.limit_bar, self.limit_is, &self.bar) {
            (None, None, None, _) => None,
            (Some(figure), limit_bar, Some(is), Some(bar)) => Some(Limit {
                figure,
                bar: limit_bar.unwrap_or_else(|| bar.clone()),
                is,
            }),
            _ => return Err(format!("the keys of {:?} make no limit", self.id)),
        };
        let check = match (command, self.figure, self.bar, self.tests, self.look) {
            (Some(command), Some(figure), Some(bar), None, None) => Check::Measured {
                command,
                figure,
                bar,
                limit,
            },
            (Some(command), None, None, None, None) if self.bench.is_none() => {
                Check::Command { command }
            }
            (None, None, None, Some(tests), None) => Check::Tests {
                tests,
                environment: self.environment,
            },
            (None, None, None, None, Some(look)) => Check::ByEye {
                look,
                seen: self.seen,
            },
            _ => return Err(format!("the keys of {:?} make no check", self.id)),
        };
        Ok(Claim {
            id: self.id,
            point: self.point,
            check,
        })
    }
}

/// Benches run through the installed command, as a user would run them.
fn bench_command(bench: &str) -> String {
    let installed = ".venv/bin/brambling".to_owned();
    let brambling = std::env::var("BRAMBLING_COMMAND").unwrap_or(installed);
    format!("{brambling} bench {bench} --json")
}

#[derive(Deserialize)]
struct ClaimFile {
    claim: Vec<Entry>,
}

/// Reads one claim file.
pub fn load_file(name: &str) -> Result<Vec<Claim>, Box<dyn Error>> {
    let path = workspace::root().join(format!("bench/claims/{name}.toml"));
    let text = fs::read_to_string(&path).map_err(|trouble| {
        format!(
            "no claims are called {name:?}: {}: {trouble}",
            path.display()
        )
    })?;
    parse(&text).map_err(|trouble| format!("{}: {trouble}", path.display()).into())
}

/// Reads all claim files, in the order of their names.
pub fn load_all() -> Result<Vec<Claim>, Box<dyn Error>> {
    let folder = workspace::root().join("bench/claims");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            paths.push(path);
        }
    }
    paths.sort();
    let mut claims = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let parsed = parse(&text).map_err(|trouble| format!("{}: {trouble}", path.display()))?;
        claims.extend(parsed);
    }
    refuse_repeated_ids(&claims)?;
    Ok(claims)
}

fn parse(text: &str) -> Result<Vec<Claim>, Box<dyn Error>> {
    let file: ClaimFile = toml::from_str(text)?;
    let claims: Result<_, String> = file.claim.into_iter().map(Entry::into_claim).collect();
    Ok(claims?)
}

fn refuse_repeated_ids(claims: &[Claim]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    match claims.iter().find(|claim| !seen.insert(&claim.id)) {
        Some(claim) => Err(format!("two claims are called {:?}", claim.id)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_told_by_its_keys() {
        let claims = parse(
            r#"
            [[claim]]
            id = "a"
            point = "p"
            bench = "task-rate"
            figure = "x"
            bar = "<= 1"
            [[claim]]
            id = "b"
            point = "p"
            command = "true"
            [[claim]]
            id = "c"
            point = "p"
            tests = "-p xtask"
            [[claim]]
            id = "d"
            point = "p"
            look = "at it"
            "#,
        )
        .unwrap();
        assert!(matches!(claims[0].check, Check::Measured { .. }));
        assert!(matches!(claims[1].check, Check::Command { .. }));
        assert!(matches!(claims[2].check, Check::Tests { .. }));
        assert!(matches!(claims[3].check, Check::ByEye { .. }));
    }

    /// A bar that a misspelt key silently turned off would hold for ever.
    #[test]
    fn keys_that_make_no_check_are_refused() {
        let refuse = |keys: &str| {
            let text = format!("[[claim]]\nid = \"a\"\npoint = \"p\"\n{keys}");
            assert!(parse(&text).is_err(), "{keys}");
        };
        refuse("command = \"true\"\nfigre = \"x\"");
        refuse("command = \"true\"\nfigure = \"x\"");
        refuse("bench = \"barrier\"");
        let measured = "bench = \"barrier\"\nfigure = \"x\"\nbar = \"<= 1\"";
        refuse(&format!("{measured}\nlimit = \"x\""));
        refuse(&format!("{measured}\nlimit_bar = \"<= 2\""));
        refuse("command = \"true\"\nlimit = \"x\"\nlimit_is = \"a loop\"");
        refuse("tests = \"\"\nbar = \"<= 1\"");
        refuse("");
    }

    #[test]
    fn two_claims_of_one_name_are_refused() {
        let claim = "[[claim]]\nid = \"a\"\npoint = \"p\"\ncommand = \"true\"\n";
        let twice = parse(&claim.repeat(2)).unwrap();
        assert!(refuse_repeated_ids(&twice).is_err());
    }

    #[test]
    fn the_files_of_this_repository_can_be_read() {
        let claims = load_all().unwrap();
        assert!(claims.len() > 20);
    }
}

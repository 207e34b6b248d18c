//! A type's name means one thing in public or crate-visible scope.

use std::collections::BTreeMap;

use super::scan::is_test;
use super::tokens::{Token, tokens};

/// Sources whose names a reader meets together.
const INSIDE: [&str; 2] = ["crates/", "python/src/"];

/// Names of two types, each with its reason.
const TWICE: &[(&str, &str)] = &[
    (
        "KMeans",
        "the engine's options, and the operator that they choose",
    ),
    (
        "LogisticRegression",
        "the engine's options, and the operator that they choose",
    ),
    (
        "Outcome",
        "Python shows its class under this name, and so does Rust",
    ),
    (
        "PageRank",
        "the engine's options, and the operator that they choose",
    ),
    (
        "Reserved",
        "Python's class of what a kernel has taken, and a frame",
    ),
];

/// Where each name is declared, once for each file.
#[derive(Default)]
pub struct Names {
    declared: BTreeMap<String, Vec<String>>,
}

impl Names {
    /// Takes the types of a file that others can see.
    pub fn read(&mut self, path: &str, text: &str) -> Result<(), String> {
        if !INSIDE.iter().any(|folder| path.starts_with(folder)) || is_test(path) {
            return Ok(());
        }
        let tokens = tokens(text).map_err(|trouble| format!("{path}: {trouble}"))?;
        for name in visible_types(&tokens) {
            let files = self.declared.entry(name.to_owned()).or_default();
            // What `cfg` chooses in one file is one thing.
            if files.last().is_none_or(|last| last != path) {
                files.push(path.to_owned());
            }
        }
        Ok(())
    }

    /// Names that stand for several types, and reasons that nothing needs any more, as lines for a person.
    pub fn faults(&self) -> Vec<String> {
        let is_argued = |name: &str| TWICE.iter().any(|(other, _)| *other == name);
        let several = self.declared.iter().filter(|(_, files)| files.len() > 1);
        let repeated = several.filter(|(name, _)| !is_argued(name));
        let repeated = repeated.map(|(name, files)| {
            let files = files.join(" and ");
            format!("{files}: names: `{name}` is several types; call each what it alone is, or argue for it in xtask/src/lints/names.rs")
        });
        let is_one = |name: &str| self.declared.get(name).is_none_or(|files| files.len() < 2);
        let stale = TWICE.iter().filter(|(name, _)| is_one(name));
        let stale = stale.map(|(name, _)| {
            format!("xtask/src/lints/names.rs: names: `{name}` is one type; take it out")
        });
        repeated.chain(stale).collect()
    }
}

fn visible_types(tokens: &[Token]) -> impl Iterator<Item = &str> {
    let keywords = ["struct", "enum", "trait", "type", "union"];
    tokens.windows(2).enumerate().filter_map(move |(at, pair)| {
        let [keyword, name] = pair else { return None };
        let is_name = name.text.starts_with(|it: char| it.is_ascii_uppercase());
        let is_type = keywords.contains(&keyword.text.as_str()) && is_name && !keyword.in_test;
        (is_type && is_visible(&tokens[..at])).then_some(name.text.as_str())
    })
}

/// Whether `pub`, or `pub(…)`, is what these tokens end with.
fn is_visible(before: &[Token]) -> bool {
    let texts: Vec<&str> = before
        .iter()
        .rev()
        .take(12)
        .map(|it| it.text.as_str())
        .collect();
    let texts = match texts.as_slice() {
        ["unsafe" | "auto", rest @ ..] => rest,
        texts => texts,
    };
    match texts {
        ["pub", ..] => true,
        [")", rest @ ..] => {
            let open = rest.iter().position(|it| *it == "(");
            open.is_some_and(|open| rest.get(open + 1) == Some(&"pub"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let mut names = Names::default();
        for (path, text) in files {
            names.read(path, text).unwrap();
        }
        let found = names.faults();
        let found: Vec<&String> = found
            .iter()
            .filter(|it| !it.contains("take it out"))
            .collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (fault, expected) in found.iter().zip(expected) {
            assert!(fault.contains(expected), "{fault} has no {expected}");
        }
    }

    const A: &str = "crates/a/src/a.rs";
    const B: &str = "crates/b/src/b.rs";

    #[test]
    fn a_name_of_two_visible_types_is_refused() {
        let expected = ["crates/a/src/a.rs and crates/b/src/b.rs: names: `X`"];
        check(
            &[(A, "pub struct X;"), (B, "pub(crate) enum X {}")],
            &expected,
        );
        check(
            &[(A, "pub(in crate::a) trait X {}"), (B, "pub type X = u8;")],
            &expected,
        );
        check(
            &[
                (A, "#[derive(Debug)]\npub unsafe trait X {}"),
                (B, "pub(super) struct X(u8);"),
            ],
            &expected,
        );
    }

    #[test]
    fn private_types_and_tests_may_share_names() {
        check(&[(A, "pub struct X;"), (B, "struct X;")], &[]);
        check(
            &[
                (A, "pub struct X;"),
                (B, "#[cfg(test)] mod tests { pub struct X; }"),
            ],
            &[],
        );
        check(
            &[
                (A, "pub struct X;"),
                ("crates/b/tests/b.rs", "pub struct X;"),
            ],
            &[],
        );
        check(
            &[(A, "pub struct X;"), ("bench/src/b.rs", "pub struct X;")],
            &[],
        );
        check(&[(A, "pub trait T { type X; }"), (B, "pub struct X;")], &[]);
    }

    #[test]
    fn what_cfg_chooses_is_one_thing() {
        check(
            &[(A, "#[cfg(a)] pub struct X; #[cfg(not(a))] pub struct X;")],
            &[],
        );
    }

    #[test]
    fn a_name_that_is_argued_for_is_allowed() {
        check(
            &[(A, "pub struct PageRank;"), (B, "pub struct PageRank;")],
            &[],
        );
    }
}

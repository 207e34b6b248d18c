//! Paths that pages and the lints' own tables name exist.
//!
//! In pages a path is what stands between backticks and ends like a file of ours, or begins with a folder of
//! ours. It may leave its beginning away: some file or folder has to end with it.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

use super::rules::RULES;

/// Pages that are checked; a folder stands for all its pages.
const PAGES: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs"];

/// Folders whose files pages name from the root on.
const FOLDERS: [&str; 7] = [
    "bench", "crates", "docs", "examples", "fuzz", "python", "xtask",
];

/// How files are named that pages name.
const ENDINGS: [&str; 7] = [".rs", ".py", ".md", ".toml", ".sh", ".json", ".yml"];

/// Paths that are not in the repository, and why a page names them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("brambling.toml", "the user's settings file"),
    (
        "node/cargo.rs",
        "docs/invariants.md says where it was when branches were measured",
    ),
    (
        "node/room.rs",
        "docs/invariants.md says where it was when branches were measured",
    ),
];

/// What is named and does not exist, as lines for a person.
pub fn faults(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut known = Known::default();
    known.read(root, "")?;
    let mut faults: Vec<String> = RULES
        .iter()
        .flat_map(|rule| rule.inside.iter().chain(rule.except))
        .filter(|prefix| !known.has_prefix(prefix))
        .map(|prefix| {
            format!("xtask/src/lints/rules.rs: paths: nothing begins with {prefix}; take it out")
        })
        .collect();
    let pages = known.paths.iter().filter(|path| is_page(path));
    for page in pages {
        let text = fs::read_to_string(root.join(page))?;
        faults.extend(faults_of_page(page, &text, &known));
    }
    Ok(faults)
}

fn is_page(path: &str) -> bool {
    path.ends_with(".md")
        && PAGES.iter().any(|page| {
            path == *page
                || path
                    .strip_prefix(page)
                    .is_some_and(|it| it.starts_with('/'))
        })
}

/// Files and folders of the repository.
#[derive(Default)]
struct Known {
    paths: BTreeSet<String>,
    /// The paths, and what is left of each without its first folders.
    ends: BTreeSet<String>,
}

impl Known {
    fn read(&mut self, root: &Path, folder: &str) -> std::io::Result<()> {
        for entry in fs::read_dir(root.join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // What is built is not ours.
            if name.starts_with('.') || ["build", "target"].contains(&name.as_str()) {
                continue;
            }
            let path = if folder.is_empty() {
                name
            } else {
                format!("{folder}/{name}")
            };
            if root.join(&path).is_dir() {
                self.read(root, &path)?;
            }
            self.add(&path);
        }
        Ok(())
    }

    fn add(&mut self, path: &str) {
        self.paths.insert(path.to_owned());
        self.ends.insert(path.to_owned());
        let slashes = path.match_indices('/');
        self.ends
            .extend(slashes.map(|(at, _)| path[at + 1..].to_owned()));
    }

    fn has_prefix(&self, prefix: &str) -> bool {
        let mut from = self.paths.range(prefix.to_owned()..);
        from.next().is_some_and(|path| path.starts_with(prefix))
    }
}

fn faults_of_page(page: &str, text: &str, known: &Known) -> Vec<String> {
    let mut faults = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence {
            continue;
        }
        let quoted = line.split('`').skip(1).step_by(2);
        for path in quoted.filter(|it| is_path(it)) {
            // `path::test` names a test of that file.
            let path = path.split("::").next().unwrap_or_default();
            let path = path.trim_end_matches('/');
            let is_elsewhere = ELSEWHERE.iter().any(|(other, _)| *other == path);
            if !is_elsewhere && !known.ends.contains(path) {
                faults.push(format!(
                    "{page}:{}: paths: there is no `{path}`; name it as it is, or say in xtask/src/lints/paths.rs where it lies",
                    at + 1
                ));
            }
        }
    }
    faults
}

fn is_path(text: &str) -> bool {
    let file = text.split("::").next().unwrap_or_default();
    let is_plain = file
        .chars()
        .all(|it| it.is_ascii_alphanumeric() || "_-./".contains(it));
    let ends = |ending: &&str| {
        file.strip_suffix(*ending)
            .is_some_and(|stem| stem.ends_with(|it: char| it.is_ascii_alphanumeric() || it == '_'))
    };
    let begins = |folder: &&str| {
        file.strip_prefix(*folder)
            .is_some_and(|it| it.starts_with('/'))
    };
    is_plain && (ENDINGS.iter().any(ends) || FOLDERS.iter().any(begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let mut known = Known::default();
        for path in ["crates/a/src", "crates/a/src/b.rs", "docs/c.md"] {
            known.add(path);
        }
        let found = faults_of_page("docs/c.md", text, &known);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (fault, expected) in found.iter().zip(expected) {
            assert!(fault.contains(expected), "{fault} has no {expected}");
        }
    }

    #[test]
    fn paths_may_leave_their_beginning_away() {
        check(
            "`crates/a/src/b.rs`, `src/b.rs`, `b.rs`, `c.md`, `crates/a/src/`",
            &[],
        );
        check("`a/b.rs`", &["docs/c.md:1: paths: there is no `a/b.rs`"]);
        check("one\n`xb.rs` and `crates/b/`", &["`xb.rs`", "`crates/b`"]);
    }

    #[test]
    fn tests_are_named_with_their_file() {
        check("`b.rs::a_test`", &[]);
        check("`d.rs::a_test`", &["`d.rs`"]);
    }

    #[test]
    fn what_is_no_path_is_not_looked_for() {
        check(
            "`/metrics`, `a::b`, `.py`, `test_*.py`, `brambling.toml`, `p/q`",
            &[],
        );
        check("```\n`d.rs`\n```\n`d.rs`", &["docs/c.md:4"]);
    }

    #[test]
    fn a_prefix_is_that_of_a_path() {
        let mut known = Known::default();
        known.add("crates/a/src/bc.rs");
        assert!(known.has_prefix("crates/a/src/b"));
        assert!(!known.has_prefix("crates/a/src/c"));
    }
}

//! docs/internals/invariants.md names a keeper, a check and a mutant for each invariant; none may be a dream.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

use crate::workspace;

/// The invariants that exist so far; ARCHITECTURE.md says what each means.
const EXISTING: [&str; 12] = [
    "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12",
];

/// What stands in a cell that nobody has filled.
const OPEN: &str = "—";

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// The invariant's number, or `+` for a condition that serves none alone.
    label: String,
    keepers: Vec<String>,
    checks: Vec<String>,
    mutants: Vec<String>,
}

/// What the sources hold: paths and texts.
#[derive(Default)]
struct Sources {
    files: Vec<(String, String)>,
}

/// Prints every gap and says whether there is none. Unless `complete` is asked for, an invariant
/// whose cells are all open is work to be done and no fault.
pub fn check(complete: bool) -> Result<bool, Box<dyn Error>> {
    let root = workspace::root();
    let rows = rows(&fs::read_to_string(
        root.join("docs/internals/invariants.md"),
    )?)?;
    let mut sources = Sources::default();
    for folder in ["crates", "python"] {
        sources.read(&root, Path::new(folder))?;
    }
    let exists = |path: &str| root.join(path).exists();
    let faults = faults(&rows, &sources, exists, complete);
    for fault in &faults {
        eprintln!("docs/internals/invariants.md: {fault}");
    }
    let open = rows.iter().filter(|row| row.is_open()).count();
    println!(
        "invariants: {} rows, {open} open, {} faults",
        rows.len(),
        faults.len()
    );
    Ok(faults.is_empty())
}

impl Row {
    fn is_open(&self) -> bool {
        self.keepers.is_empty() && self.checks.is_empty() && self.mutants.is_empty()
    }
}

impl Sources {
    fn read(&mut self, root: &Path, folder: &Path) -> std::io::Result<()> {
        let full = root.join(folder);
        if !full.is_dir() {
            return Ok(());
        }
        for entry in fs::read_dir(full)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            if root.join(&path).is_dir() {
                self.read(root, &path)?;
            } else if name.ends_with(".rs") || name.ends_with(".py") {
                let text = fs::read_to_string(root.join(&path))?;
                self.files.push((path.to_string_lossy().into_owned(), text));
            }
        }
        Ok(())
    }

    /// `path::name` is a function of that file.
    fn has_test(&self, name: &str) -> bool {
        let Some((path, name)) = name.rsplit_once("::") else {
            return false;
        };
        let declared = [format!("fn {name}("), format!("def {name}(")];
        self.files
            .iter()
            .any(|(file, text)| file == path && declared.iter().any(|it| text.contains(it)))
    }

    fn asks_for(&self, mutant: &str) -> bool {
        self.mutants().contains(mutant)
    }

    /// Somebody else than the condition itself has to write the mutant's name.
    fn switches_on(&self, mutant: &str) -> bool {
        let count = |text: &str| {
            self.files
                .iter()
                .map(|(_, it)| it.matches(text).count())
                .sum::<usize>()
        };
        count(&format!("\"{mutant}\"")) > count(&format!("is_on(\"{mutant}\")"))
    }

    /// What production code asks for.
    fn mutants(&self) -> BTreeSet<&str> {
        self.files
            .iter()
            .filter(|(path, _)| path.split('/').all(|part| part != "tests"))
            .flat_map(|(_, text)| text.split("is_on(\"").skip(1))
            .filter_map(|rest| rest.split('"').next())
            .collect()
    }
}

/// Lines such as `| 4 | a piece is merged once | `path` | `path::test` | `mutant` |`.
fn rows(text: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let label = cells.first().copied().unwrap_or_default();
        if label != "+" && label.parse::<u32>().is_err() {
            continue;
        }
        let [_, _, keepers, checks, mutants] = cells.as_slice() else {
            return Err(format!("the line of invariant {label} has no five cells"));
        };
        rows.push(Row {
            label: label.to_owned(),
            keepers: names(keepers),
            checks: names(checks),
            mutants: names(mutants),
        });
    }
    Ok(rows)
}

/// What stands between backticks; nothing in an open cell.
fn names(cell: &str) -> Vec<String> {
    match cell {
        OPEN => Vec::new(),
        _ => cell
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect(),
    }
}

fn faults(
    rows: &[Row],
    sources: &Sources,
    exists: impl Fn(&str) -> bool,
    complete: bool,
) -> Vec<String> {
    let mut faults = Vec::new();
    for number in EXISTING {
        if !rows.iter().any(|row| row.label == number) {
            faults.push(format!("invariant {number} has no line"));
        }
    }
    for row in rows.iter().filter(|row| complete || !row.is_open()) {
        let Row {
            label,
            keepers,
            checks,
            mutants,
        } = row;
        for (cell, names) in [("keeper", keepers), ("check", checks), ("mutant", mutants)] {
            if names.is_empty() {
                faults.push(format!("invariant {label} names no {cell}"));
            }
        }
        let mut refuse = |names: &[String], holds: &dyn Fn(&str) -> bool, what: &str| {
            for name in names.iter().filter(|name| !holds(name)) {
                faults.push(format!("invariant {label}: {what} `{name}`"));
            }
        };
        refuse(keepers, &|path| exists(path), "there is no file");
        refuse(checks, &|name| sources.has_test(name), "there is no test");
        refuse(
            mutants,
            &|name| sources.asks_for(name),
            "no production code asks for the mutant",
        );
        refuse(
            mutants,
            &|name| sources.switches_on(name),
            "no test switches on the mutant",
        );
    }
    let listed = |name: &str| {
        rows.iter()
            .any(|row| row.mutants.iter().any(|it| it == name))
    };
    for name in sources.mutants().into_iter().filter(|name| !listed(name)) {
        faults.push(format!("the mutant `{name}` stands in no line"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "| 4 | a piece is merged once | `inbox.rs` | `tests/a.rs::twice` | `keep` |";

    fn check(line: &str, production: &str, tests: &str, expected: &str) {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let sources = Sources {
            files: vec![file("inbox.rs", production), file("tests/a.rs", tests)],
        };
        let rows = rows(line).unwrap();
        let all = faults(&rows, &sources, |path| path == "inbox.rs", true);
        let found: Vec<String> = all
            .into_iter()
            .filter(|it| !it.ends_with("has no line"))
            .collect();
        match expected {
            "" => assert!(found.is_empty(), "{found:?}"),
            part => assert!(found.iter().any(|fault| fault.contains(part)), "{found:?}"),
        }
    }

    #[test]
    fn a_line_with_keeper_check_and_mutant_is_complete() {
        let asks = "if is_on(\"keep\") {}";
        check(LINE, asks, "fn twice() { assert_caught(\"keep\") }", "");
    }

    #[test]
    fn every_gap_is_named() {
        let asks = "if is_on(\"keep\") {}";
        check(LINE, asks, "fn twice() {}", "no test switches on");
        check(LINE, asks, "\"keep\"", "no test `tests/a.rs::twice`");
        check(LINE, "fn twice() {}", "", "no test `tests/a.rs::twice`");
        check(
            LINE,
            "",
            "fn twice() { \"keep\" }",
            "no production code asks",
        );
        check(
            &LINE.replace("inbox", "gone"),
            asks,
            "",
            "no file `gone.rs`",
        );
        check(
            &LINE.replace("`tests/a.rs::twice`", OPEN),
            asks,
            "",
            "names no check",
        );
        check("", asks, "", "`keep` stands in no line");
        check("| 4 | a piece | — | — | — |", "", "", "names no keeper");
    }

    #[test]
    fn an_invariant_without_a_line_is_a_fault() {
        let faults = faults(&[], &Sources::default(), |_| true, false);
        assert_eq!(faults.len(), EXISTING.len());
    }
}

//! Imports point down only. ARCHITECTURE.md's picture is checked against this table.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

use crate::workspace;

/// What each crate may use; whatever those may use, it may use as well.
const MAY_USE: &[(&str, &[&str])] = &[
    ("brambling-memory", &[]),
    // Stands alone: what the hardware can do does not depend on what we do with it.
    ("brambling-machine", &[]),
    ("brambling-program", &["brambling-memory"]),
    ("brambling-protocol", &["brambling-program"]),
    // Their drivers read and write files in blocks.
    (
        "brambling-operators",
        &["brambling-program", "brambling-storage"],
    ),
    ("brambling-exchange", &["brambling-protocol"]),
    // Not "exchange": it spills through a trait of memory, which storage implements.
    ("brambling-storage", &["brambling-protocol"]),
    // Not "exchange" or "storage": whoever places data has no business touching it.
    ("brambling-controller", &["brambling-protocol"]),
    (
        "brambling-worker",
        &["brambling-exchange", "brambling-storage"],
    ),
    (
        "brambling",
        &[
            "brambling-worker",
            "brambling-controller",
            "brambling-operators",
            "brambling-machine",
        ],
    ),
    // Takes the engine's place, so it may not use the engine.
    (
        "brambling-simulation",
        &[
            "brambling-worker",
            "brambling-controller",
            "brambling-machine",
        ],
    ),
    ("brambling-bench", &["brambling", "brambling-machine"]),
    (
        "brambling-cli",
        &["brambling-bench", "brambling", "brambling-machine"],
    ),
    ("brambling-python", &["brambling-cli", "brambling"]),
    // Reaches every decoder of untrusted bytes, and nothing else.
    ("brambling-fuzz", &["brambling-protocol"]),
    // Judges the workspace, so it uses nothing of it.
    ("xtask", &[]),
];

/// Crates that may use exactly what is named, not what that uses: they show what a user sees.
const MAY_USE_DIRECTLY: &[(&str, &[&str])] = &[("brambling-examples", &["brambling"])];

/// Edges that only tests may have: from, to, and why.
const TESTS_MAY_USE: &[(&str, &str, &str)] = &[];

/// One dependency of one member of the workspace on another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    from: String,
    to: String,
    for_tests: bool,
}

/// Prints every forbidden edge and says whether there is none.
pub fn check() -> Result<bool, Box<dyn Error>> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace::root().join("Cargo.toml"))
        .no_deps()
        .exec()?;
    let (members, edges) = members_and_edges(&metadata);
    let faults = faults(&members, &edges);
    for fault in &faults {
        eprintln!("layers: {fault}");
    }
    println!(
        "layers: {} crates, {} edges, {} forbidden",
        members.len(),
        edges.len(),
        faults.len()
    );
    Ok(faults.is_empty())
}

fn members_and_edges(metadata: &Metadata) -> (BTreeSet<String>, BTreeSet<Edge>) {
    let packages = metadata.workspace_packages();
    let members: BTreeSet<String> = packages.iter().map(|it| it.name.to_string()).collect();
    let mut edges = BTreeSet::new();
    for package in packages {
        for dependency in &package.dependencies {
            if members.contains(&dependency.name) {
                edges.insert(Edge {
                    from: package.name.to_string(),
                    to: dependency.name.clone(),
                    for_tests: dependency.kind == DependencyKind::Development,
                });
            }
        }
    }
    (members, edges)
}

fn faults(members: &BTreeSet<String>, edges: &BTreeSet<Edge>) -> Vec<String> {
    let allowed = allowed();
    let unknown = members
        .iter()
        .filter(|name| !allowed.contains_key(name.as_str()))
        .map(|name| format!("{name} is not in the table; add it to xtask/src/layers.rs"));
    let forbidden = edges
        .iter()
        .filter(|edge| !is_allowed(edge, &allowed))
        .map(|edge| {
            let Edge { from, to, .. } = edge;
            let may: Vec<&str> = allowed
                .get(from.as_str())
                .into_iter()
                .flatten()
                .copied()
                .collect();
            format!(
                "{from} may not use {to}; it may use [{}]. Move what both need into a lower crate",
                may.join(", ")
            )
        });
    unknown.chain(forbidden).collect()
}

fn is_allowed(edge: &Edge, allowed: &BTreeMap<&str, BTreeSet<&str>>) -> bool {
    let Edge {
        from,
        to,
        for_tests,
    } = edge;
    let argued = |(f, t, _): &(&str, &str, &str)| f == from && t == to;
    // A crate may name itself among its test dependencies, to switch its own features on.
    *for_tests && (from == to || TESTS_MAY_USE.iter().any(argued))
        || allowed
            .get(from.as_str())
            .is_some_and(|may| may.contains(to.as_str()))
}

/// The table with "and what those may use" worked out.
fn allowed() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut allowed = BTreeMap::new();
    for (from, _) in MAY_USE {
        let mut reached = BTreeSet::new();
        descend(from, &mut reached);
        allowed.insert(*from, reached);
    }
    for (from, to) in MAY_USE_DIRECTLY {
        allowed.insert(*from, to.iter().copied().collect());
    }
    allowed
}

fn descend(from: &str, reached: &mut BTreeSet<&'static str>) {
    for (_, below) in MAY_USE.iter().filter(|(name, _)| *name == from) {
        for to in *below {
            if reached.insert(to) {
                descend(to, reached);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(from: &str, to: &str, for_tests: bool) -> bool {
        let edge = Edge {
            from: from.to_owned(),
            to: to.to_owned(),
            for_tests,
        };
        let members = [from.to_owned(), to.to_owned()].into();
        !faults(&members, &[edge].into()).is_empty()
    }

    #[test]
    fn forbidden_edges_are_refused() {
        for (from, to) in [
            ("brambling-controller", "brambling-exchange"),
            ("brambling-controller", "brambling-worker"),
            ("brambling-worker", "brambling-controller"),
            ("brambling-exchange", "brambling-storage"),
            ("brambling-storage", "brambling-exchange"),
            ("brambling-program", "brambling-protocol"),
            ("brambling-machine", "brambling-memory"),
            ("brambling-memory", "brambling-machine"),
            ("brambling-simulation", "brambling"),
            ("brambling-worker", "brambling-machine"),
            ("brambling-worker", "brambling-operators"),
            ("brambling-examples", "brambling-worker"),
            ("brambling", "brambling-cli"),
            ("xtask", "brambling-memory"),
        ] {
            assert!(is_refused(from, to, false), "{from} -> {to}");
            assert!(is_refused(from, to, true), "{from} -> {to} in tests");
        }
    }

    #[test]
    fn downward_edges_are_allowed() {
        for (from, to) in [
            ("brambling-python", "brambling-memory"),
            ("brambling-cli", "brambling-bench"),
            ("brambling", "brambling-operators"),
            ("brambling-simulation", "brambling-exchange"),
            ("brambling-worker", "brambling-program"),
            ("brambling-examples", "brambling"),
        ] {
            assert!(!is_refused(from, to, false), "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_outside_the_table_is_refused() {
        let members = ["brambling-utils".to_owned()].into();
        let found = faults(&members, &BTreeSet::new());
        assert!(found[0].contains("brambling-utils is not in the table"));
    }

    #[test]
    fn nothing_reaches_itself() {
        for (from, below) in allowed() {
            assert!(!below.contains(from), "{from} is above itself");
        }
    }

    /// The picture says `worker -> exchange, storage`, one line for each crate.
    #[test]
    fn the_picture_in_architecture_agrees_with_the_table() {
        let path = workspace::root().join("ARCHITECTURE.md");
        let text = std::fs::read_to_string(path).unwrap();
        for (from, below) in MAY_USE.iter().chain(MAY_USE_DIRECTLY) {
            let short = |name: &str| match name {
                "brambling" => "engine".to_owned(),
                name => name.trim_start_matches("brambling-").to_owned(),
            };
            let names: Vec<String> = below.iter().map(|name| short(name)).collect();
            let line = match names.as_slice() {
                [] => format!("{} -> nothing", short(from)),
                names => format!("{} -> {}", short(from), names.join(", ")),
            };
            assert!(text.lines().any(|it| it.trim() == line), "no line {line:?}");
        }
    }
}

//! What the wheel contains of others, with the texts of their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, Package, PackageId};

use crate::workspace;

/// What is built into the wheel.
const SHIPPED: &str = "brambling-python";

/// Names under which packages keep their licences.
const FILES: &[&str] = &["licen", "copying", "unlicense", "notice"];

const OPENING: &str = "\
Brambling's compiled part is built from the packages below and Rust's standard library (MIT OR Apache-2.0,
https://www.rust-lang.org). Each stands here with its licence as it states it; the texts follow, each once,
under the packages that carry it. Written by `cargo run --release -p xtask -- licences --write`.
";

/// Where the text lies: the wheel and the source distribution take it from there.
pub fn path() -> PathBuf {
    workspace::root().join("python/THIRD-PARTY-LICENSES.txt")
}

/// The text for what cargo resolved.
pub fn text(metadata: &Metadata) -> Result<String, Box<dyn Error>> {
    let mut text = OPENING.to_owned();
    let mut carriers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    text.push('\n');
    for package in shipped(metadata)? {
        let named = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("none stated");
        let source = package.repository.as_deref().unwrap_or("");
        text.push_str(format!("{named}   {licence}   {source}").trim_end());
        text.push('\n');
        let folder = package
            .manifest_path
            .parent()
            .ok_or("a manifest without a folder")?;
        let found = licences_in(folder.as_std_path())?;
        if found.is_empty() {
            return Err(format!("{named} carries no text of its licence").into());
        }
        for licence in found {
            carriers.entry(licence).or_default().insert(named.clone());
        }
    }
    for (licence, packages) in &carriers {
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        let line = "-".repeat(100);
        text.push_str(&format!("\n{line}\n{}\n\n{licence}\n", packages.join(", ")));
    }
    Ok(text)
}

/// The packages of others that the wheel links, in the order of their names.
fn shipped(metadata: &Metadata) -> Result<Vec<&Package>, Box<dyn Error>> {
    let resolved = metadata.resolve.as_ref().ok_or("cargo resolved nothing")?;
    let root = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == SHIPPED);
    let mut open: Vec<&PackageId> = vec![&root.ok_or("there is no package for Python")?.id];
    let mut seen: BTreeSet<&PackageId> = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = resolved.nodes.iter().find(|node| node.id == *id);
        for dependency in &node.ok_or("a package that cargo did not resolve")?.deps {
            let mut kinds = dependency.dep_kinds.iter();
            if kinds.any(|kind| kind.kind == DependencyKind::Normal) {
                open.push(&dependency.pkg);
            }
        }
    }
    let built = built()?;
    let is_built = |it: &&Package| built.contains(&format!("{} v{}", it.name.as_str(), it.version));
    let mut packages: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|package| seen.contains(&package.id) && package.source.is_some())
        .filter(is_built)
        .collect();
    packages.sort_by_key(|package| (package.name.to_string(), package.version.clone()));
    Ok(packages)
}

/// What cargo builds for it, as `name vVERSION`: what it resolves has also packages that a feature would use if another one were on
/// (`package?/feature`), and that nobody builds.
fn built() -> Result<BTreeSet<String>, Box<dyn Error>> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace::root());
    command.args(["tree", "--package", SHIPPED, "--edges", "normal"]);
    command.args(["--prefix", "none", "--target", crate::licences::PLATFORM]);
    let done = command.output()?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned().into());
    }
    let lines = String::from_utf8(done.stdout)?;
    let named = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    };
    Ok(lines.lines().filter_map(named).collect())
}

/// The texts of a package's licences, without what differs by how they were checked out.
fn licences_in(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().to_lowercase());
        let is_one = FILES
            .iter()
            .any(|known| name.as_ref().is_some_and(|name| name.starts_with(known)));
        if is_one && path.is_file() {
            texts.push(tidy(&fs::read_to_string(&path)?));
        }
    }
    texts.sort();
    Ok(texts)
}

fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_blanks_are_one() {
        assert_eq!(tidy("\r\nMIT\r\n\r\nAs is. \n\n"), tidy("MIT\n\nAs is.\n"));
        assert_ne!(tidy("MIT\nby A"), tidy("MIT\nby B"));
    }

    #[test]
    fn a_folder_gives_its_licences_and_nothing_else() {
        let folder =
            std::env::temp_dir().join(format!("brambling-licences-{}", std::process::id()));
        fs::create_dir_all(folder.join("licenses")).unwrap();
        for (name, text) in [("LICENSE-MIT", "b"), ("COPYING", "a"), ("README.md", "c")] {
            fs::write(folder.join(name), text).unwrap();
        }
        let found = licences_in(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, ["a", "b"]);
    }
}

//! What the design keeps out, refused by a scan of the sources.
//!
//! The scan reads tokens, so comments and strings never trigger a rule. It does not resolve names:
//! a renamed import gets past it, and a review has to catch that.

mod names;
mod paths;
mod rules;
mod scan;
mod tokens;
mod unsafe_modules;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

/// Folders with Rust sources of ours.
const FOLDERS: [&str; 6] = ["bench", "crates", "examples", "fuzz", "python", "xtask"];

/// Prints every fault and says whether there is none.
pub fn check() -> Result<bool, Box<dyn Error>> {
    let root = workspace::root();
    let mut paths = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut paths)?;
    }
    paths.sort();
    let mut faults = Vec::new();
    let mut argued = Vec::new();
    let mut names = names::Names::default();
    for path in &paths {
        let name = path
            .strip_prefix(&root)?
            .to_string_lossy()
            .replace('\\', "/");
        let text = fs::read_to_string(path)?;
        if name.ends_with("Cargo.toml") {
            faults.extend(scan::manifest(&name, &text));
        } else {
            faults.extend(scan::source(&name, &text)?);
            names.read(&name, &text)?;
            argued.extend(scan::allows_unsafe(&text)?.then_some(name));
        }
    }
    faults.extend(unsafe_modules::stale(&argued));
    faults.extend(names.faults());
    faults.extend(paths::faults(&root)?);
    for fault in &faults {
        eprintln!("{fault}");
    }
    println!("lints: {} files, {} faults", paths.len(), faults.len());
    Ok(faults.is_empty())
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            collect(&path, paths)?;
        } else if name.ends_with(".rs") || name == "Cargo.toml" {
            paths.push(path);
        }
    }
    Ok(())
}

//! Every dependency's licence is one that we accept, and its text goes with what we ship.

use std::error::Error;
use std::fs;

use cargo_metadata::{Metadata, MetadataCommand, Package};
use spdx::{Expression, ParseMode};

use crate::{third_party, workspace};

/// Permissive licences, by their SPDX names. A copyleft licence needs a decision, not a line here.
const ACCEPTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// What is built and shipped; other platforms' crates need not be on this machine.
pub const PLATFORM: &str = "x86_64-unknown-linux-gnu";

fn metadata() -> Result<Metadata, cargo_metadata::Error> {
    MetadataCommand::new()
        .manifest_path(workspace::root().join("Cargo.toml"))
        .other_options(vec!["--filter-platform".to_owned(), PLATFORM.to_owned()])
        .exec()
}

/// Writes the texts of the licences of what the wheel contains.
pub fn write() -> Result<bool, Box<dyn Error>> {
    fs::write(third_party::path(), third_party::text(&metadata()?)?)?;
    println!("licences: {} written", third_party::path().display());
    Ok(true)
}

/// Prints every licence that is not accepted and says whether there is none.
pub fn check() -> Result<bool, Box<dyn Error>> {
    let metadata = metadata()?;
    let resolved = metadata.resolve.as_ref().ok_or("cargo resolved nothing")?;
    let built = |package: &&Package| resolved.nodes.iter().any(|node| node.id == package.id);
    let packages: Vec<&Package> = metadata.packages.iter().filter(built).collect();
    let faults: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let reason = refusal(package.license.as_deref())?;
            Some(format!("{} {}: {reason}", package.name, package.version))
        })
        .collect();
    for fault in &faults {
        eprintln!("licences: {fault}; use another crate, or argue for it in xtask/src/licences.rs");
    }
    println!(
        "licences: {} packages, {} refused",
        packages.len(),
        faults.len()
    );
    let kept = fs::read_to_string(third_party::path()).unwrap_or_default();
    let up_to_date = kept == third_party::text(&metadata)?;
    if !up_to_date {
        eprintln!(
            "licences: {} is not what the wheel contains; run: cargo run --release -p xtask -- licences --write",
            third_party::path().display()
        );
    }
    Ok(faults.is_empty() && up_to_date)
}

/// Why an expression such as `MIT OR Apache-2.0` is refused, if it is.
fn refusal(licence: Option<&str>) -> Option<String> {
    let Some(text) = licence else {
        return Some("names no licence".to_owned());
    };
    let Ok(expression) = Expression::parse_mode(text, ParseMode::LAX) else {
        return Some(format!("{text:?} is no licence expression"));
    };
    let accepted = |requirement: &spdx::LicenseReq| {
        let id = requirement.license.id();
        id.is_some_and(|id| ACCEPTED.contains(&id.name))
    };
    match expression.evaluate(accepted) {
        true => None,
        false => Some(format!("{text} is not accepted")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissive_expressions_are_accepted() {
        for text in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(refusal(Some(text)), None, "{text}");
        }
    }

    #[test]
    fn others_are_refused() {
        for text in ["AGPL-3.0-only", "MIT AND GPL-2.0-only", "Some-Licence"] {
            assert!(refusal(Some(text)).is_some(), "{text}");
        }
        assert!(refusal(None).is_some());
    }
}

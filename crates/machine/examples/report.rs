//! Writes the report of a job in all its forms, from a ledger as JSON or from one that is made up.
//!
//!     report FOLDER [LEDGER.json [ROOFS.json]]
//!
//! FOLDER gets report.html, fragment.html, report.txt, report.json, ledger.json, trace.json and trace.pftrace.

#[path = "../tests/report/made.rs"]
mod made;

use std::error::Error;
use std::fs;
use std::path::Path;

use brambling_machine::ledger::Ledger;
use brambling_machine::report::{Report, Roofs};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = arguments
        .first()
        .ok_or("report FOLDER [LEDGER.json [ROOFS.json]]: no folder was given")?;
    let ledger = match arguments.get(1) {
        Some(file) => read::<Ledger>(file)?,
        // Two workers of four threads: 20,000 moments, each with a task.
        None => made::healthy(2, 4, 2_500),
    };
    let roofs = match arguments.get(2) {
        Some(file) => read::<Roofs>(file)?,
        None if arguments.len() == 2 => Roofs::default(),
        None => made::roofs(),
    };
    write(Path::new(folder), ledger, &roofs)
}

fn read<T: serde::de::DeserializeOwned>(file: &str) -> Result<T, Box<dyn Error>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{file}: {error}").into())
}

fn write(folder: &Path, ledger: Ledger, roofs: &Roofs) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("ledger.json"), serde_json::to_string(&ledger)?)?;
    let report = Report::new(ledger, roofs);
    fs::write(folder.join("report.html"), report.to_html())?;
    fs::write(folder.join("fragment.html"), report.to_html_fragment())?;
    fs::write(folder.join("report.txt"), report.to_text())?;
    fs::write(folder.join("report.json"), report.to_json())?;
    fs::write(folder.join("trace.json"), report.to_trace_json())?;
    fs::write(folder.join("trace.pftrace"), report.to_trace())?;
    Ok(())
}

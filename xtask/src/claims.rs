//! The acceptance: every point that a milestone promises, as data in `bench/claims`, run and compared.
//!
//! Nothing here knows a figure or a bar; those stand in the claim files.

mod expression;
mod file;
mod run;
mod table;

use std::error::Error;

use file::Claim;
use run::Runner;

/// Runs all claims, or the one named, prints the table, and says whether all of them hold.
pub fn check(only: Option<&str>) -> Result<bool, Box<dyn Error>> {
    judge(&selected(file::load_all()?, only)?)
}

/// As [`check`], for the claims of one file: one milestone.
pub fn check_file(name: &str) -> Result<bool, Box<dyn Error>> {
    judge(&file::load_file(name)?)
}

fn judge(claims: &[Claim]) -> Result<bool, Box<dyn Error>> {
    let mut runner = Runner::default();
    let mut rows = Vec::new();
    for claim in claims {
        eprintln!("claims: {}", claim.id);
        rows.push((claim, runner.judge(claim)));
    }
    table::print(&rows);
    Ok(rows.iter().all(|(_, verdict)| !verdict.is_missed()))
}

/// Prints every claim's id and point without running anything.
pub fn list() -> Result<bool, Box<dyn Error>> {
    for claim in file::load_all()? {
        println!("{:<28} {}", claim.id, claim.point);
    }
    Ok(true)
}

fn selected(claims: Vec<Claim>, only: Option<&str>) -> Result<Vec<Claim>, Box<dyn Error>> {
    let Some(id) = only else { return Ok(claims) };
    let chosen: Vec<Claim> = claims.into_iter().filter(|claim| claim.id == id).collect();
    if chosen.is_empty() {
        return Err(format!("no claim is called {id:?}; `claims --list` names them").into());
    }
    Ok(chosen)
}

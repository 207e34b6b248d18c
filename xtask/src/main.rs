//! The house's own checks, run by `make lint` and `make claims`.
#![allow(clippy::print_stdout, reason = "a command's output is its purpose")]
#![allow(
    clippy::print_stderr,
    reason = "progress and usage go beside the output"
)]

mod claims;
mod doc_examples;
mod invariants;
mod layers;
mod licences;
mod lints;
mod third_party;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo run --release -p xtask -- COMMAND

  claims [--only ID | --of FILE | --list]   run the acceptance points of bench/claims and print the table
  layers                        refuse edges between crates that the table does not allow
  lints                         refuse what the design keeps out of the sources
  licences [--write]            refuse dependencies whose licence is not accepted, and texts of licences that
                                are not those of the wheel's contents; or write these texts
  invariants [--complete]       refuse gaps in docs/internals/invariants.md: keepers, checks, mutants
  doc-examples PYTHON           run the Python examples of README.md and docs with an interpreter

exit code: 0 when everything holds, 1 when something does not, 2 for a wrong command line";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["claims", "--list"] => claims::list(),
        ["claims"] => claims::check(None),
        ["claims", "--only", id] => claims::check(Some(id)),
        ["claims", "--of", file] => claims::check_file(file),
        ["doc-examples", python] => doc_examples::check(python),
        ["layers"] => layers::check(),
        ["lints"] => lints::check(),
        ["licences"] => licences::check(),
        ["licences", "--write"] => licences::write(),
        ["invariants"] => invariants::check(false),
        ["invariants", "--complete"] => invariants::check(true),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(trouble) => {
            eprintln!("xtask: {trouble}");
            ExitCode::FAILURE
        }
    }
}

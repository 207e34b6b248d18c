//! The table: point, our figure, bar, held or missed.

use std::fs;

use super::file::Claim;
use super::run::{Shown, Verdict};

/// Prints every claim and, last, how many hold.
pub fn print(rows: &[(&Claim, Verdict)]) {
    println!("\nclaims on {}\n", machine());
    let mut held = 0;
    let mut missed = 0;
    for (claim, verdict) in rows {
        let (word, shown) = match verdict {
            Verdict::Held(shown) => ("held", shown),
            Verdict::Missed(shown) => ("MISSED", shown),
            Verdict::Seen(shown) => ("by eye", shown),
        };
        if verdict.is_missed() {
            missed += 1;
        } else {
            held += 1;
        }
        print_row(word, claim, shown);
    }
    println!("\n{held} held, {missed} missed");
}

fn print_row(word: &str, claim: &Claim, shown: &Shown) {
    println!("{word:<7} {:<26} {}", claim.id, claim.point);
    println!("{:34} ours {}", "", shown.ours);
    println!("{:34} bar  {}", "", shown.bar);
    if let Some(limit) = &shown.limit {
        println!("{:34} limit {limit}", "");
    }
}

/// The processor's name and the number of CPUs: no table without its machine.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1))
        .unwrap_or("an unknown processor");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{name}, {cpus} CPUs")
}

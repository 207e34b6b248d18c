//! Ranks the pages of a small web.
//!
//! ```text
//! cargo run --release --example pagerank
//! ```
//!
//! Everything leads to the front page; nothing leads to the forgotten one.
#![allow(clippy::print_stdout)] // An example talks to its reader.

use brambling::graph::{EdgeList, PageRank, pagerank, relabel};
use brambling::prelude::*;

/// Page numbers as somebody chose them, and where their links lead.
const LINKS: [(u64, u64); 8] = [
    (100, 200),
    (100, 300),
    (200, 100),
    (300, 100),
    (300, 200),
    (404, 100),
    (200, 999_999),
    (999_999, 100),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sources, targets): (Vec<u64>, Vec<u64>) = LINKS.into_iter().unzip();
    let dense = relabel(&sources, &targets)?;
    let edges = EdgeList::new(dense.ids.len(), dense.sources, dense.targets);
    let ranked = pagerank(&edges, &PageRank::default(), &RunOptions::new())?;
    println!("{} iterations", ranked.iterations);
    let mut pages: Vec<(f64, u64)> = ranked.ranks.into_iter().zip(dense.ids).collect();
    pages.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (rank, page) in &pages {
        println!("{rank:.4}  page {page}");
    }

    assert!(ranked.converged);
    assert_eq!(pages.first().map(|page| page.1), Some(100));
    let (least, page) = pages[pages.len() - 1];
    // Only what starts anew reaches it.
    assert!(page == 404 && (least - 0.15 / 5.0).abs() < 1e-6);
    Ok(())
}

#[test]
fn checks_its_result() {
    main().unwrap();
}

//! Counts the words of files, on all threads.
//!
//! ```sh
//! cargo run --release --example map_reduce [FILE]…
//! ```
#![allow(clippy::print_stdout)] // An example talks to its reader.

use brambling::map_reduce::{MapFunction, MapReduce, ReduceFunction, map_reduce};
use brambling::{QuietCaller, RunOptions};
use std::error::Error;
use std::path::PathBuf;

const TEXT: &str = "To be, or not to be: that is the question.\n";

/// The frequent words first, those as frequent as each other by their bytes.
fn most_frequent(files: &[PathBuf]) -> Result<Vec<(String, u64)>, Box<dyn Error>> {
    let how = MapReduce {
        map: MapFunction::Words,
        reduce: ReduceFunction::Sum,
        ..MapReduce::default()
    };
    let counted = map_reduce(files, &how, &RunOptions::new(), &mut QuietCaller)?;
    let mut words: Vec<_> = counted
        .sorted()
        .into_iter()
        .map(|(word, count)| (String::from_utf8_lossy(word).into_owned(), count))
        .collect();
    words.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(words)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let own = std::env::temp_dir().join(format!("brambling-example-{}.txt", std::process::id()));
    if files.is_empty() {
        std::fs::write(&own, TEXT)?;
        files.push(own.clone());
    }
    let words = most_frequent(&files);
    if files == [own.clone()] {
        std::fs::remove_file(&own)?;
    }
    for (word, count) in words?.iter().take(10) {
        println!("{count:6} {word}");
    }
    Ok(())
}

#[test]
fn words_are_counted() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("brambling-test-{}.txt", std::process::id()));
    std::fs::write(&file, TEXT.repeat(3))?;
    let words = most_frequent(std::slice::from_ref(&file));
    std::fs::remove_file(&file)?;
    let words = words?;
    assert_eq!(words.len(), 10);
    assert_eq!(words[0], ("To".to_owned(), 3));
    Ok(())
}

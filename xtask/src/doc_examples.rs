//! Runs the Python examples of the pages: README.md, the package's own, and those below docs/.
//!
//! All plain ```` ```python ```` blocks of a page run as one script, in order, as a reader would type
//! them; a block that shows a prompt (`>>>`) is checked by doctest with the rest of its page. A block
//! marked ```` ```python notest ```` is not run.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace;

/// Runs all pages with the interpreter and says whether all of them pass.
pub fn check(python: &str) -> Result<bool, Box<dyn Error>> {
    let mut passed = 0;
    let mut failed = 0;
    for page in pages()? {
        let text = fs::read_to_string(&page)?;
        let script = script(&text);
        let mut runs = Vec::new();
        if !script.is_empty() {
            runs.push(run(python, &["-c", &script])?);
        }
        if text.contains("\n>>> ") {
            runs.push(run(python, &["-m", "doctest", &page.to_string_lossy()])?);
        }
        for trouble in runs {
            match trouble {
                None => passed += 1,
                Some(trouble) => {
                    failed += 1;
                    eprintln!("{}: {trouble}", page.display());
                }
            }
        }
    }
    println!("doc examples: {passed} passed; {failed} failed");
    Ok(failed == 0)
}

fn pages() -> std::io::Result<Vec<PathBuf>> {
    let root = workspace::root();
    let mut pages = vec![root.join("README.md"), root.join("python/README.md")];
    for folder in ["docs", "docs/internals"] {
        for entry in fs::read_dir(root.join(folder))? {
            pages.push(entry?.path());
        }
    }
    pages.retain(|page| page.extension() == Some("md".as_ref()));
    pages.sort();
    Ok(pages)
}

/// The plain Python blocks of a page, joined; blank lines keep the page's line numbers.
fn script(text: &str) -> String {
    let mut script = String::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match &mut block {
            None if line.trim() == "```python" => block = Some(String::new()),
            None => script.push('\n'),
            Some(code) if line.trim() == "```" => {
                let plain = !code.contains(">>> ");
                script.push('\n');
                match plain {
                    true => script.push_str(code),
                    false => script.push_str(&"\n".repeat(code.lines().count())),
                }
                script.push('\n');
                block = None;
            }
            Some(code) => {
                code.push_str(line);
                code.push('\n');
            }
        }
    }
    match script.trim() {
        "" => String::new(),
        _ => script,
    }
}

/// Runs the interpreter in an empty folder. Some text is what it said before it failed.
fn run(python: &str, arguments: &[&str]) -> std::io::Result<Option<String>> {
    let folder = workspace::root().join("build/doc-examples");
    fs::create_dir_all(&folder)?;
    let output = Command::new(Path::new(python))
        .args(arguments)
        .current_dir(folder)
        .output()?;
    if output.status.success() {
        return Ok(None);
    }
    let said = [output.stdout, output.stderr].concat();
    Ok(Some(String::from_utf8_lossy(&said).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_lines() {
        let page = "text\n```python\na = 1\n```\nmore\n```python\nb = a\n```\n";
        let script = script(page);
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!((lines[2], lines[6]), ("a = 1", "b = a"));
    }

    #[test]
    fn other_blocks_are_left_out() {
        assert_eq!(script("```rust\nfn a() {}\n```\n"), "");
        assert_eq!(script("```python notest\nbr.connect()\n```\n"), "");
        assert_eq!(script("```python\n>>> 1\n1\n```\n"), "");
    }

    #[test]
    fn a_failing_script_says_why() {
        assert_eq!(run("python3", &["-c", "pass"]).unwrap(), None);
        let said = run("python3", &["-c", "1/0"]).unwrap().unwrap();
        assert!(said.contains("ZeroDivisionError"));
    }
}

//! Runs the Python examples of the pages: README.md, the package's own, and those below docs/.
//!
//! All plain ```` ```python ```` blocks of a page run as one script, in order, as a reader would type
//! them; a block that shows a prompt (`>>>`) is checked by doctest with the rest of its page. A block
//! marked ```` ```python notest ```` is not run. A page that calls `br.connect()` finds a cluster of two workers
//! on this machine, as its reader would have started one.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::workspace;

/// Runs all pages with the interpreter and says whether all of them pass.
pub fn check(python: &str) -> Result<bool, Box<dyn Error>> {
    let mut passed = 0;
    let mut failed = 0;
    for page in pages()? {
        let text = fs::read_to_string(&page)?;
        let script = script(&text);
        let mut runs = Vec::new();
        let _cluster = match script.contains("br.connect()") {
            true => Some(Cluster::start(python)?),
            false => None,
        };
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

/// The interpreter in an empty folder. It finds no cluster of the account that runs this but the page's own.
fn interpreter(python: &str) -> std::io::Result<Command> {
    let folder = workspace::root().join("build/doc-examples");
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(Path::new(python));
    command
        .env("XDG_STATE_HOME", folder.join("state"))
        .current_dir(folder);
    Ok(command)
}

/// A cluster that runs until it is dropped.
struct Cluster {
    process: Child,
    // What it prints later has to go somewhere.
    _said: BufReader<ChildStdout>,
}

impl Cluster {
    fn start(python: &str) -> std::io::Result<Self> {
        let mut process = interpreter(python)?
            .args(["-m", "brambling", "cluster", "--workers", "2"])
            .args(["--threads", "1", "--bind", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = BufReader::new(process.stdout.take().expect("it was piped"));
        // One line says that it is there. A cluster that failed says nothing, and the page will.
        said.read_line(&mut String::new())?;
        Ok(Cluster {
            process,
            _said: said,
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGTERM, which ends its workers as well; `Child::kill` would leave them to find out.
        let asked = Command::new("kill")
            .arg(self.process.id().to_string())
            .status();
        if !asked.is_ok_and(|status| status.success()) {
            drop(self.process.kill());
        }
        drop(self.process.wait());
    }
}

/// Runs the interpreter. Some text is what it said before it failed.
fn run(python: &str, arguments: &[&str]) -> std::io::Result<Option<String>> {
    let output = interpreter(python)?.args(arguments).output()?;
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

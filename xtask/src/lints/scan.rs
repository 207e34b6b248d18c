//! Applies the rules to one file.

use std::error::Error;
use std::fmt;

use super::rules::{RULES, Rule};
use super::tokens::{Token, tokens};
use super::unsafe_modules;

/// One place that breaks one rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    path: String,
    line: usize,
    rule: &'static str,
    found: String,
    way_out: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            found,
            way_out,
        } = self;
        write!(
            f,
            "{path}:{line}: {rule}: `{found}` may not stand here; {way_out}"
        )
    }
}

/// All faults of a Rust source, as lines for a person.
pub fn source(path: &str, text: &str) -> Result<Vec<String>, Box<dyn Error>> {
    Ok(faults(path, text)?.iter().map(Fault::to_string).collect())
}

/// A manifest that does not take the workspace's lints would switch all of them off.
pub fn manifest(path: &str, text: &str) -> Option<String> {
    let takes_lints = text
        .split("\n[")
        .any(|part| part.starts_with("lints]") && part.contains("workspace = true"));
    (!takes_lints).then(|| format!("{path}:1: manifest: add `[lints]` with `workspace = true`"))
}

/// Whether the source switches the denial of `unsafe` off.
pub fn allows_unsafe(text: &str) -> Result<bool, Box<dyn Error>> {
    Ok(unsafe_exceptions(&read(text)?).next().is_some())
}

fn read(text: &str) -> Result<Vec<Token>, String> {
    tokens(text).map_err(|trouble| trouble.to_string())
}

fn faults(path: &str, text: &str) -> Result<Vec<Fault>, String> {
    let tokens = read(text).map_err(|trouble| format!("{path}: {trouble}"))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut faults = Vec::new();
    for rule in RULES.iter().filter(|rule| rule.looks_at(path)) {
        for at in 0..tokens.len() {
            if let Some(found) = rule.broken_at(&tokens[at..], &lines) {
                faults.push(rule.fault(path, tokens[at].line, found));
            }
        }
    }
    if !unsafe_modules::is_argued(path) {
        faults.extend(unsafe_exceptions(&tokens).map(|token| unsafe_fault(path, token.line)));
    }
    Ok(faults)
}

impl Rule {
    fn looks_at(&self, path: &str) -> bool {
        let among = |prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
        (self.inside.is_empty() || among(self.inside))
            && !among(self.except)
            && !(self.except_tests && is_test(path))
    }

    /// The pattern that begins here, unless the place is exempt.
    fn broken_at(&self, tokens: &[Token], lines: &[&str]) -> Option<String> {
        let first = &tokens[0];
        if self.except_tests && first.in_test {
            return None;
        }
        // An import alone does nothing; what it brings in is found where it is used.
        if self.argued_by.is_some() && first.in_use {
            return None;
        }
        let pattern = self
            .patterns
            .iter()
            .find(|pattern| begins(tokens, pattern))?;
        let argued = |mark: &str| {
            let near = lines
                .iter()
                .take(first.line)
                .skip(first.line.saturating_sub(2));
            near.into_iter().any(|line| has_reason(line, mark))
        };
        match self.argued_by {
            Some(mark) if argued(mark) => None,
            _ => Some(pattern.replace([' ', '*'], "")),
        }
    }

    fn fault(&self, path: &str, line: usize, found: String) -> Fault {
        Fault {
            path: path.to_owned(),
            line,
            rule: self.name,
            found,
            way_out: self.way_out,
        }
    }
}

fn has_reason(line: &str, mark: &str) -> bool {
    let reason = line.split_once(mark).map_or("", |(_, reason)| reason);
    reason.trim().len() >= 10
}

fn begins(tokens: &[Token], pattern: &str) -> bool {
    let mut at = tokens.iter();
    pattern.split(' ').all(|part| match part {
        "::" => [":", ":"]
            .iter()
            .all(|part| at.next().is_some_and(|it| it.text == *part)),
        _ => at.next().is_some_and(|token| match part.strip_prefix('*') {
            Some(end) => token.text.ends_with(end),
            None => token.text == part,
        }),
    })
}

/// Tests, benches, examples and fuzz targets: nothing of them reaches a user's job.
pub fn is_test(path: &str) -> bool {
    path.starts_with("fuzz/")
        || path.ends_with("/tests.rs")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || path.contains("/examples/")
}

/// `unsafe_code` is only ever written to allow or expect it; denying it is the workspace's matter.
fn unsafe_exceptions(tokens: &[Token]) -> impl Iterator<Item = &Token> {
    tokens.iter().filter(|token| token.text == "unsafe_code")
}

fn unsafe_fault(path: &str, line: usize) -> Fault {
    Fault {
        path: path.to_owned(),
        line,
        rule: "unsafe",
        found: "unsafe_code".to_owned(),
        way_out: "write it safely, or argue for the module in xtask/src/lints/unsafe_modules.rs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects `rule:line` for every fault.
    fn check(path: &str, text: &str, expected: &[&str]) {
        let found: Vec<String> = faults(path, text)
            .unwrap()
            .iter()
            .map(|fault| format!("{}:{}", fault.rule, fault.line))
            .collect();
        assert_eq!(found, expected, "{path}: {text}");
    }

    const SHARD: &str = "crates/worker/src/shard.rs";

    #[test]
    fn clocks() {
        let text = "fn a() {\n    let t = std::time::Instant::now();\n}";
        check(SHARD, text, &["clock:2"]);
        check(SHARD, "fn a(t: SystemTime) {}", &["clock:1"]);
        check("crates/worker/src/executor.rs", text, &[]);
        check("crates/worker/src/executor/idle.rs", text, &[]);
        check("crates/worker/tests/stall.rs", text, &[]);
        check(
            SHARD,
            &format!("#[cfg(test)]\nmod tests {{\n{text}\n}}"),
            &[],
        );
        check(SHARD, "fn a(now: Instant) {} // Instant::now()", &[]);
    }

    #[test]
    fn randomness() {
        check(SHARD, "fn a() { rand::random(); }", &["randomness:1"]);
        check(SHARD, "fn a() { thread_rng(); }", &["randomness:1"]);
        check(SHARD, "fn a() { RandomState::new(); }", &["randomness:1"]);
        let in_test = "#[test]\nfn a() { rand::random(); }";
        check(SHARD, in_test, &["randomness:2"]);
        check(
            "crates/engine/src/seed.rs",
            "fn a() { OsRng; }",
            &["randomness:1"],
        );
        check(
            "crates/engine/src/cluster/wire.rs",
            "fn a() { OsRng; }",
            &[],
        );
    }

    #[test]
    fn threads() {
        check(SHARD, "fn a() { thread::spawn(b); }", &["thread:1"]);
        check(
            SHARD,
            "fn a() { std::thread::Builder::new(); }",
            &["thread:1"],
        );
        check(
            "crates/program/src/a.rs",
            "fn a() { thread::scope(b); }",
            &["thread:1"],
        );
        check(
            "crates/engine/src/a.rs",
            "fn a() { thread::spawn(b); }",
            &[],
        );
        check(SHARD, "fn a() { thread::yield_now(); }", &[]);
    }

    #[test]
    fn locks_and_the_interpreter() {
        check(SHARD, "fn a() { b.lock(); }", &["lock:1"]);
        check(
            SHARD,
            "fn a() {\n    // lock: only a flag is inside.\n    b.lock();\n}",
            &[],
        );
        check(SHARD, "fn a() { held::lock(&b); }", &[]);
        check("crates/exchange/src/a.rs", "fn a() { b.lock(); }", &[]);
        let attaches = "fn a() { Python::attach(|py| b(py)); }";
        check("python/src/run.rs", attaches, &["interpreter:1"]);
        check("python/src/interpreter.rs", attaches, &[]);
        check("python/src/run.rs", "fn a() { attach(|py| b(py)); }", &[]);
    }

    #[test]
    fn sockets() {
        check(SHARD, "use std::net::TcpStream;", &["socket:1"]);
        check(
            "crates/cli/src/run.rs",
            "fn a() { TcpListener::bind(b); }",
            &["socket:1"],
        );
        check(
            "crates/exchange/src/transport/tcp.rs",
            "use std::net::TcpStream;",
            &[],
        );
    }

    #[test]
    fn files() {
        check(SHARD, "fn a() { fs::read(b); }", &["file:1"]);
        check(SHARD, "use std::fs;", &["file:1"]);
        check(SHARD, "fn a() { File::open(b); }", &["file:1"]);
        check(
            "crates/program/tests/golden.rs",
            "fn a() { fs::read(b); }",
            &[],
        );
        check("crates/cli/src/run.rs", "fn a() { fs::read(b); }", &[]);
    }

    #[test]
    fn std_math() {
        let kernel = "crates/operators/src/ml/logistic.rs";
        check(
            kernel,
            "fn a(x: f64) -> f64 { (-x).exp() }",
            &["std-math:1"],
        );
        check(kernel, "fn a(x: f64) -> f64 { x.ln_1p() }", &["std-math:1"]);
        check(
            kernel,
            "fn a(x: f64) -> f64 { f64::ln(x) }",
            &["std-math:1"],
        );
        check(
            kernel,
            "fn a(x: f64) -> f64 { x.powf(2.0) }",
            &["std-math:1"],
        );
        check(kernel, "fn a(x: f64) -> f64 { math::exp(x).sqrt() }", &[]);
        check(
            kernel,
            "fn a(x: f64) -> f64 { x.exp() } // math: our own lanes",
            &[],
        );
        check(
            "bench/src/logistic.rs",
            "fn a(x: f64) -> f64 { x.exp() }",
            &[],
        );
    }

    #[test]
    fn hash_order() {
        check(SHARD, "fn a(b: HashMap<u32, u32>) {}", &["hash-order:1"]);
        check(SHARD, "fn a(b: FxHashSet<u32>) {}", &["hash-order:1"]);
        check(
            SHARD,
            "fn a(b: HashMap<u32, u32>) {} // order:",
            &["hash-order:1"],
        );
        check(
            SHARD,
            "fn a(b: HashMap<u32, u32>) {} // order: only looked up",
            &[],
        );
        check(
            SHARD,
            "// order: only looked up\nfn a(b: HashMap<u32, u32>) {}",
            &[],
        );
        check(SHARD, "use std::collections::HashMap;", &[]);
        check(
            "crates/cli/src/run.rs",
            "fn a(b: HashMap<u32, u32>) {}",
            &[],
        );
    }

    #[test]
    fn printing() {
        check(SHARD, "fn a() { println!(); }", &["print:1"]);
        check(SHARD, "fn a() { eprint!(\"b\"); }", &["print:1"]);
        check(
            "python/src/lib.rs",
            "fn a() { io::stdout(); }",
            &["print:1"],
        );
        check("crates/cli/src/run.rs", "fn a() { println!(); }", &[]);
    }

    #[test]
    fn python() {
        check(
            "crates/cli/src/run.rs",
            "use pyo3::prelude::*;",
            &["pyo3:1"],
        );
        check("python/src/lib.rs", "use pyo3::prelude::*;", &[]);
    }

    #[test]
    fn exceptions_for_unsafe() {
        let text = "#![allow(unsafe_code)]\nfn a() {}";
        check("crates/program/src/a.rs", text, &["unsafe:1"]);
        check(
            "crates/program/src/a.rs",
            "#[expect(unsafe_code)]\nfn a() {}",
            &["unsafe:1"],
        );
    }

    #[test]
    fn a_manifest_has_to_take_the_lints() {
        let with = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n\n[dependencies]\n";
        assert_eq!(manifest("a/Cargo.toml", with), None);
        assert!(manifest("a/Cargo.toml", "[package]\nname = \"a\"\n").is_some());
        let own = "[package]\nedition.workspace = true\n[lints.rust]\nunsafe_code = \"allow\"\n";
        assert!(manifest("a/Cargo.toml", own).is_some());
    }

    #[test]
    fn a_message_names_place_rule_and_way_out() {
        let found = source(SHARD, "fn a() { thread::spawn(b); }").unwrap();
        let expected = "crates/worker/src/shard.rs:1: thread: `thread::spawn` may not stand here; \
            return an effect and let the executor run it, or answer `pending`";
        assert_eq!(found, [expected]);
    }
}

//! Reads traces of coflows as the public one of Facebook is written.
//!
//! The first line has the number of ports and of coflows. Each further one is a coflow: its name, when
//! it arrives in milliseconds, how many mappers it has and at which ports, how many reducers, and of
//! each its port and its megabytes as `PORT:MB`. Every mapper sends every reducer an equal part.

use super::{Coflow, FlowSpec, Workload};
use std::fmt::Display;
use std::str::{FromStr, SplitAsciiWhitespace};

/// A trace's unit of size.
const MEGABYTE: f64 = 1e6;

/// No trace has so many megabytes, or so many milliseconds: beyond it a time's last bit would be hours.
const MOST: f64 = 1e15;

/// More ports than any data centre has hosts.
const PORTS_MOST: u32 = 1_000_000;

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line cannot be read.
    #[error("line {line} of the trace {what}; {way_out}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Its cause.
        what: String,
        /// How it would be right.
        way_out: &'static str,
    },
    /// It has no lines.
    #[error(
        "the trace is empty; its first line has the number of ports and the number of coflows, as in `150 526`"
    )]
    Empty,
    /// It has no coflows, or no ports for them.
    #[error(
        "the first line of the trace says that there are {ports} ports and {coflows} coflows; at least one of each is needed, as in `150 526`"
    )]
    Nothing {
        /// By the first line.
        ports: u32,
        /// By the first line.
        coflows: usize,
    },
    /// It ends too early, or goes on too long.
    #[error("the trace has {found} coflows, and its first line says {told}; is the file whole?")]
    Count {
        /// By the first line.
        told: usize,
        /// Coflows that there are.
        found: usize,
    },
}

const AS_IN: &str = "a coflow is written as `NAME ARRIVAL_MS MAPPERS PORT... REDUCERS PORT:MB...`, such as `1 0 2 3 4 1 7:12.5`";

impl Workload {
    /// Reads a trace. Ports are counted from 0.
    ///
    /// # Errors
    /// With the line that cannot be read, and why.
    ///
    /// # Examples
    /// ```
    /// use brambling_exchange::coflow::workload::Workload;
    ///
    /// let trace = Workload::from_trace("10 1\n1 500 2 3 4 1 7:12\n")?;
    /// assert_eq!((trace.flows(), trace.bytes()), (2, 12e6));
    /// assert_eq!(trace.coflows[0].arrival_s, 0.5);
    /// # Ok::<(), brambling_exchange::coflow::workload::TraceError>(())
    /// ```
    pub fn from_trace(text: &str) -> Result<Workload, TraceError> {
        let mut lines = (1..).zip(text.lines()).filter(|it| !it.1.trim().is_empty());
        let (line, head) = lines.next().ok_or(TraceError::Empty)?;
        let mut words = Words::new(
            line,
            head,
            "the first line is `PORTS COFLOWS`, such as `150 526`",
        );
        let ports: u32 = words.number("the number of ports")?;
        let told: usize = words.number("the number of coflows")?;
        words.end()?;
        if ports > PORTS_MOST {
            return Err(words.wrong(format!("has {ports} ports, more than {PORTS_MOST}")));
        }
        if ports == 0 || told == 0 {
            return Err(TraceError::Nothing {
                ports,
                coflows: told,
            });
        }
        let coflows: Vec<Coflow> = lines
            .map(|(line, text)| coflow(Words::new(line, text, AS_IN), ports))
            .collect::<Result<_, _>>()?;
        if coflows.len() != told {
            let found = coflows.len();
            return Err(TraceError::Count { told, found });
        }
        Ok(Workload::of(ports, coflows))
    }
}

fn coflow(mut words: Words<'_>, ports: u32) -> Result<Coflow, TraceError> {
    let name = words.number("the coflow's name")?;
    let arrival_ms: f64 = words.size("the arrival in milliseconds")?;
    let count: usize = words.number("the number of mappers")?;
    let mut mappers = Vec::new();
    for _ in 0..count {
        let port = words.word("a mapper's port")?;
        mappers.push(words.port(port, ports)?);
    }
    let count: usize = words.number("the number of reducers")?;
    let mut flows = Vec::new();
    for _ in 0..count {
        let word = words.word("a reducer, PORT:MB")?;
        let Some((port, size)) = word.split_once(':') else {
            return Err(words.wrong(format!("has {word:?}, which is no reducer")));
        };
        let destination = words.port(port, ports)?;
        let megabytes = words.parsed_size(size, "a reducer's megabytes")?;
        let bytes = megabytes * MEGABYTE / mappers.len() as f64;
        flows.extend(mappers.iter().map(|source| FlowSpec {
            source: *source,
            destination,
            bytes,
        }));
    }
    words.end()?;
    if flows.is_empty() {
        return Err(words.wrong("has a coflow without flows".to_owned()));
    }
    Ok(Coflow::of(name, arrival_ms / 1e3, flows))
}

/// The words of a line.
struct Words<'t> {
    line: usize,
    words: SplitAsciiWhitespace<'t>,
    way_out: &'static str,
}

impl<'t> Words<'t> {
    fn new(line: usize, text: &'t str, way_out: &'static str) -> Words<'t> {
        Words {
            line,
            words: text.split_ascii_whitespace(),
            way_out,
        }
    }

    fn wrong(&self, what: String) -> TraceError {
        TraceError::Line {
            line: self.line,
            what,
            way_out: self.way_out,
        }
    }

    fn word(&mut self, what: &str) -> Result<&'t str, TraceError> {
        let next = self.words.next();
        next.ok_or_else(|| self.wrong(format!("ends before {what}")))
    }

    fn parsed<T: FromStr<Err: Display>>(&self, word: &str, what: &str) -> Result<T, TraceError> {
        let read = word.parse();
        read.map_err(|error| self.wrong(format!("has {word:?} for {what} ({error})")))
    }

    fn number<T: FromStr<Err: Display>>(&mut self, what: &str) -> Result<T, TraceError> {
        let word = self.word(what)?;
        self.parsed(word, what)
    }

    fn parsed_size(&self, word: &str, what: &str) -> Result<f64, TraceError> {
        let size: f64 = self.parsed(word, what)?;
        match (0.0..=MOST).contains(&size) {
            true => Ok(size),
            false => Err(self.wrong(format!("has {word:?} for {what}, which is no size"))),
        }
    }

    fn size(&mut self, what: &str) -> Result<f64, TraceError> {
        let word = self.word(what)?;
        self.parsed_size(word, what)
    }

    fn port(&self, word: &str, ports: u32) -> Result<u32, TraceError> {
        let port: u32 = self.parsed(word, "a port")?;
        match port < ports {
            true => Ok(port),
            false => Err(self.wrong(format!(
                "has port {port}, and the first line says that there are {ports}, from 0 to {}",
                ports.saturating_sub(1)
            ))),
        }
    }

    fn end(&mut self) -> Result<(), TraceError> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(self.wrong(format!("goes on with {word:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Workload::from_trace(text).unwrap_err().to_string()
    }

    #[test]
    fn every_mapper_sends_every_reducer_an_equal_part() {
        let trace =
            Workload::from_trace("9 2\n7 250 1 3 1 4:6\n\n3 100 2 0 1 2 5:4 6:2\n").unwrap();
        let names: Vec<_> = trace
            .coflows
            .iter()
            .map(|it| (it.name, it.arrival_s))
            .collect();
        assert_eq!(names, [(3, 0.1), (7, 0.25)]);
        let flows: Vec<_> = trace.coflows[0].flows().collect();
        assert_eq!(flows.len(), 4);
        assert_eq!(
            (flows[1].source, flows[1].destination, flows[1].bytes),
            (1, 5, 2e6)
        );
        assert_eq!(trace.bytes(), 12e6);
    }

    #[test]
    fn a_bad_line_is_named_with_its_cause_and_the_way_out() {
        let told = wrong("9 1\n1 0 2 3 x 1 7:12\n");
        assert!(told.starts_with(
            "line 2 of the trace has \"x\" for a port (invalid digit found in string); a coflow"
        ));
        assert!(wrong("").starts_with("the trace is empty; its first line has"));
        assert!(wrong("9\n").starts_with(
            "line 1 of the trace ends before the number of coflows; the first line is"
        ));
        assert!(wrong("9 1\n1 0 1 9 1 7:1\n").contains(
            "line 2 of the trace has port 9, and the first line says that there are 9, from 0 to 8"
        ));
        assert!(wrong("9 1\n1 0 1 3 1 7\n").contains("has \"7\", which is no reducer"));
        assert!(
            wrong("9 1\n1 0 1 3 1 7:-4\n")
                .contains("\"-4\" for a reducer's megabytes, which is no size")
        );
        assert!(wrong("9 1\n1 0 1 3 1 7:nan\n").contains("which is no size"));
        assert!(wrong("9 1\n1 0 1 3 1 7:1 8\n").contains("goes on with \"8\""));
        assert!(wrong("9 1\n1 0 0 1 7:1\n").contains("a coflow without flows"));
        assert_eq!(
            wrong("9 2\n1 0 1 3 1 7:1\n"),
            "the trace has 1 coflows, and its first line says 2; is the file whole?"
        );
    }
}

//! What a search asks for, and the matcher that it comes to.
//!
//! This module owns the patterns, what is to be found of the lines that match, and the refusal of patterns that are none.
//! The command makes queries, lanes and printers make matchers of them. It searches nothing.

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What is to be known of the lines that are selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WantedOfLines {
    /// The lines themselves.
    #[default]
    Lines,
    /// How many there are.
    Count,
    /// Whether there is one: a file is left at the first.
    Any,
}

/// A search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepQuery {
    /// A line is selected when one of them matches; none of none. In the syntax of the crate `regex`.
    pub patterns: Vec<String>,
    /// The patterns are texts.
    pub fixed: bool,
    /// Upper and lower case are the same.
    pub ignore_case: bool,
    /// A match begins and ends where words do.
    pub word: bool,
    /// A match is a whole line.
    pub whole_line: bool,
    /// Lines without a match are selected instead.
    pub invert: bool,
    /// What is to be known of them.
    pub want: WantedOfLines,
    /// Selected lines of a file after which it is left.
    pub count_max: Option<u64>,
    /// Lines that are told with a selected one, before it.
    pub before: usize,
    /// And after it.
    pub after: usize,
    /// Whether lines have numbers.
    pub numbers: bool,
    /// Files with NUL bytes are told like others.
    pub text: bool,
    /// Files whose names end with `.gz` and `.zst` are searched as they are.
    pub raw: bool,
}

/// Patterns that cannot be searched for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct PatternError {
    /// What is wrong, with the pattern.
    pub why: String,
}

/// Finds matches of a query's patterns.
pub struct LineMatcher(pub(crate) RegexMatcher);

impl LineMatcher {
    /// Where the matches in a line are, in order. Its newline is no part of any.
    pub fn matches_in(&self, line: &[u8]) -> Vec<Range<usize>> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut all = Vec::new();
        let found = self.0.find_iter(line, |found| {
            all.push(found.start()..found.end());
            true
        });
        found.expect("a matcher that is made finds without errors");
        all
    }
}

impl GrepQuery {
    /// Adds patterns: one a line of `text`, as POSIX has it.
    pub fn add_patterns(&mut self, text: &str) {
        self.patterns.extend(text.split('\n').map(str::to_owned));
    }

    /// What finds the patterns. A match never goes beyond a line.
    ///
    /// # Errors
    /// A pattern that is none, or that is too large.
    pub fn matcher(&self) -> Result<LineMatcher, PatternError> {
        RegexMatcherBuilder::new()
            .multi_line(true)
            .case_insensitive(self.ignore_case)
            .fixed_strings(self.fixed)
            .word(self.word)
            .whole_line(self.whole_line)
            .line_terminator(Some(b'\n'))
            .build_many(&self.patterns)
            .map(LineMatcher)
            .map_err(|error| PatternError {
                why: error.to_string(),
            })
    }

    /// Whether the lines themselves are told, and may be too many to keep.
    pub fn tells_lines(&self) -> bool {
        self.want == WantedOfLines::Lines
    }
}

//! The options of `brambling grep`: those of GNU grep that searches use most, by the same letters.
//!
//! This module owns their names and what they come to as a query, as paths, and as a way to show what is found. It
//! searches nothing.

use super::Shows;
use super::json::JsonLines;
use super::print::{PrintChoices, Printer};
use crate::cluster::Where;
use brambling::grep::{Grep, GrepPaths, GrepQuery, LineMatcher, WantedOfLines};
use clap::ValueEnum;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Examples:
  brambling grep -n 'error: .*timeout' server.log     lines with their numbers
  brambling grep -rl TODO src --include '*.rs'        names of files with a match
  brambling grep -c GET access.log.gz                 in compressed files too
  brambling grep -B 2 -A 5 panic *.log                with lines around
  brambling grep --json fail big.log | jq .           for other programs
  brambling grep -c error /data/big.log --controller 10.0.0.7:7077      on a cluster's workers

Patterns are those of Rust's crate regex (https://docs.rs/regex/latest/regex/#syntax): near to grep -E, without look-around and
back-references. A file is cut into parts, which all threads search; what is found is printed in order.

Exit code: 0 a line was selected; 1 none was; 2 something was wrong, with a message for each file.";

/// When matches are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    Always,
    /// On a terminal.
    Auto,
    Never,
}

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct GrepArguments {
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The pattern, unless -e or -f gives some, and files. Without files the standard input is searched, with -r this directory
    #[arg(value_name = "PATTERN|PATH")]
    words: Vec<OsString>,
    /// A pattern; may be given several times
    #[arg(short = 'e', long, value_name = "PATTERN", allow_hyphen_values = true)]
    regexp: Vec<String>,
    /// Patterns from a file, one a line
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Patterns are texts
    #[arg(short = 'F', long)]
    fixed_strings: bool,
    /// Patterns are extended regular expressions, which they are anyway
    #[arg(short = 'E', long, conflicts_with = "fixed_strings")]
    extended_regexp: bool,
    /// Upper and lower case are the same
    #[arg(short = 'i', long)]
    ignore_case: bool,
    /// Select lines without a match
    #[arg(short = 'v', long)]
    invert_match: bool,
    /// A match is whole words
    #[arg(short = 'w', long)]
    word_regexp: bool,
    /// A match is a whole line
    #[arg(short = 'x', long)]
    line_regexp: bool,
    /// Print how many lines are selected, for each file
    #[arg(short = 'c', long)]
    count: bool,
    /// Print the names of files with a selected line
    #[arg(short = 'l', long, conflicts_with_all = ["files_without_match"])]
    files_with_matches: bool,
    /// Print the names of files without one
    #[arg(short = 'L', long)]
    files_without_match: bool,
    /// Print what matches, and not the lines around it
    #[arg(short = 'o', long)]
    only_matching: bool,
    /// Print nothing, and end at the first selected line
    #[arg(short = 'q', long, visible_alias = "silent")]
    pub(super) quiet: bool,
    /// Say nothing of files that cannot be read
    #[arg(short = 's', long)]
    pub(super) no_messages: bool,
    /// Leave a file after so many selected lines
    #[arg(short = 'm', long, value_name = "N")]
    max_count: Option<u64>,
    /// Print line numbers
    #[arg(short = 'n', long)]
    line_number: bool,
    /// Print where lines begin, in bytes
    #[arg(short = 'b', long)]
    byte_offset: bool,
    /// Print names of files before lines, also with one file
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    with_filename: bool,
    /// Print no names, also with several files
    #[arg(short = 'h', long)]
    no_filename: bool,
    /// Print so many lines after each selected one
    #[arg(short = 'A', long, value_name = "N")]
    after_context: Option<usize>,
    /// Print so many lines before each selected one
    #[arg(short = 'B', long, value_name = "N")]
    before_context: Option<usize>,
    /// Print so many lines before and after each selected one
    #[arg(short = 'C', long, value_name = "N")]
    context: Option<usize>,
    /// Search directories. Hidden files count, links are not followed
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Search directories, and follow links
    #[arg(short = 'R', long)]
    dereference_recursive: bool,
    /// Only files whose names match; may be given several times
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// No files whose names match
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// No directories whose names match
    #[arg(long, value_name = "GLOB")]
    exclude_dir: Vec<String>,
    /// Print lines of binary files as of others
    #[arg(short = 'a', long)]
    text: bool,
    /// Search files whose names end with .gz or .zst as they are
    #[arg(long)]
    no_decompress: bool,
    /// Colour matches
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always",
        visible_alias = "colour"
    )]
    color: ColorWhen,
    /// Print JSON, a line for each match
    #[arg(long, conflicts_with_all = ["count", "files_with_matches", "files_without_match", "only_matching"])]
    pub(super) json: bool,
    /// Tell seconds, bytes, and the share of the ideal, on standard error
    #[arg(long)]
    pub(super) stats: bool,
    /// Threads, 1 to 1024
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024), conflicts_with = "controller")]
    pub(super) threads: Option<u32>,
    /// Bytes of the parts of a file: for tests
    #[arg(long, hide = true, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    part_bytes: Option<u64>,
    /// Bytes that are read at a time: for tests
    #[arg(long, hide = true, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    block_bytes: Option<u64>,
    #[command(flatten)]
    pub(super) at: Where,
}

impl GrepArguments {
    /// The search.
    pub(super) fn what(&self) -> Result<Grep, String> {
        let mut words = self.words.iter();
        let mut query = GrepQuery {
            fixed: self.fixed_strings,
            ignore_case: self.ignore_case,
            word: self.word_regexp,
            whole_line: self.line_regexp,
            invert: self.invert_match,
            want: self.want(),
            count_max: self.max_count,
            numbers: self.line_number || self.json,
            text: self.text,
            raw: self.no_decompress,
            ..GrepQuery::default()
        };
        if query.want == WantedOfLines::Lines {
            query.before = self.before_context.or(self.context).unwrap_or(0);
            query.after = self.after_context.or(self.context).unwrap_or(0);
        }
        for patterns in &self.regexp {
            query.add_patterns(patterns);
        }
        for file in &self.file {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            // No line, no pattern; an empty one is one that matches everything.
            if let Some(text) = text
                .strip_suffix('\n')
                .or((!text.is_empty()).then_some(&text))
            {
                query.add_patterns(text);
            }
        }
        if self.regexp.is_empty() && self.file.is_empty() {
            let pattern = words.next().ok_or(
                "no pattern is given; give one before the files, as in brambling grep error server.log",
            )?;
            let pattern = pattern.to_str().ok_or(
                "the pattern is no UTF-8; write its bytes as (?-u:\\xFF), with the two digits of each",
            )?;
            query.add_patterns(pattern);
        }
        Ok(self.of(query, words.cloned().collect()))
    }

    fn of(&self, query: GrepQuery, paths: Vec<OsString>) -> Grep {
        let recursive = self.recursive || self.dereference_recursive;
        let mut paths: Vec<Vec<u8>> = paths.into_iter().map(OsString::into_vec).collect();
        if paths.is_empty() {
            paths.push(match recursive {
                true => b".".to_vec(),
                false => b"-".to_vec(),
            });
        }
        let mut grep = Grep::new(
            query,
            GrepPaths {
                paths,
                recursive,
                follow: self.dereference_recursive,
                include: self.include.clone(),
                exclude: self.exclude.clone(),
                exclude_dirs: self.exclude_dir.clone(),
            },
        );
        if let Some(bytes) = self.part_bytes {
            grep.unit_bytes = bytes;
        }
        if let Some(bytes) = self.block_bytes {
            grep.block_bytes = bytes as usize;
        }
        grep
    }

    fn want(&self) -> WantedOfLines {
        if self.files_with_matches || self.files_without_match || self.quiet {
            WantedOfLines::Any
        } else if self.count {
            WantedOfLines::Count
        } else {
            WantedOfLines::Lines
        }
    }

    /// How what is found is shown.
    pub(super) fn shows(
        &self,
        what: &Grep,
        matcher: LineMatcher,
        is_terminal: bool,
    ) -> Box<dyn Shows> {
        if self.json {
            let submatches = (!what.query.invert).then_some(matcher);
            return Box::new(JsonLines::new(submatches));
        }
        let paths = &what.paths;
        let names = match (self.with_filename, self.no_filename) {
            (true, _) => true,
            (_, true) => false,
            _ => paths.recursive || paths.paths.len() > 1,
        };
        let has_context = [self.after_context, self.before_context, self.context];
        Box::new(Printer::new(
            PrintChoices {
                names,
                numbers: self.line_number,
                offsets: self.byte_offset,
                only_matching: self.only_matching,
                inverted: what.query.invert,
                count: self.count,
                names_of_matches: self.files_with_matches,
                names_of_others: self.files_without_match,
                separates: has_context.iter().any(Option::is_some) && !self.only_matching,
                color: match self.color {
                    ColorWhen::Always => true,
                    ColorWhen::Auto => is_terminal,
                    ColorWhen::Never => false,
                },
                // As GNU grep, which leaves out what was not asked for.
                strips_dot: paths.recursive && self.paths_are_default(paths),
            },
            matcher,
        ))
    }

    fn paths_are_default(&self, paths: &GrepPaths) -> bool {
        let given = self.words.len() - usize::from(self.regexp.is_empty() && self.file.is_empty());
        given == 0 && paths.paths.len() == 1
    }
}

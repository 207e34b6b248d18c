//! Lines as GNU grep prints them.
//!
//! This module owns names, numbers, separators and colours. [`super::Printing`] calls it. It decides nothing about what is
//! selected.

use super::Shows;
use brambling::grep::{FileStitch, GrepLine, LineMatcher, ListedFile};
use std::borrow::Cow;
use std::io::{Result, Write};

/// What is printed.
pub(super) struct PrintChoices {
    pub(super) names: bool,
    pub(super) numbers: bool,
    pub(super) offsets: bool,
    pub(super) only_matching: bool,
    pub(super) inverted: bool,
    pub(super) count: bool,
    pub(super) names_of_matches: bool,
    pub(super) names_of_others: bool,
    /// `--` stands between lines that do not follow each other.
    pub(super) separates: bool,
    pub(super) color: bool,
    /// `./` in front of names was not given by the user.
    pub(super) strips_dot: bool,
}

/// Colours as GNU grep has them.
const NAME: &str = "35";
const NUMBER: &str = "32";
const SEPARATOR: &str = "36";
const MATCH: &str = "01;31";

pub(super) struct Printer {
    prints: PrintChoices,
    matcher: LineMatcher,
    /// Where the line behind the last printed one begins, in the same file.
    next_offset: Option<u64>,
    has_printed: bool,
}

impl Printer {
    pub(super) fn new(prints: PrintChoices, matcher: LineMatcher) -> Printer {
        Printer {
            prints,
            matcher,
            next_offset: None,
            has_printed: false,
        }
    }

    fn name<'f>(&self, file: &'f ListedFile) -> Cow<'f, [u8]> {
        match &file.path[..] {
            b"-" => Cow::Borrowed(b"(standard input)"),
            path if self.prints.strips_dot => {
                Cow::Borrowed(path.strip_prefix(b"./").unwrap_or(path))
            }
            path => Cow::Borrowed(path),
        }
    }

    fn colored(&self, out: &mut dyn Write, color: &str, text: &[u8]) -> Result<()> {
        if !self.prints.color || text.is_empty() {
            return out.write_all(text);
        }
        write!(out, "\x1b[{color}m\x1b[K")?;
        out.write_all(text)?;
        out.write_all(b"\x1b[m\x1b[K")
    }

    /// What stands in front of a line, or of a match in it.
    fn head(
        &self,
        out: &mut dyn Write,
        file: &ListedFile,
        line: &GrepLine<'_>,
        offset: u64,
    ) -> Result<()> {
        let separator: &[u8] = if line.selected { b":" } else { b"-" };
        if self.prints.names {
            self.colored(out, NAME, &self.name(file))?;
            self.colored(out, SEPARATOR, separator)?;
        }
        let numbers = [
            self.prints.numbers.then_some(line.number),
            self.prints.offsets.then_some(offset),
        ];
        for number in numbers.into_iter().flatten() {
            self.colored(out, NUMBER, number.to_string().as_bytes())?;
            self.colored(out, SEPARATOR, separator)?;
        }
        Ok(())
    }

    fn matching(
        &mut self,
        out: &mut dyn Write,
        file: &ListedFile,
        line: &GrepLine<'_>,
    ) -> Result<()> {
        if !line.selected || self.prints.inverted {
            return Ok(());
        }
        for found in self.matcher.matches_in(line.bytes) {
            if found.is_empty() {
                continue;
            }
            self.head(out, file, line, line.offset + found.start as u64)?;
            self.colored(out, MATCH, &line.bytes[found])?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn whole(&mut self, out: &mut dyn Write, line: &GrepLine<'_>) -> Result<()> {
        let content = line.bytes.strip_suffix(b"\n").unwrap_or(line.bytes);
        if !self.prints.color || line.selected == self.prints.inverted {
            out.write_all(content)?;
            return out.write_all(b"\n");
        }
        let mut at = 0;
        for found in self.matcher.matches_in(line.bytes) {
            out.write_all(&content[at..found.start])?;
            self.colored(out, MATCH, &content[found.clone()])?;
            at = found.end;
        }
        out.write_all(&content[at..])?;
        out.write_all(b"\n")
    }
}

impl Shows for Printer {
    fn begin(&mut self, _: &mut dyn Write, _: &ListedFile) -> Result<()> {
        self.next_offset = None;
        Ok(())
    }

    fn line(&mut self, out: &mut dyn Write, file: &ListedFile, line: &GrepLine<'_>) -> Result<()> {
        if self.prints.only_matching {
            return self.matching(out, file, line);
        }
        if self.prints.separates && self.has_printed && self.next_offset != Some(line.offset) {
            self.colored(out, SEPARATOR, b"--")?;
            out.write_all(b"\n")?;
        }
        self.has_printed = true;
        self.next_offset = Some(line.offset + line.bytes.len() as u64);
        self.head(out, file, line, line.offset)?;
        self.whole(out, line)
    }

    fn end(
        &mut self,
        out: &mut dyn Write,
        file: &ListedFile,
        found: &FileStitch,
        _: u64,
    ) -> Result<()> {
        let has_selected = found.selected() > 0;
        let prints = &self.prints;
        if prints.names_of_matches && has_selected || prints.names_of_others && !has_selected {
            self.colored(out, NAME, &self.name(file))?;
            return out.write_all(b"\n");
        }
        if prints.count && !prints.names_of_matches && !prints.names_of_others {
            if prints.names {
                self.colored(out, NAME, &self.name(file))?;
                self.colored(out, SEPARATOR, b":")?;
            }
            return writeln!(out, "{}", found.selected());
        }
        Ok(())
    }
}

//! Puts what was found in the parts of a file together again, in order.
//!
//! This module owns the numbers of lines, context that reaches over parts, where a file is left early, and the rule that
//! lines of binary files are not told. The driver calls it with every piece of a file. It keeps no more than the lines of
//! context before.

use crate::grep::lines::{FoundLine, PartFound};
use crate::grep::query::{GrepQuery, WantedOfLines};
use std::collections::VecDeque;

/// A line to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrepLine<'a> {
    /// Its number, from 1. Nothing of meaning without [`GrepQuery::numbers`].
    pub number: u64,
    /// Where it begins in its file, in bytes.
    pub offset: u64,
    /// Its bytes, with the newline if it has one.
    pub bytes: &'a [u8],
    /// Whether it is selected; otherwise it is context.
    pub selected: bool,
}

/// A file of which parts come.
#[derive(Debug, Default)]
pub struct FileStitch {
    /// Lines in front of the next piece.
    lines: u64,
    /// Lines of context that may still follow.
    after: usize,
    before: VecDeque<(FoundLine, Vec<u8>)>,
    /// Where the line behind the last one that came would begin.
    next_offset: u64,
    selected: u64,
    binary_from: Option<u64>,
    is_binary_match: bool,
    is_enough: bool,
}

impl FileStitch {
    /// Selected lines so far; of a file that is left early not more than was wanted.
    pub fn selected(&self) -> u64 {
        self.selected
    }

    /// Whether a line of a binary file was selected, and not told.
    pub fn is_binary_match(&self) -> bool {
        self.is_binary_match
    }

    /// Whether nothing that comes changes anything.
    pub fn is_enough(&self) -> bool {
        self.is_enough
    }

    /// Where the file's binary part begins, if it has one.
    pub fn binary_from(&self) -> Option<u64> {
        self.binary_from
    }

    /// Takes the next piece; `tell` is given the lines to be told, in order.
    pub fn push(
        &mut self,
        query: &GrepQuery,
        found: &PartFound,
        tell: &mut dyn FnMut(&GrepLine<'_>),
    ) {
        self.binary_from = self.binary_from.or(found.binary_from);
        match query.want {
            _ if self.is_enough => {}
            WantedOfLines::Lines => {
                for (line, bytes) in found.lines() {
                    self.line(query, line, bytes, tell);
                }
            }
            WantedOfLines::Count | WantedOfLines::Any => {
                let max = query.count_max.unwrap_or(u64::MAX);
                self.selected = (self.selected + found.selected).min(max);
                let is_any = query.want == WantedOfLines::Any && self.selected > 0;
                self.is_enough = is_any || self.selected == max;
            }
        }
        self.lines += found.newlines;
    }

    fn line(
        &mut self,
        query: &GrepQuery,
        line: &FoundLine,
        bytes: &[u8],
        tell: &mut dyn FnMut(&GrepLine<'_>),
    ) {
        if self.is_enough {
            return;
        }
        if line.offset != self.next_offset {
            // Lines are missing in between: nobody could have wanted them.
            self.before.clear();
            self.after = 0;
        }
        self.next_offset = line.offset + line.bytes;
        let is_binary = self.binary_from.is_some_and(|nul| self.next_offset > nul);
        let shown = |line: &FoundLine, number: u64| (number + line.number + 1, line.offset);
        // Behind the last line that is wanted, others are context whether they match or not.
        let is_wanted = self.selected < query.count_max.unwrap_or(u64::MAX);
        if line.selected && is_wanted {
            self.selected += 1;
            if is_binary {
                (self.is_binary_match, self.is_enough) = (true, true);
                return;
            }
            for (line, bytes) in self.before.drain(..) {
                let (number, offset) = (line.number, line.offset);
                let bytes = &bytes[..];
                let selected = false;
                tell(&GrepLine {
                    number,
                    offset,
                    bytes,
                    selected,
                });
            }
            let (number, offset) = shown(line, self.lines);
            let selected = true;
            tell(&GrepLine {
                number,
                offset,
                bytes,
                selected,
            });
            self.after = query.after;
        } else if is_binary {
            self.after = 0;
        } else if self.after > 0 {
            self.after -= 1;
            let (number, offset) = shown(line, self.lines);
            let selected = false;
            tell(&GrepLine {
                number,
                offset,
                bytes,
                selected,
            });
        } else if query.before > 0 {
            if self.before.len() == query.before {
                self.before.pop_front();
            }
            let (number, _) = shown(line, self.lines);
            self.before
                .push_back((FoundLine { number, ..*line }, bytes.to_vec()));
        }
        let is_last = self.selected == query.count_max.unwrap_or(u64::MAX);
        self.is_enough = is_last && self.after == 0;
    }
}

//! The search of one part of a file, as its bytes come.
//!
//! This module owns where lines begin and end across blocks and parts, which lines are kept for context, and the rule
//! for binary files. Lanes and the driver's sequential reader push bytes into it. It does no I/O.
//!
//! A block is searched by one call, not line by line. A line that straddles blocks is put together and searched alone.
//! For context, the first and last lines of each block that is searched are kept as well: whoever puts parts together
//! ([`super::stitch`]) then finds every line that it may want, and drops the rest.

use crate::grep::query::{GrepQuery, LineMatcher, PatternError, WantedOfLines};
use brambling_program::payload;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use memchr::{memchr, memchr_iter, memrchr};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A NUL byte among so many bytes at its beginning makes the whole file binary; GNU grep's first buffer has this size. A
/// first part is not shorter, unless its file is.
pub const HEAD_BYTES: usize = 96 << 10;

/// A line that was found, or that is near one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLine {
    /// Where it begins in its file.
    pub offset: u64,
    /// How many lines of what was told before are in front of it. Nothing without [`GrepQuery::numbers`].
    pub number: u64,
    /// Its bytes, with the newline if it has one.
    pub bytes: u64,
    /// Whether it is selected. Otherwise it may be context.
    pub selected: bool,
}

/// What was found in a part of a file, or in a piece of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFound {
    /// The file, by its place in the listing.
    pub file: u32,
    /// By offset.
    pub lines: Vec<FoundLine>,
    /// Their bytes, in a row.
    #[serde(with = "serde_bytes")]
    pub text: Vec<u8>,
    /// Lines that end here. Nothing without [`GrepQuery::numbers`].
    pub newlines: u64,
    /// Lines that are selected.
    pub selected: u64,
    /// Bytes that were searched.
    pub searched_bytes: u64,
    /// From this byte on the file is binary: lines that end behind it are not told.
    pub binary_from: Option<u64>,
    /// Why the rest of the part was not searched.
    pub trouble: Option<String>,
}
payload!(PartFound, |found| found.held_bytes());

impl PartFound {
    /// Memory that it holds, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.text.capacity() + self.lines.capacity() * size_of::<FoundLine>()
    }

    /// Whether nothing would be lost without it.
    pub fn is_empty(&self) -> bool {
        let counts = self.newlines + self.selected + self.searched_bytes;
        counts == 0 && self.lines.is_empty() && self.trouble.is_none()
    }

    /// Its lines, each with its bytes.
    pub fn lines(&self) -> impl Iterator<Item = (&FoundLine, &[u8])> {
        let mut at = 0;
        self.lines.iter().map(move |line| {
            let from = at;
            at += line.bytes as usize;
            (line, &self.text[from..at])
        })
    }
}

/// What searches blocks: made once a lane, used for every part.
pub struct LineSearch {
    matcher: LineMatcher,
    searcher: Searcher,
    query: GrepQuery,
}

impl LineSearch {
    /// For a query.
    ///
    /// # Errors
    /// A pattern that is none.
    pub fn new(query: &GrepQuery) -> Result<LineSearch, PatternError> {
        let (before, after) = match query.tells_lines() {
            true => (query.before, query.after),
            false => (0, 0),
        };
        let searcher = SearcherBuilder::new()
            .line_number(false)
            .invert_match(query.invert)
            .before_context(before)
            .after_context(after)
            .binary_detection(BinaryDetection::none())
            .bom_sniffing(false)
            .build();
        Ok(LineSearch {
            matcher: query.matcher()?,
            searcher,
            query: query.clone(),
        })
    }
}

/// The search of one part.
pub struct PartSearch {
    /// Where the part ends: lines that begin before belong to it.
    end: u64,
    /// Where the bytes that come next lie in the file.
    at: u64,
    /// The first line that begins in the part has not come yet.
    skips: bool,
    /// The file's first bytes, until there are enough to say whether it is binary.
    head: Vec<u8>,
    lacks_head: bool,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// Selected lines of the whole part.
    selected: u64,
    is_binary: bool,
    is_done: bool,
    found: PartFound,
}

impl PartSearch {
    /// The search of a range of a file. Its bytes are pushed from [`PartSearch::reads_from`] on.
    pub fn new(file: u32, range: Range<u64>) -> PartSearch {
        PartSearch {
            end: range.end,
            at: PartSearch::reads_from(&range),
            skips: range.start > 0,
            head: Vec::new(),
            lacks_head: range.start == 0,
            line: Vec::new(),
            selected: 0,
            is_binary: false,
            is_done: range.is_empty(),
            found: PartFound {
                file,
                ..PartFound::default()
            },
        }
    }

    /// Where a range is read from: the byte before it says whether a line begins with it.
    pub fn reads_from(range: &Range<u64>) -> u64 {
        range.start.saturating_sub(1)
    }

    /// Whether nothing that comes can change what is found.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Bytes of a line whose end has not come yet.
    pub fn line_bytes(&self) -> usize {
        self.line.len()
    }

    /// What has been found since the last call.
    pub fn take(&mut self) -> PartFound {
        let file = self.found.file;
        let next = PartFound {
            file,
            ..PartFound::default()
        };
        std::mem::replace(&mut self.found, next)
    }

    /// What has been found and not been taken.
    pub fn found(&self) -> &PartFound {
        &self.found
    }

    /// The rest of the part cannot be searched.
    pub fn give_up(&mut self, why: String) {
        self.found.trouble = Some(why);
        self.is_done = true;
    }

    /// Takes the next bytes of the file.
    pub fn push(&mut self, with: &mut LineSearch, block: &[u8]) {
        if !self.lacks_head {
            return self.push_on(with, block);
        }
        if self.head.len() + block.len() < HEAD_BYTES {
            return self.head.extend_from_slice(block);
        }
        self.lacks_head = false;
        if self.head.is_empty() {
            return self.push_on(with, block);
        }
        self.head.extend_from_slice(block);
        let head = std::mem::take(&mut self.head);
        self.push_on(with, &head);
    }

    fn push_on(&mut self, with: &mut LineSearch, block: &[u8]) {
        if self.is_done {
            return;
        }
        self.look_for_nul(&with.query, block);
        let mut rest = block;
        if self.skips {
            let newline = memchr(b'\n', rest);
            self.skips = newline.is_none();
            self.advance(&mut rest, newline.map_or(block.len(), |it| it + 1));
        }
        if !self.line.is_empty() {
            let Some(newline) = memchr(b'\n', rest) else {
                self.line.extend_from_slice(rest);
                self.at += rest.len() as u64;
                return;
            };
            let mut line = std::mem::take(&mut self.line);
            let begins = self.at - line.len() as u64;
            line.extend_from_slice(self.advance(&mut rest, newline + 1));
            self.search(with, &line, begins);
        }
        if self.at >= self.end {
            self.is_done = true;
        }
        if self.is_done || rest.is_empty() {
            return;
        }
        // Lines that begin before the end, as far as they are whole.
        let own = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let last = match rest.get(own - 1..) {
            Some(behind) => memchr(b'\n', behind).map(|newline| own - 1 + newline),
            None => None,
        };
        let is_last = last.is_some();
        let last = last.or_else(|| memrchr(b'\n', &rest[..own.min(rest.len())]));
        if let Some(newline) = last {
            let begins = self.at;
            let whole = self.advance(&mut rest, newline + 1);
            self.search(with, whole, begins);
        }
        if is_last {
            self.is_done = true;
        } else if !self.is_done {
            self.line.extend_from_slice(rest);
            self.at += rest.len() as u64;
        }
    }

    /// The file has no more bytes.
    pub fn finish(&mut self, with: &mut LineSearch) {
        if std::mem::take(&mut self.lacks_head) {
            let head = std::mem::take(&mut self.head);
            self.push_on(with, &head);
        }
        if !self.is_done && !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            let begins = self.at - line.len() as u64;
            self.search(with, &line, begins);
        }
        self.is_done = true;
    }

    fn advance<'b>(&mut self, rest: &mut &'b [u8], by: usize) -> &'b [u8] {
        let (head, tail) = rest.split_at(by);
        *rest = tail;
        self.at += by as u64;
        head
    }

    fn look_for_nul(&mut self, query: &GrepQuery, block: &[u8]) {
        if self.is_binary || query.text || !query.tells_lines() {
            return;
        }
        if let Some(nul) = memchr(0, block) {
            self.is_binary = true;
            let nul = self.at + nul as u64;
            let is_all = nul < HEAD_BYTES as u64;
            self.found.binary_from = Some(if is_all { 0 } else { nul });
        }
    }

    /// Searches whole lines that begin at a place of the file.
    fn search(&mut self, with: &mut LineSearch, lines: &[u8], begins: u64) {
        let query = &with.query;
        self.found.searched_bytes += lines.len() as u64;
        let first = self.found.lines.len();
        let mut taking = Taking {
            query,
            part: &mut self.found,
            begins,
            selected: &mut self.selected,
            is_enough: false,
            is_binary: self.is_binary,
        };
        let searched = with
            .searcher
            .search_slice(&with.matcher.0, lines, &mut taking);
        searched.expect("a slice needs no I/O, and the sink refuses nothing");
        self.is_done |= taking.is_enough;
        if query.tells_lines() {
            // Also of a block that ends the search: lines before its end may follow a line of an earlier one.
            self.add_edges(query, first, lines, begins);
        }
        if query.numbers {
            self.number(first, lines, begins);
        }
    }

    /// Adds the first and last lines, which may be context of what was found before and behind.
    fn add_edges(&mut self, query: &GrepQuery, first: usize, lines: &[u8], begins: u64) {
        if query.before == 0 && query.after == 0 {
            return;
        }
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        let mut at = 0;
        while head.len() < query.after && at < lines.len() {
            let end = memchr(b'\n', &lines[at..]).map_or(lines.len(), |it| at + it + 1);
            head.push(at..end);
            at = end;
        }
        let mut end = lines.len();
        while tail.len() < query.before && end > 0 {
            let from = memrchr(b'\n', &lines[..end - 1]).map_or(0, |it| it + 1);
            tail.push(from..end);
            end = from;
        }
        let mut all: Vec<FoundLine> = self.found.lines.drain(first..).collect();
        let kept_bytes: u64 = all.iter().map(|line| line.bytes).sum();
        let edges = head.into_iter().chain(tail).map(|range| FoundLine {
            offset: begins + range.start as u64,
            number: 0,
            bytes: range.len() as u64,
            selected: false,
        });
        all.extend(edges);
        // Stable: of two that are the same line, the one that was found comes first and stays.
        all.sort_by_key(|line| line.offset);
        all.dedup_by_key(|line| line.offset);
        let text = self.found.text.len() - kept_bytes as usize;
        self.found.text.truncate(text);
        for line in &all {
            let from = (line.offset - begins) as usize;
            let bytes = &lines[from..from + line.bytes as usize];
            self.found.text.extend_from_slice(bytes);
        }
        self.found.lines.extend(all);
    }

    /// Counts newlines once, over all lines.
    fn number(&mut self, first: usize, lines: &[u8], begins: u64) {
        let mut at = 0;
        let newlines = |range: Range<usize>| memchr_iter(b'\n', &lines[range]).count() as u64;
        for line in &mut self.found.lines[first..] {
            let offset = (line.offset - begins) as usize;
            self.found.newlines += newlines(at..offset);
            line.number = self.found.newlines;
            at = offset;
        }
        self.found.newlines += newlines(at..lines.len());
    }
}

/// Takes what the searcher finds in a block.
struct Taking<'a> {
    query: &'a GrepQuery,
    part: &'a mut PartFound,
    begins: u64,
    /// Selected lines of the whole part.
    selected: &'a mut u64,
    is_enough: bool,
    is_binary: bool,
}

impl Taking<'_> {
    fn keep(&mut self, at: u64, bytes: &[u8], selected: bool) {
        self.part.lines.push(FoundLine {
            offset: self.begins + at,
            number: 0,
            bytes: bytes.len() as u64,
            selected,
        });
        self.part.text.extend_from_slice(bytes);
    }
}

impl Sink for Taking<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, std::io::Error> {
        *self.selected += 1;
        self.part.selected += 1;
        let selected = *self.selected;
        let max = self.query.count_max.unwrap_or(u64::MAX);
        self.is_enough = match self.query.want {
            WantedOfLines::Any => true,
            WantedOfLines::Count => selected >= max,
            WantedOfLines::Lines => {
                self.keep(found.absolute_byte_offset(), found.bytes(), true);
                // Those behind the last may be context of it. Of a binary file one line is enough.
                let last = max.saturating_add(self.query.after as u64);
                selected > last || self.is_binary && self.is_behind_nul()
            }
        };
        Ok(!self.is_enough)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, std::io::Error> {
        self.keep(line.absolute_byte_offset(), line.bytes(), false);
        Ok(true)
    }
}

impl Taking<'_> {
    /// Whether the last line is of the binary part of the file. A NUL byte of which an earlier piece has told lies before all
    /// that comes.
    fn is_behind_nul(&self) -> bool {
        let nul = self.part.binary_from.unwrap_or(0);
        let last = self.part.lines.last();
        last.is_some_and(|line| line.offset + line.bytes > nul)
    }
}

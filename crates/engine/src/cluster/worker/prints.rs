//! What kernels of a job print on a worker, until its client has shown it. Kernels never wait for the network: lines wait here, within
//! bounds, and a thread that has nothing to do with kernels sends them.

use brambling_memory::held::{self, Held};
use brambling_protocol::JobKey;
use brambling_protocol::message::{Message, PrintStream, PrintedLine, PrintedLines};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// What the lines of a job that wait may take; the oldest are left out.
const ROOM_BYTES: usize = 1 << 20;
/// Lines are sent together up to so much.
const BATCH_BYTES: usize = 1 << 16;
/// Longer lines are cut.
const LINE_BYTES_MAX: usize = 1 << 13;
/// So many lines may have begun at once; of more the oldest ends.
const BEGUN_MAX: usize = 16;
/// Names of stages that are longer are cut.
const STAGE_LETTERS_MAX: usize = 200;
/// What a line takes beside its text.
const LINE_BYTES_BESIDE: usize = 64;

/// Where the kernels of a job print on a worker: what they print here reaches the job's client, and so does what they have loaded.
///
/// A line is sent when it ends; what has not ended when the job does ends there. Stages have lines of their own. What is before a carriage
/// return is written over, as on a terminal. Printing does not wait: of lines that come faster than the client takes them the last mebibyte
/// is kept, and the client is told how many were left out.
#[derive(Clone, Default)]
pub struct Prints(Arc<Mutex<UnshownPrints>>);

impl std::fmt::Debug for Prints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prints")
    }
}

impl Prints {
    /// Prints a text, of any number of lines, for a stage; an empty name stands for none. False: the job is over, and the text goes nowhere.
    pub fn print(&self, stream: PrintStream, stage: &str, text: &str) -> bool {
        self.waiting().print(stream, stage, text)
    }

    /// Tells the client what the job's kernels have loaded on this worker: names, and versions, which the client compares with those of other
    /// workers. Each call tells all of it.
    pub fn loaded(&self, packages: &[(String, String)]) {
        self.waiting().loaded(packages);
    }

    /// Whether it was told what they have loaded.
    pub fn has_loaded(&self) -> bool {
        !self.waiting().packages.is_empty()
    }

    /// Whether these are the same job's on the same worker.
    pub fn are(&self, other: &Prints) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn waiting(&self) -> Held<'_, UnshownPrints> {
        held::lock(&self.0)
    }
}

/// A line that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
struct BufferedLine {
    stream: PrintStream,
    stage: Arc<str>,
    text: String,
    cut_bytes: u64,
}

impl BufferedLine {
    fn bytes(&self) -> usize {
        self.stage.len() + self.text.len() + LINE_BYTES_BESIDE
    }
}

/// A line that has not ended.
struct Begun {
    stream: PrintStream,
    stage: Arc<str>,
    text: String,
    cut_bytes: u64,
    /// What comes next is written over it.
    has_returned: bool,
}

impl Begun {
    fn new(stream: PrintStream, stage: &str) -> Begun {
        Begun {
            stream,
            stage: stage.into(),
            text: String::new(),
            cut_bytes: 0,
            has_returned: false,
        }
    }

    /// Goes on with a text without ends of lines.
    fn add(&mut self, text: &str) {
        for (place, part) in text.split('\r').enumerate() {
            self.has_returned |= place > 0;
            if part.is_empty() {
                continue;
            }
            if std::mem::take(&mut self.has_returned) {
                self.text.clear();
                self.cut_bytes = 0;
            }
            let room = match self.cut_bytes {
                0 => LINE_BYTES_MAX - self.text.len(),
                _ => 0,
            };
            let here = boundary(part, room);
            self.text.push_str(&part[..here]);
            self.cut_bytes += (part.len() - here) as u64;
        }
    }

    fn end(&mut self) -> BufferedLine {
        self.has_returned = false;
        BufferedLine {
            stream: self.stream,
            stage: self.stage.clone(),
            text: std::mem::take(&mut self.text),
            cut_bytes: std::mem::take(&mut self.cut_bytes),
        }
    }
}

/// The most bytes of a text, up to so many, that are whole letters.
fn boundary(text: &str, bytes_max: usize) -> usize {
    let mut bytes = bytes_max.min(text.len());
    while !text.is_char_boundary(bytes) {
        bytes -= 1;
    }
    bytes
}

/// Lines that are sent together.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Batch {
    number: u64,
    left_out: u64,
    lines: Vec<BufferedLine>,
}

impl Batch {
    pub(super) fn message(&self, key: JobKey) -> Message<'_> {
        let lines = self.lines.iter().map(|line| PrintedLine {
            stream: line.stream,
            stage: &line.stage,
            text: &line.text,
            cut_bytes: line.cut_bytes,
        });
        Message::Printed(PrintedLines {
            key,
            number: self.number,
            left_out: self.left_out,
            lines: lines.collect(),
        })
    }
}

/// What has not been shown.
#[derive(Default)]
pub(super) struct UnshownPrints {
    lines: VecDeque<BufferedLine>,
    /// What those take.
    bytes: usize,
    /// How many before them found no place.
    left_out: u64,
    /// Of each stage and stream, in the order in which they were gone on with.
    begun: Vec<Begun>,
    /// Sent, and not known to be shown: one, until all is asked for.
    sent: VecDeque<Batch>,
    next: u64,
    /// What was sent goes once more: the link is a new one.
    again: bool,
    is_over: bool,
    /// What kernels have loaded, and whether the client has heard it.
    packages: Vec<(String, String)>,
    are_unsaid: bool,
}

impl UnshownPrints {
    fn print(&mut self, stream: PrintStream, stage: &str, text: &str) -> bool {
        if self.is_over {
            return false;
        }
        let mut begun = self.take_begun(stream, stage);
        for piece in text.split_inclusive('\n') {
            match piece.strip_suffix('\n') {
                None => begun.add(piece),
                Some(last) => {
                    begun.add(last);
                    self.push(begun.end());
                }
            }
        }
        if !(begun.text.is_empty() && begun.cut_bytes == 0) {
            self.begun.push(begun);
        }
        if self.begun.len() > BEGUN_MAX {
            let line = self.begun.remove(0).end();
            self.push(line);
        }
        true
    }

    /// The line that a stage has begun, or begins.
    fn take_begun(&mut self, stream: PrintStream, stage: &str) -> Begun {
        let end = stage.char_indices().nth(STAGE_LETTERS_MAX);
        let stage = &stage[..end.map_or(stage.len(), |(end, _)| end)];
        let mut begun = self.begun.iter();
        let place = begun.position(|it| it.stream == stream && *it.stage == *stage);
        place.map_or_else(
            || Begun::new(stream, stage),
            |place| self.begun.remove(place),
        )
    }

    fn push(&mut self, line: BufferedLine) {
        self.bytes += line.bytes();
        self.lines.push_back(line);
        while self.bytes > ROOM_BYTES {
            let oldest = self.lines.pop_front().expect("they take something");
            self.bytes -= oldest.bytes();
            self.left_out += 1;
        }
    }

    fn loaded(&mut self, packages: &[(String, String)]) {
        if self.packages != packages {
            self.packages = packages.to_vec();
            self.are_unsaid = true;
        }
    }

    /// Whether the client has not heard what was loaded.
    pub(super) fn has_unsaid_packages(&self) -> bool {
        self.are_unsaid
    }

    /// What was loaded: it is said now.
    pub(super) fn say_packages(&mut self) -> &[(String, String)] {
        self.are_unsaid = false;
        &self.packages
    }

    /// The client has another link, and may not have what was sent on the one before.
    pub(super) fn repeat(&mut self) {
        self.again = true;
        self.are_unsaid = !self.packages.is_empty();
    }

    /// What is to be sent now: nothing while the client has not shown what was sent.
    pub(super) fn next(&mut self) -> Option<&Batch> {
        match std::mem::take(&mut self.again) && !self.sent.is_empty() {
            true => {}
            false if self.sent.is_empty() && self.cut() => {}
            false => return None,
        }
        self.sent.front()
    }

    /// The client has shown what it was sent, up to this number.
    pub(super) fn on_shown(&mut self, number: u64) {
        self.sent.retain(|batch| batch.number > number);
    }

    /// All that is not known to be shown: the job is over, and nothing is printed any more.
    pub(super) fn close(&mut self) -> &VecDeque<Batch> {
        self.is_over = true;
        for mut begun in std::mem::take(&mut self.begun) {
            self.push(begun.end());
        }
        while self.cut() {}
        &self.sent
    }

    /// Makes a batch of the oldest lines, if there are any.
    fn cut(&mut self) -> bool {
        let mut lines = Vec::new();
        let mut room = BATCH_BYTES;
        while let Some(line) = self.lines.front()
            && (lines.is_empty() || line.bytes() <= room)
        {
            room = room.saturating_sub(line.bytes());
            self.bytes -= line.bytes();
            lines.extend(self.lines.pop_front());
        }
        let left_out = std::mem::take(&mut self.left_out);
        if lines.is_empty() {
            return false;
        }
        self.sent.push_back(Batch {
            number: self.next,
            left_out,
            lines,
        });
        self.next += 1;
        true
    }
}

#[cfg(test)]
mod tests;

//! A program for people: as indented text and as a Mermaid picture.

use crate::{BlockId, Count, ExchangeId, ProgramNode, Spec, StageId, StageKind, StreamSpec, Use};
use std::fmt::{self, Write};

impl Spec {
    fn count_text(&self, count: Count) -> String {
        match count {
            Count::Fixed(count) => count.to_string(),
            Count::Symbol(symbol) => self.symbols[symbol as usize].clone(),
        }
    }

    /// What a streaming stage reads and writes.
    fn streams_text(&self, streams: &StreamSpec) -> String {
        let name = |id: &ExchangeId| self.exchanges[id.index()].name.as_str();
        let mut text = String::new();
        if !streams.inputs.is_empty() {
            let inputs: Vec<&str> = streams.inputs.iter().map(name).collect();
            text += &format!(" from {}", inputs.join(", "));
        }
        if let Some(output) = &streams.output {
            text += &format!(" to {}", name(output));
        }
        if streams.repeatable {
            text += "  repeatable";
        }
        text
    }

    fn stage_text(&self, id: StageId) -> String {
        let stage = &self.stages[id.index()];
        let list = |wanted: Use| {
            let names = stage.uses.iter().filter(|(_, how)| *how == wanted);
            names
                .map(|(dataset, _)| self.datasets[dataset.index()].name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (what, through) = match stage.kind {
            StageKind::Compute => ("compute", String::new()),
            StageKind::Signal => ("signal", String::new()),
            StageKind::Scatter(exchange) => (
                "scatter",
                format!(" to {}", self.exchanges[exchange.index()].name),
            ),
            StageKind::Gather(exchange) => (
                "gather",
                format!(" from {}", self.exchanges[exchange.index()].name),
            ),
            StageKind::Stream(stream) => {
                ("stream", self.streams_text(&self.streams[stream.index()]))
            }
        };
        let mut text = format!("{id} {what} {}{through}", stage.name);
        for (word, how) in [
            ("reads", Use::Read),
            ("writes", Use::Write),
            ("updates", Use::Update),
        ] {
            let names = list(how);
            if !names.is_empty() {
                write!(text, "  {word} {names}").expect("writing to a string");
            }
        }
        text
    }

    fn write_block(&self, f: &mut fmt::Formatter<'_>, block: BlockId, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        for node in &self.blocks[block.index()] {
            match *node {
                ProgramNode::Stage(stage) => writeln!(f, "{indent}{}", self.stage_text(stage))?,
                ProgramNode::Repeat { turns, body } => {
                    writeln!(f, "{indent}repeat {turns}")?;
                    self.write_block(f, body, depth + 1)?;
                }
                ProgramNode::While { test, body, .. } => {
                    writeln!(f, "{indent}while {}", self.stage_text(test))?;
                    self.write_block(f, body, depth + 1)?;
                }
                ProgramNode::Branch {
                    signal,
                    then,
                    otherwise,
                } => {
                    writeln!(f, "{indent}if {}", self.stages[signal.index()].name)?;
                    self.write_block(f, then, depth + 1)?;
                    if !self.blocks[otherwise.index()].is_empty() {
                        writeln!(f, "{indent}else")?;
                        self.write_block(f, otherwise, depth + 1)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A Mermaid flowchart: stages as boxes (signals as diamonds) in program order, loops and branches as
    /// frames, exchanges as thick arrows. Paste it where Mermaid is drawn, such as a Markdown page.
    pub fn picture(&self) -> String {
        let mut picture = Picture {
            spec: self,
            boxes: String::from("flowchart TD\n"),
            arrows: String::new(),
            scatters: vec![None; self.exchanges.len()],
            joints: 0,
        };
        for id in (0..self.stages.len() as u32).map(StageId) {
            if let Some(exchange) = self.sends_to(id) {
                picture.scatters[exchange.index()].get_or_insert(id);
            }
        }
        picture.block(Spec::ROOT, 1, Vec::new());
        picture.boxes + &picture.arrows
    }
}

/// A picture as far as it is drawn. Arrows come after all frames: Mermaid puts a box into every frame that
/// names it, and an arrow names both of its ends.
struct Picture<'a> {
    spec: &'a Spec,
    boxes: String,
    arrows: String,
    /// By exchange.
    scatters: Vec<Option<StageId>>,
    /// How many arrows were gathered in a point.
    joints: u32,
}

/// What may come last in a block, beyond which its arrows are gathered in a point: each branch adds one, and what follows would have an
/// arrow from all of them.
const ENDS_MAX: usize = 8;

/// Where arrows begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stage(StageId),
    Joint(u32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Stage(stage) => write!(f, "{stage}"),
            End::Joint(number) => write!(f, "j{number}"),
        }
    }
}

impl Picture<'_> {
    /// Draws a block that begins after `ends`; the result is what comes last in it.
    fn block(&mut self, block: BlockId, depth: usize, mut ends: Vec<End>) -> Vec<End> {
        let spec = self.spec;
        for node in &spec.blocks[block.index()] {
            ends = match *node {
                ProgramNode::Stage(stage) => self.stage(stage, depth, ends),
                ProgramNode::Repeat { turns, body } => {
                    self.begin(&format!("repeat {turns}"), body, depth);
                    let ends = self.block(body, depth + 1, ends);
                    self.end(depth);
                    ends
                }
                ProgramNode::While { test, body, .. } => {
                    let title = format!("while {}", spec.stages[test.index()].name);
                    self.begin(&title, body, depth);
                    let ends = self.stage(test, depth + 1, ends);
                    let ends = self.block(body, depth + 1, ends);
                    self.end(depth);
                    ends
                }
                ProgramNode::Branch {
                    signal,
                    then,
                    otherwise,
                } => {
                    let title = format!("if {}", spec.stages[signal.index()].name);
                    self.begin(&title, then, depth);
                    let mut taken = self.block(then, depth + 1, ends.clone());
                    self.end(depth);
                    let mut other = ends;
                    if !spec.blocks[otherwise.index()].is_empty() {
                        self.begin("else", otherwise, depth);
                        other = self.block(otherwise, depth + 1, other);
                        self.end(depth);
                    }
                    // An empty side ends where the branch began: an end that both sides have gets
                    // one arrow.
                    other.retain(|stage| !taken.contains(stage));
                    taken.extend(other);
                    self.gathered(taken, depth)
                }
            };
        }
        ends
    }

    /// The ends as few as their block may have.
    fn gathered(&mut self, ends: Vec<End>, depth: usize) -> Vec<End> {
        if ends.len() <= ENDS_MAX {
            return ends;
        }
        let joint = End::Joint(self.joints);
        self.joints += 1;
        let indent = "  ".repeat(depth);
        self.boxes.push_str(&format!("{indent}{joint}(( ))\n"));
        for end in ends {
            self.arrows.push_str(&format!("  {end} --> {joint}\n"));
        }
        vec![joint]
    }

    fn begin(&mut self, title: &str, block: BlockId, depth: usize) {
        let indent = "  ".repeat(depth);
        let (id, title) = (block.0, label(title));
        // Without a direction, Mermaid lays out the frame across when no arrow leaves it.
        self.boxes.push_str(&format!(
            "{indent}subgraph b{id}[{title}]\n{indent}  direction TB\n"
        ));
    }

    fn end(&mut self, depth: usize) {
        self.boxes.push_str(&format!("{}end\n", "  ".repeat(depth)));
    }

    fn stage(&mut self, id: StageId, depth: usize, before: Vec<End>) -> Vec<End> {
        let stage = &self.spec.stages[id.index()];
        let name = &stage.name;
        let text = match stage.kind {
            StageKind::Compute => format!("[{}]", label(name)),
            StageKind::Signal => format!("{{{}}}", label(name)),
            StageKind::Scatter(_) => format!("[{}]", label(&format!("scatter {name}"))),
            StageKind::Gather(_) => format!("[{}]", label(&format!("gather {name}"))),
            StageKind::Stream(_) => format!("[{}]", label(&format!("stream {name}"))),
        };
        let indent = "  ".repeat(depth);
        self.boxes.push_str(&format!("{indent}{id}{text}\n"));
        let from = self.spec.takes_from(id).iter();
        let scatters: Vec<StageId> = from.filter_map(|it| self.scatters[it.index()]).collect();
        for earlier in before {
            if !scatters.iter().any(|it| End::Stage(*it) == earlier) {
                self.arrows.push_str(&format!("  {earlier} --> {id}\n"));
            }
        }
        for scatter in scatters {
            self.arrows.push_str(&format!("  {scatter} ==> {id}\n"));
        }
        vec![End::Stage(id)]
    }
}

/// Mermaid's quoted text; what would end it or be read as markup is written as an entity.
fn label(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("#quot;"),
            '<' => quoted.push_str("#lt;"),
            '>' => quoted.push_str("#gt;"),
            '&' => quoted.push_str("#amp;"),
            '#' => quoted.push_str("#35;"),
            '`' => quoted.push_str("#96;"),
            '\n' => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {} (seed {})", self.name, self.seed)?;
        for dataset in &self.datasets {
            writeln!(
                f,
                "  {}: {} × {}",
                dataset.name,
                self.count_text(dataset.count),
                dataset.payload
            )?;
        }
        self.write_block(f, Spec::ROOT, 1)
    }
}

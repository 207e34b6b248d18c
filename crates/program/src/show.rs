//! A program for people: as indented text and as a Mermaid picture.

use crate::{BlockId, Count, Node, Spec, StageId, StageKind, Use};
use std::fmt::{self, Write};

impl Spec {
    fn count_text(&self, count: Count) -> String {
        match count {
            Count::Fixed(count) => count.to_string(),
            Count::Symbol(symbol) => self.symbols[symbol as usize].clone(),
        }
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
                Node::Stage(stage) => writeln!(f, "{indent}{}", self.stage_text(stage))?,
                Node::Repeat { turns, body } => {
                    writeln!(f, "{indent}repeat {turns}")?;
                    self.write_block(f, body, depth + 1)?;
                }
                Node::While { test, body, .. } => {
                    writeln!(f, "{indent}while {}", self.stage_text(test))?;
                    self.write_block(f, body, depth + 1)?;
                }
                Node::Branch {
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

    /// A Mermaid flowchart: stages as boxes in program order, loops and branches as frames, exchanges as
    /// thick arrows. Paste it where Mermaid is drawn, such as a Markdown page.
    pub fn picture(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        let mut last = None;
        self.draw_block(&mut out, Spec::ROOT, 1, &mut last);
        for exchange in 0..self.exchanges.len() {
            let of = |scatter: bool| {
                self.stages.iter().position(|stage| match stage.kind {
                    StageKind::Scatter(id) => scatter && id.index() == exchange,
                    StageKind::Gather(id) => !scatter && id.index() == exchange,
                    StageKind::Compute | StageKind::Signal => false,
                })
            };
            if let (Some(scatter), Some(gather)) = (of(true), of(false)) {
                let _ = writeln!(
                    out,
                    "  s{scatter} == {} ==> s{gather}",
                    label(&self.exchanges[exchange].name)
                );
            }
        }
        out
    }

    fn draw_block(
        &self,
        out: &mut String,
        block: BlockId,
        depth: usize,
        last: &mut Option<StageId>,
    ) {
        let indent = "  ".repeat(depth);
        for node in &self.blocks[block.index()] {
            let mut frame = |title: String,
                             blocks: &[BlockId],
                             first: Option<StageId>,
                             last: &mut Option<StageId>| {
                let _ = writeln!(out, "{indent}subgraph b{}[{}]", blocks[0].0, label(&title));
                if let Some(stage) = first {
                    self.draw_stage(out, depth + 1, stage, last);
                }
                for block in blocks {
                    self.draw_block(out, *block, depth + 1, last);
                }
                let _ = writeln!(out, "{indent}end");
            };
            match *node {
                Node::Stage(stage) => self.draw_stage(out, depth, stage, last),
                Node::Repeat { turns, body } => {
                    frame(format!("repeat {turns}"), &[body], None, last)
                }
                Node::While { test, body, .. } => {
                    frame(
                        format!("while {}", self.stages[test.index()].name),
                        &[body],
                        Some(test),
                        last,
                    );
                }
                Node::Branch {
                    signal,
                    then,
                    otherwise,
                } => {
                    let title = format!("if {}", self.stages[signal.index()].name);
                    frame(title, &[then, otherwise], None, last);
                }
            }
        }
    }

    fn draw_stage(&self, out: &mut String, depth: usize, id: StageId, last: &mut Option<StageId>) {
        let indent = "  ".repeat(depth);
        let _ = writeln!(
            out,
            "{indent}{id}[{}]",
            label(&self.stages[id.index()].name)
        );
        if let Some(before) = last.replace(id) {
            let _ = writeln!(out, "{indent}{before} --> {id}");
        }
    }
}

/// Mermaid's quoted text; a quote inside is written as its entity.
fn label(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "#quot;"))
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

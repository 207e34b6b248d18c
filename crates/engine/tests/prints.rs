//! What kernels print on workers, as their client has it: here kernels in Rust, and links that break.

mod support;

use brambling::cluster::{Cluster, PrintStream, Prints, Source, WorkerId, WorkerProcess};
use brambling::prelude::*;
use brambling::program::{Bindings, Plan};
use brambling::{Caller, Interrupted, Printed, PrintedWhat, QuietCaller};
use std::sync::Arc;
use std::time::Duration;
use support::cluster::{controller, options, threads, worker};

const TURNS: u64 = 200;

/// Prints a line in each turn.
fn talkative(prints: Prints) -> Program {
    let mut p = Program::new("talkative");
    let parts = p.load("parts", 2, Partitioner::Opaque, |part, _| part);
    p.keep(&parts);
    p.repeat(TURNS, |p| {
        let prints = prints.clone();
        p.compute("talk").update(&parts).run_with_context(
            move |context: &mut Context<'_>, _: &mut u32| {
                std::thread::sleep(Duration::from_millis(2));
                let text = format!("turn {} of {}\n", context.turn(), context.partition());
                assert!(prints.print(PrintStream::Err, "talk", &text));
            },
        );
    });
    p
}

struct Talks;

impl Source for Talks {
    fn program(&self, _: &[u8], prints: &Prints) -> Result<Program, String> {
        Ok(talkative(prints.clone()))
    }
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
}

/// A client that notes what it is told, and breaks the links of a worker now and then.
struct Notes<'a> {
    lines: Vec<Printed>,
    cut: Option<&'a WorkerProcess>,
}

impl Caller for Notes<'_> {
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
    fn printed(&mut self, lines: &[Printed]) {
        let before = self.lines.len() / 40;
        self.lines.extend_from_slice(lines);
        if let Some(worker) = self.cut.filter(|_| self.lines.len() / 40 > before) {
            // Before it is told that these are shown: they come again.
            worker.cut();
        }
    }
}

fn check(cut: bool) {
    let (_controller, at) = controller(options());
    let workers = [(); 2].map(|()| worker(&at, threads(1), Talks));
    let cluster = Cluster::connect(&at).unwrap();
    let plan = Plan::compile(Arc::new(talkative(Prints::default())), &Bindings::default()).unwrap();
    let mut notes = Notes {
        lines: Vec::new(),
        cut: cut.then_some(&workers[1]),
    };
    let ran = cluster.run(plan, b"any", 1, &mut notes).map(drop);
    assert!(ran.is_ok(), "{ran:?}");
    for (index, id) in [WorkerId(1), WorkerId(2)].into_iter().enumerate() {
        let here = notes.lines.iter().filter(|line| line.worker == id);
        let here: Vec<String> = here.map(Printed::to_string).collect();
        let expected = (0..TURNS).map(|turn| format!("[{id}, talk] turn {turn} of {index}"));
        assert_eq!(here, expected.collect::<Vec<_>>());
    }
    let is_line = |it: &Printed| matches!(it.what, PrintedWhat::Line { .. });
    assert!(
        notes
            .lines
            .iter()
            .all(|it| it.stream == PrintStream::Err && is_line(it))
    );
}

#[test]
fn lines_come_in_the_order_of_each_worker() {
    check(false);
}

#[test]
fn lines_that_come_again_on_another_link_are_shown_once() {
    check(true);
}

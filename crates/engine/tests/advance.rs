//! How far a job is, as its caller is told.

use brambling::prelude::*;
use brambling::{Advance, Caller, Interrupted};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Notes what it is told, and lets the job's last stage go on.
#[derive(Default)]
struct Notes {
    told: Vec<(String, u64, Option<u64>)>,
    go_on: Arc<AtomicBool>,
}

impl Caller for Notes {
    fn advanced(&mut self, advance: Advance<'_>) {
        let Advance {
            program,
            tasks,
            tasks_total,
            ..
        } = advance;
        self.told.push((program.to_owned(), tasks, tasks_total));
        self.go_on.store(true, Ordering::SeqCst);
    }
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
}

/// Runs a program whose last stage waits until its caller was told; gives what it was told first, and how
/// many tasks there were.
fn told(build: impl FnOnce(&mut Program, &Dataset<u64>)) -> ((String, u64, Option<u64>), u64) {
    let mut notes = Notes::default();
    let mut p = Program::new("advance");
    let number = p.value("number", 3, 1u64);
    build(&mut p, &number);
    let go_on = notes.go_on.clone();
    p.compute("wait").update(&number).run(move |_: &mut u64| {
        while !go_on.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    let outcome = RunOptions::new()
        .threads(2)
        .run_with(p, &mut notes)
        .unwrap();
    (notes.told.remove(0), outcome.tally().tasks)
}

fn grow(p: &mut Program, number: &Dataset<u64>) {
    p.compute("grow")
        .update(number)
        .run(|number: &mut u64| *number += 1);
}

#[test]
fn counted_loops_tell_how_many_tasks_there_will_be() {
    let ((program, tasks, total), ran) = told(|p, number| {
        p.repeat(7, |p| {
            grow(p, number);
            p.repeat(2, |p| grow(p, number));
            p.repeat(0, |p| grow(p, number));
        });
    });
    assert_eq!(program, "advance");
    assert_eq!(total, Some(ran));
    assert!(
        tasks < ran,
        "the last stage was still waiting: {tasks} of {ran}"
    );
}

#[test]
fn exchanges_and_reductions_are_counted_too() {
    let ((_, _, total), ran) = told(|p, number| {
        let sum = p.dataset::<u64>("sum", 1);
        p.repeat(5, |p| p.reduce_to(Sum, number, &sum));
    });
    assert_eq!(total, Some(ran));
}

#[test]
fn where_a_signal_decides_nobody_knows() {
    let ((_, _, total), _) = told(|p, number| {
        let sum = p.value("sum", 1, 0u64);
        p.repeat_while(
            "small",
            &sum,
            |sum| *sum < 10,
            |p| {
                grow(p, number);
                p.reduce_to(Sum, number, &sum);
            },
        );
    });
    assert_eq!(total, None);
}

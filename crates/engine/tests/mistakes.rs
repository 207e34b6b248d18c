//! What a user is told who makes a mistake; `docs/errors.md` quotes these texts. After each mistake the
//! process and its threads go on as if nothing had happened.

mod support;

use brambling::ml::{FitError, KMeans, LogisticRegression, Solver};
use brambling::operators::ml::samples::SampleBlock;
use brambling::prelude::*;
use brambling::program::{BuildError, Exchange, KernelError, Spec};
use brambling::{Caller, Error, Failure, Interrupted, QuietCaller};
use std::time::{Duration, Instant};

fn options() -> RunOptions {
    RunOptions::new().threads(2)
}

/// Builds a program, runs it, and compares what the user is told.
#[track_caller]
fn check(build: impl FnOnce(&mut Program), told: &str) {
    assert_eq!(error_of(build, &options()).to_string(), told);
    still_works();
}

#[track_caller]
fn error_of(build: impl FnOnce(&mut Program), options: &RunOptions) -> Error {
    let mut p = Program::new("mistaken");
    build(&mut p);
    match options.run(p) {
        Ok(_) => panic!("the mistake went unnoticed"),
        Err(error) => error,
    }
}

/// The same threads run another job.
#[track_caller]
fn still_works() {
    let mut p = Program::new("well");
    let ones = p.value("ones", 5, 1u64);
    let total = p.dataset::<u64>("total", 1);
    p.repeat(10, |p| {
        p.reduce(Sum, &ones, &total, |total: &mut u64, sum: &u64| {
            *total += sum
        })
    });
    assert_eq!(options().run(p).unwrap().take(&total), 50);
}

// Refused when the program is built.

#[test]
fn partition_counts_that_differ() {
    check(
        |p| {
            let prices = p.dataset::<f64>("prices", 4);
            let rate = p.dataset::<f64>("rate", 1);
            p.compute("convert")
                .read(&rate)
                .update(&prices)
                .run(|rate: &f64, price: &mut f64| *price *= rate);
        },
        "stage `convert` uses `rate` (1 partition) and `prices` (4 partitions) together, but their partition counts \
         differ; give them the same count, or move one with broadcast, shuffle or reduce first",
    );
}

#[test]
fn partition_counts_of_symbols_that_may_differ() {
    check(
        |p| {
            let n = p.symbol("n");
            let prices = p.dataset::<f64>("prices", n);
            let costs = p.dataset::<f64>("costs", 3);
            p.compute("subtract")
                .read(&costs)
                .update(&prices)
                .run(|cost: &f64, price: &mut f64| *price -= cost);
        },
        "stage `subtract` uses `costs` (3 partitions) and `prices` (`n` partitions) together, but their partition \
         counts differ; give them the same count, or move one with broadcast, shuffle or reduce first",
    );
}

#[test]
fn zero_partitions() {
    check(
        |p| {
            p.dataset::<f64>("prices", 0);
        },
        "dataset `prices` has zero partitions; give it at least 1",
    );
}

#[test]
fn zero_partitions_bound_when_the_job_starts() {
    let build = |p: &mut Program| {
        let n = p.symbol("n");
        p.dataset::<f64>("prices", n);
    };
    let error = error_of(build, &options().bind("n", 0));
    assert_eq!(
        error.to_string(),
        "dataset `prices` has zero partitions; give it at least 1"
    );
}

#[test]
fn a_partition_count_that_nobody_binds() {
    check(
        |p| {
            let n = p.symbol("n");
            p.dataset::<f64>("prices", n);
        },
        "partition count `n` is not bound; bind it when the job starts",
    );
}

#[test]
fn a_signal_over_many_partitions() {
    check(
        |p| {
            let change = p.dataset::<f64>("change", 3);
            p.signal("settled")
                .read(&change)
                .run(|change: &f64| *change < 0.1);
        },
        "signal `settled` reads `change`, which has 3 partitions; a signal needs a dataset of one partition: reduce \
         `change` to one first",
    );
}

#[test]
fn a_loop_over_many_partitions() {
    check(
        |p| {
            let change = p.dataset::<f64>("change", 3);
            p.repeat_while("changing", &change, |change| *change > 0.1, |_| {});
        },
        "signal `changing` reads `change`, which has 3 partitions; a signal needs a dataset of one partition: reduce \
         `change` to one first",
    );
}

#[test]
fn a_stage_that_reads_and_writes_a_dataset() {
    check(
        |p| {
            let prices = p.dataset::<f64>("prices", 2);
            p.compute("double")
                .read(&prices)
                .write(&prices)
                .run(|from: &f64, to: &mut f64| *to = from * 2.0);
        },
        "stage `double` both reads and writes `prices`; declare it once, with update",
    );
}

#[test]
fn a_stage_that_names_a_dataset_twice() {
    check(
        |p| {
            let prices = p.dataset::<f64>("prices", 2);
            let sums = p.dataset::<f64>("sums", 2);
            p.compute("add")
                .read(&prices)
                .read(&prices)
                .write(&sums)
                .run(|a: &f64, b: &f64, sum: &mut f64| *sum = a + b);
        },
        "stage `add` names `prices` twice; name each dataset once",
    );
}

#[test]
fn a_stage_that_uses_nothing() {
    check(
        |p| p.compute("greet").run(|| {}),
        "stage `greet` uses no dataset; a stage runs on the partitions of what it reads and writes",
    );
}

/// An exchange of numbers over two partitions, and its two halves.
fn half_exchanges(p: &mut Program, stages: &[&str]) {
    let numbers = p.value("numbers", 2, 1u64);
    let sums = p.dataset::<u64>("sums", 2);
    let exchange = p.exchange::<u64>("numbers", Relation::AllToAll);
    for &stage in stages {
        match stage {
            "scatter" => p.scatter("send", &exchange).read(&numbers).run(
                |number: &u64, out: &mut Outbox<'_, u64>| {
                    (0..out.fan_out()).for_each(|to| out.put(to, *number));
                },
            ),
            "gather" => p.gather("add", &exchange).write(&sums).run(
                |inbox: &mut Inbox<'_, u64>, sum: &mut u64| *sum = inbox.map(|(_, n)| *n).sum(),
            ),
            "loop" => p.begin_repeat(2),
            _ => p.end(),
        }
    }
}

/// A stage that takes from some exchanges, sends to others, and does nothing.
fn stream(
    p: &mut Program,
    name: &str,
    of: &str,
    takes: &[&Exchange<u64>],
    sends: &[&Exchange<u64>],
) {
    let rows = p.dataset::<u64>(of, 2);
    let mut stage = p.stream(name).update(&rows);
    stage = takes.iter().fold(stage, |stage, it| stage.take(it));
    stage = sends.iter().fold(stage, |stage, it| stage.send(it));
    stage.run(
        |_: &mut Context<'_>| (),
        |(): &mut (), _: &mut Streams<'_, '_>, _: &mut u64| Progress::Done,
    );
}

#[test]
fn a_stream_with_ends_of_another_kind() {
    check(
        |p| {
            let whole = p.exchange::<u64>("whole", Relation::AllToAll);
            stream(p, "send", "rows", &[], &[&whole]);
        },
        "stage `send` and exchange `whole`: a streaming stage takes and sends by chunks, and the exchange is of whole pieces; make it with streamed",
    );
    check(
        |p| {
            let chunks = p.streamed::<u64>("chunks", Relation::AllToAll);
            stream(p, "send", "rows", &[], &[&chunks]);
            let sums = p.dataset::<u64>("sums", 2);
            p.gather("add", &chunks).write(&sums).run(
                |inbox: &mut Inbox<'_, u64>, sum: &mut u64| *sum = inbox.map(|(_, n)| *n).sum(),
            );
        },
        "stage `add` and exchange `chunks`: the exchange is streamed, so both of its ends are streaming stages; declare the stage with stream, or make the \
         exchange with exchange",
    );
    check(
        |p| {
            let [one, other] = ["one", "other"].map(|it| p.streamed::<u64>(it, Relation::AllToAll));
            stream(p, "send", "rows", &[], &[&one, &other]);
        },
        "stage `send` and exchange `other`: the stage sends to another exchange already; send there from a stage of its own",
    );
    check(
        |p| {
            let chunks = p.streamed::<u64>("chunks", Relation::AllToAll);
            stream(p, "turn round", "rows", &[&chunks], &[&chunks]);
        },
        "exchange `chunks`: one stage is both of its ends; an exchange is one scatter and then one gather, both in the same block",
    );
}

#[test]
fn a_scatter_and_a_gather_that_are_no_pair() {
    const RULE: &str = "an exchange is one scatter and then one gather, both in the same block";
    for (stages, problem) in [
        (&["gather"][..], "it has a gather but no scatter"),
        (&["scatter"], "it has a scatter but no gather"),
        (
            &["gather", "scatter"],
            "its gather stands before its scatter",
        ),
        (
            &["scatter", "scatter", "gather"],
            "it has more than one scatter",
        ),
        (
            &["scatter", "gather", "gather"],
            "it has more than one gather",
        ),
        (
            &["scatter", "loop", "gather", "end"],
            "its scatter and its gather stand in different blocks",
        ),
    ] {
        check(
            |p| half_exchanges(p, stages),
            &format!("exchange `numbers`: {problem}; {RULE}"),
        );
    }
}

#[test]
fn relations_that_do_not_fit() {
    check(
        |p| {
            let weights = p.dataset::<f64>("weights", 2);
            let local = p.dataset::<f64>("local", 4);
            p.broadcast(&weights, &local);
        },
        "exchange `broadcast weights`: one-to-all needs a source of 1 partition, not 2; reduce it first",
    );
    check(
        |p| {
            let gradient = p.dataset::<f64>("gradient", 4);
            let weights = p.dataset::<f64>("weights", 2);
            p.reduce_to(Sum, &gradient, &weights);
        },
        "exchange `reduce gradient`: all-to-one needs a destination of 1 partition, not 2",
    );
}

#[test]
fn a_branch_on_a_signal_of_an_inner_block() {
    check(
        |p| {
            let change = p.dataset::<f64>("change", 1);
            let mut inner = None;
            p.repeat(3, |p| {
                inner = Some(
                    p.signal("settled")
                        .read(&change)
                        .run(|change: &f64| *change < 0.1),
                );
            });
            p.branch(inner.unwrap(), |_| {}, |_| {});
        },
        "a branch tests signal `settled`, which is not given before it in the same or an enclosing block; give the \
         signal first",
    );
}

#[test]
fn a_dataset_of_another_program() {
    let mut other = Program::new("other");
    let foreign = other.dataset::<f64>("prices", 1);
    let error = error_of(
        |p| {
            p.dataset::<f64>("mine", 1);
            p.compute("double")
                .update(&foreign)
                .run(|price: &mut f64| *price *= 2.0);
        },
        &options(),
    );
    assert!(
        matches!(&error, Error::Build(BuildError::OtherProgram { stage, .. }) if stage == "double")
    );
    let told = error.to_string();
    assert!(
        told.starts_with("stage `double` uses a dataset of another program"),
        "{told}"
    );
    assert!(
        told.ends_with("; datasets belong to the program that made them"),
        "{told}"
    );
}

#[test]
fn bytes_that_are_no_program() {
    let told = |bytes: &[u8]| Spec::decode(bytes).unwrap_err().to_string();
    assert_eq!(
        told(b"BRM"),
        "these bytes are not a program: shorter than a header"
    );
    assert_eq!(
        told(b"PK\x03\x04 and more"),
        "these bytes are not a program: the first four bytes are not BRMP"
    );
    let mut newer = Program::new("new").spec().encode();
    newer[4] = 9;
    assert_eq!(
        told(&newer),
        "this program has format version 9; this version of brambling reads up to 2: upgrade it"
    );
}

#[test]
fn settings_that_cannot_be_used() {
    let told = |options: RunOptions| error_of(|_| {}, &options).to_string();
    assert_eq!(
        told(RunOptions::new().threads(0)),
        "argument: threads = \"0\" is not usable: give a number from 1 to 1024"
    );
    assert_eq!(
        told(RunOptions::new().partitions(0)),
        "argument: partitions = \"0\" is not usable: give a number from 1 to 16777216"
    );
    assert_eq!(
        told(RunOptions::new().memory("plenty")),
        "argument: memory = \"plenty\" is not usable: give bytes, or a number with KB, MB, GB or TB, such as 8GB"
    );
    assert_eq!(
        told(RunOptions::new().stall_seconds(0.0)),
        "argument: stall_seconds = \"0\" is not usable: give a positive number of seconds"
    );
}

// Found while the job runs.

/// Twelve turns over four partitions; `kernel` gets partition and turn.
fn turns<R: brambling::program::IntoProgress + 'static>(
    p: &mut Program,
    kernel: impl Fn(u32, u64) -> R + Send + Sync + 'static,
) {
    let counts = p.dataset::<u64>("counts", 4);
    p.repeat(12, |p| {
        p.compute("count").update(&counts).run_with_context(
            move |context: &mut Context<'_>, count: &mut u64| {
                *count += 1;
                kernel(context.partition(), context.turn())
            },
        );
    });
}

#[test]
fn a_kernel_that_fails() {
    check(
        |p| {
            turns(p, |partition, turn| match (partition, turn) {
                (2, 7) => Err("the seventh turn is too many"),
                _ => Ok(()),
            });
        },
        "stage `count` failed on partition 2 at turn 7: the seventh turn is too many",
    );
}

#[test]
fn a_failed_kernel_keeps_its_cause_and_traceback() {
    let error = error_of(
        |p| {
            turns(p, |_, _| {
                let cause = "x1".parse::<u32>().unwrap_err();
                Err::<(), _>(
                    KernelError::new("a bad row")
                        .with_source(cause)
                        .with_traceback("line 3 of job.py"),
                )
            });
        },
        &options(),
    );
    let Error::Failure(Failure::Kernel { mut error, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(error.traceback(), Some("line 3 of job.py"));
    assert_eq!(
        error.take_source().unwrap().to_string(),
        "invalid digit found in string"
    );
}

#[test]
fn a_kernel_that_panics() {
    const LINE: u32 = line!() + 3;
    let build = |p: &mut Program| {
        turns(p, |partition, turn| {
            assert!((partition, turn) != (3, 5), "five is right out");
        });
    };
    let error = error_of(build, &options());
    let Error::Failure(Failure::Panic { location, .. }) = &error else {
        panic!("{error}");
    };
    let place = format!("{}:{LINE}:13", file!());
    let location = location.clone().unwrap();
    assert_eq!(location.lines().next(), Some(&*place));
    assert_eq!(
        error.to_string(),
        format!(
            "stage `count` panicked on partition 3 at turn 5: five is right out (at {location})"
        )
    );
    still_works();
}

#[test]
fn a_piece_for_a_stranger() {
    let error = error_of(
        |p| {
            let cells = p.dataset::<u64>("cells", 5);
            let exchange = p.exchange::<u64>(
                "edges",
                Relation::Offsets {
                    offsets: vec![1],
                    wrap: false,
                },
            );
            p.scatter("send", &exchange).read(&cells).run(
                |cell: &u64, out: &mut Outbox<'_, u64>| {
                    if out.source() == 1 {
                        out.put(3, *cell);
                    }
                },
            );
            p.gather("receive", &exchange)
                .update(&cells)
                .run(|inbox: &mut Inbox<'_, u64>, cell: &mut u64| *cell += inbox.count() as u64);
        },
        &options(),
    );
    let told = error.to_string();
    let expected = "stage `send` panicked on partition 1 at turn 0: this source may not send to partition 3 at this \
                    turn; widen the exchange's relation (at ";
    assert!(told.starts_with(expected), "{told}");
    still_works();
}

#[test]
fn a_map_that_wants_to_be_continued() {
    check(
        |p| {
            let x = brambling::program::Foreign::owned(vec![1.0; 9]);
            let rows = p.load("rows", 1, Partitioner::Blocks, move |i, n| {
                brambling::operators::ml::samples::Samples::partition(
                    &x,
                    &Default::default(),
                    3,
                    i,
                    n,
                )
            });
            let sums = p.like::<Blocks<f64>, _>("sums", &rows);
            p.map("sum", &rows)
                .into(&sums, |_: SampleBlock<'_>, _: &mut f64| Progress::More);
        },
        "stage `sum` failed on partition 0 at turn 0: a map kernel cannot be continued; use compute",
    );
}

#[test]
fn a_scatter_that_wants_to_be_continued() {
    check(
        |p| {
            let numbers = p.dataset::<u64>("numbers", 1);
            let exchange = p.exchange::<u64>("numbers", Relation::AllToAll);
            p.scatter("send", &exchange)
                .read(&numbers)
                .run(|_: &u64, _: &mut Outbox<'_, u64>| Progress::More);
            p.gather("add", &exchange)
                .update(&numbers)
                .run(|_: &mut Inbox<'_, u64>, _: &mut u64| {});
        },
        "stage `send` failed on partition 0 at turn 0: a scatter or gather cannot return more or pending; split the \
         stage",
    );
}

/// Seconds differ from run to run.
fn without_seconds(told: &str) -> String {
    let (before, after) = told.split_once(" run for ").expect("the text tells a time");
    let (_, after) = after.split_once(" s;").expect("in seconds");
    format!("{before} run for … s;{after}")
}

#[test]
fn a_completion_that_nobody_signals() {
    let error = error_of(
        |p| {
            turns(p, |partition, turn| match (partition, turn) {
                (1, 4) => Progress::Pending,
                _ => Progress::Done,
            });
        },
        &options().stall_seconds(0.2),
    );
    assert_eq!(
        without_seconds(&error.to_string()),
        "the job stalled: nothing has run for … s; stage `count` on partition 1 at turn 4 waits for a completion that \
         its kernel asked for and nobody signalled"
    );
    still_works();
}

/// One long kernel, or one late completion, is not a stall.
#[test]
fn patience() {
    let mut p = Program::new("slow");
    let done = p.dataset::<u64>("done", 2);
    p.compute("wait").update(&done).run_with_context(
        |context: &mut Context<'_>, done: &mut u64| {
            *done += 1;
            if context.partition() == 0 {
                std::thread::sleep(Duration::from_millis(700));
                return Progress::Done;
            }
            if *done == 2 {
                return Progress::Done;
            }
            let completion = context.completion();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                completion.wake();
            });
            Progress::Pending
        },
    );
    let mut outcome = options().stall_seconds(0.3).run(p).unwrap();
    assert_eq!(outcome.take_all(&done), [1, 2]);
}

#[test]
fn more_than_the_budget() {
    let load = |p: &mut Program| {
        p.load("numbers", 3, Partitioner::Opaque, |_, _| {
            vec![0u64; 100_000]
        });
    };
    // One thread, so that it is always the third that does not fit.
    let error = error_of(load, &options().threads(1).memory("2MB"));
    assert_eq!(
        error.to_string(),
        "stage `load numbers` on partition 2 ran out of memory: resident data asked for 800024 bytes with \
         1600048 of 2097152 in use; raise the budget with BRAMBLING_MEMORY or memory in brambling.toml"
    );
    still_works();
}

#[test]
fn a_source_that_panics() {
    let load = |p: &mut Program| {
        p.load("numbers", 4, Partitioner::Opaque, |index, _| {
            assert!(index != 2, "no such file");
            u64::from(index)
        });
    };
    let told = error_of(load, &options()).to_string();
    assert!(
        told.starts_with(
            "stage `load numbers` panicked on partition 2 at turn 0: no such file (at "
        ),
        "{told}"
    );
    still_works();
}

#[test]
fn a_stage_that_is_never_given_its_kernel() {
    let build = |p: &mut Program| {
        let numbers = p.dataset::<u64>("numbers", 1);
        drop(p.compute("forgotten").update(&numbers));
    };
    assert_eq!(
        error_of(build, &options()).to_string(),
        "stage `forgotten` has no kernel; finish it with run"
    );
}

#[test]
fn a_dataset_that_outgrows_the_budget() {
    let grow = |p: &mut Program| {
        let numbers = p.dataset::<Vec<u64>>("numbers", 1);
        p.repeat(1_000, |p| {
            p.compute("grow")
                .update(&numbers)
                .run(|numbers: &mut Vec<u64>| {
                    numbers.resize(numbers.len() + 10_000, 0);
                });
        });
    };
    let error = error_of(grow, &options().memory("2MB"));
    let told = error.to_string();
    assert!(
        told.starts_with("stage `grow` on partition 0 ran out of memory: resident data asked for "),
        "{told}"
    );
    still_works();
}

#[test]
fn pieces_that_outgrow_the_budget() {
    let send = |p: &mut Program| {
        let numbers = p.value("numbers", 1, vec![0u64; 150_000]);
        let exchange = p.exchange::<Vec<u64>>("copies", Relation::AllToAll);
        let lengths = p.dataset::<u64>("lengths", 8);
        p.scatter("send", &exchange).read(&numbers).run(
            |numbers: &Vec<u64>, out: &mut Outbox<'_, Vec<u64>>| {
                (0..out.fan_out()).for_each(|to| out.put(to, numbers.clone()));
            },
        );
        p.gather("measure", &exchange).write(&lengths).run(
            |inbox: &mut Inbox<'_, Vec<u64>>, length: &mut u64| {
                *length = inbox.map(|(_, piece)| piece.len() as u64).sum();
            },
        );
    };
    let told = error_of(send, &options().memory("2MB")).to_string();
    let expected = "stage `send` on partition 0, sending pieces of exchange `copies`, ran out of memory: the exchange asked for ";
    assert!(told.starts_with(expected), "{told}");
    still_works();
}

#[test]
fn a_shuffle_that_outgrows_the_budget() {
    // So many pairs of partitions that their pieces come by mail.
    let shuffle = |p: &mut Program| {
        let rows = p.load("rows", 300, Partitioner::Opaque, |index, _| {
            vec![(u64::from(index), 1.0); 50]
        });
        let by_key = p.dataset::<Vec<(u64, f64)>>("by key", 300);
        let spread = p.like::<Vec<(u64, f64)>, _>("spread", &rows);
        p.compute("spread").read(&rows).write(&spread).run(
            |rows: &Vec<(u64, f64)>, spread: &mut Vec<(u64, f64)>| {
                let keys = (0..).zip(rows).map(|(at, row)| (row.0 * 50 + at, row.1));
                spread.extend(keys);
            },
        );
        p.shuffle(&spread, &by_key);
    };
    let told = error_of(shuffle, &options().memory("1MB")).to_string();
    assert!(
        told.contains("sending pieces of exchange `shuffle spread`, ran out of memory: "),
        "{told}"
    );
    still_works();
}

#[test]
fn a_program_run_by_a_kernel() {
    check(
        |p| {
            turns(p, |partition, _| {
                if partition > 0 {
                    return Ok(());
                }
                let mut inner = Program::new("inner");
                inner.dataset::<u64>("numbers", 1);
                brambling::run(inner)
                    .map(|_| ())
                    .map_err(|error| error.to_string())
            });
        },
        "stage `count` failed on partition 0 at turn 0: a kernel cannot run a program: its thread is busy with this \
         one; run it after the job has ended",
    );
}

#[test]
#[should_panic(
    expected = "dataset `change` was freed after its last use; keep it with Program::keep"
)]
fn a_result_that_was_not_kept() {
    let mut p = Program::new("forgetful");
    let change = p.temporary::<f64>("change", 1);
    p.compute("set")
        .write(&change)
        .run(|change: &mut f64| *change = 7.0);
    options().run(p).unwrap().take(&change);
}

/// Asks the job to end after some looks.
struct Impatient {
    looks: u32,
}

impl Caller for Impatient {
    fn check(&mut self) -> Result<(), Interrupted> {
        match self.looks.checked_sub(1) {
            Some(looks) => self.looks = looks,
            None => return Err(Interrupted),
        }
        Ok(())
    }
}

#[test]
fn an_endless_loop_that_is_interrupted() {
    let mut p = Program::new("endless");
    let numbers = p.value("numbers", 3, 1u64);
    let total = p.dataset::<u64>("total", 1);
    p.repeat_while(
        "forever",
        &total,
        |_| true,
        |p| p.reduce_to(Sum, &numbers, &total),
    );
    let started = Instant::now();
    let error = options()
        .run_with(p, &mut Impatient { looks: 3 })
        .unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
    // 80 ms of looks, and the promised 100 ms; generous for a busy machine.
    assert!(started.elapsed() < Duration::from_secs(5));
    still_works();
}

/// Another language's caller may unwind; its thread can run jobs afterwards.
#[test]
fn a_caller_that_panics() {
    struct Clumsy;
    impl Caller for Clumsy {
        fn check(&mut self) -> Result<(), Interrupted> {
            panic!("the caller stumbles");
        }
    }
    let caught = std::panic::catch_unwind(|| {
        let mut p = Program::new("endless");
        let total = p.dataset::<u64>("total", 1);
        p.repeat_while("forever", &total, |_| true, |_| {});
        options().run_with(p, &mut Clumsy).map(|_| ())
    });
    assert!(caught.is_err());
    still_works();
}

/// A kernel that may take long can ask whether anybody still waits for it.
#[test]
fn a_long_kernel_that_is_interrupted() {
    let mut p = Program::new("long");
    let numbers = p.value("numbers", 2, 1u64);
    p.compute("search").update(&numbers).run_with_context(
        |context: &mut Context<'_>, number: &mut u64| {
            while !context.is_cancelled() {
                *number = number.wrapping_mul(3);
            }
        },
    );
    let error = options()
        .run_with(p, &mut Impatient { looks: 2 })
        .unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
    still_works();
}

// Samples from which nothing can be learnt.

#[track_caller]
fn check_fit(x: Vec<f64>, y: Vec<f64>, columns: usize, told: &str) {
    let model = LogisticRegression::default();
    let error = model.fit_owned(x, y, columns, &options()).unwrap_err();
    assert!(matches!(error, FitError::Samples(_)));
    assert_eq!(error.to_string(), told);
    still_works();
}

#[test]
fn samples_of_the_wrong_shape() {
    check_fit(
        vec![1.0; 6],
        vec![0.0; 4],
        2,
        "X has 3 rows and y has 4 labels; give one label for each row",
    );
    check_fit(
        vec![1.0; 6],
        vec![],
        2,
        "X has 3 rows and y has 0 labels; give one label for each row",
    );
    check_fit(
        vec![1.0; 2],
        vec![0.0; 2],
        2,
        "X has 1 row and y has 2 labels; give one label for each row",
    );
    check_fit(
        vec![1.0; 7],
        vec![0.0; 3],
        2,
        "X has 7 values, which do not make whole rows of 2 columns",
    );
    check_fit(
        vec![],
        vec![],
        2,
        "X has no rows; there is nothing to learn from",
    );
    check_fit(
        vec![1.0],
        vec![1.0],
        0,
        "X has no columns; give at least one",
    );
}

/// The first in row order is told, whichever thread is the first to find one.
#[test]
fn samples_that_are_no_numbers() {
    let (x, y) = support::table(30_000, 3);
    let spoil = |places: &[(usize, f64)]| {
        let mut x = x.clone();
        places.iter().for_each(|&(at, value)| x[at] = value);
        x
    };
    const FIX: &str = "(counted from 0); replace such values or drop their rows first";
    for _ in 0..5 {
        let spoilt = spoil(&[
            (80_000, f64::NAN),
            (25_001, f64::NEG_INFINITY),
            (25_007, f64::NAN),
        ]);
        check_fit(
            spoilt,
            y.clone(),
            3,
            &format!("X has -inf at row 8333, column 2 {FIX}"),
        );
    }
    check_fit(
        spoil(&[(89_999, f64::NAN)]),
        y.clone(),
        3,
        &format!("X has NaN at row 29999, column 2 {FIX}"),
    );
    let mut labels = y.clone();
    labels[12_345] = 2.0;
    check_fit(
        x.clone(),
        labels.clone(),
        3,
        "y has 2 at row 12345 (counted from 0); labels must be 0 or 1",
    );
    labels[12_345] = f64::NAN;
    check_fit(
        x.clone(),
        labels,
        3,
        "y has NaN at row 12345 (counted from 0); labels must be 0 or 1",
    );
    check_fit(
        spoil(&[(5, 1e200)]),
        y,
        3,
        "the squares of X's values overflow; scale its columns first, for example to deviation 1",
    );
}

#[test]
fn rows_too_near_to_one_another() {
    let x = vec![0.0, 1e-200, 2e-200, 3e-200];
    let error = KMeans::default().fit_owned(x, 1, vec![0.0, 3e-200], &options());
    assert_eq!(
        error.unwrap_err().to_string(),
        "the squares of the differences between X's rows underflow; scale its columns first, for example to deviation 1"
    );
    still_works();
}

#[test]
fn parameters_out_of_range() {
    let told = |model: LogisticRegression| {
        let error = model
            .fit_owned(vec![1.0], vec![1.0], 1, &options())
            .unwrap_err();
        error.to_string()
    };
    let model = LogisticRegression::default();
    assert_eq!(
        told(LogisticRegression { c: 0.0, ..model }),
        "C = 0 cannot be used; give a positive number"
    );
    assert_eq!(
        told(LogisticRegression { tol: -1.0, ..model }),
        "tol = -1 cannot be used; give 0 (never stop early) or a positive number"
    );
    assert_eq!(
        told(LogisticRegression {
            max_iter: 0,
            ..model
        }),
        "max_iter = 0 cannot be used; give at least 1"
    );
}

#[test]
fn a_fit_that_is_interrupted() {
    let (x, y) = support::table(5_000, 3);
    let (x, y) = (
        brambling::program::Foreign::owned(x),
        brambling::program::Foreign::owned(y),
    );
    let model = LogisticRegression {
        tol: 0.0,
        max_iter: u64::MAX,
        // L-BFGS would end where rounding hides the rest.
        solver: Solver::GradientDescent,
        ..Default::default()
    };
    let error = model
        .fit(
            x.clone(),
            y.clone(),
            3,
            &options(),
            &mut Impatient { looks: 2 },
        )
        .unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
    let model = LogisticRegression {
        max_iter: 3,
        ..model
    };
    assert_eq!(
        model
            .fit(x, y, 3, &options(), &mut QuietCaller)
            .unwrap()
            .iterations,
        3
    );
}

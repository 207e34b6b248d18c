//! Random programs on several executors give what the interpreter gives, whatever moves and whatever is spilled meanwhile.
//!
//! The simulated cluster drives the same nodes with every choice from a seed; here real threads drive them, so that what
//! lies between is tried: the executor's handling of shards that come, leave and wait. Not reproducible to the step, but the
//! results must be those of the interpreter whatever happens.

#[path = "support/chaos.rs"]
mod chaos;

use brambling_program::{
    Bindings, Context, DecodeError, Inbox, Max, Outbox, Payload, Plan, Program, Progress, Relation,
};
use brambling_simulation::{RandomProgram, interpret, random_program, random_streams, seeds};
use brambling_worker::executor::Job;
use chaos::Cluster;
use chaos::member::{results, sole, spills};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn random_programs_on_several_workers_give_what_the_interpreter_gives() {
    give_what_the_interpreter_gives(seeds(300), random_program);
}

#[test]
fn random_streams_on_several_workers_give_what_the_interpreter_gives() {
    give_what_the_interpreter_gives(seeds(150), random_streams);
}

fn give_what_the_interpreter_gives(seeds: Range<u64>, make: fn(u64) -> RandomProgram) {
    let clusters = [
        Cluster::new(&[1]),
        Cluster::new(&[1, 1]),
        Cluster::new(&[2, 1, 3]),
    ];
    let mut moves = 0;
    for seed in seeds {
        let random = make(seed);
        let program = Arc::new(random.program.clone());
        let plan = Plan::compile(program, &random.bindings()).expect("random programs are valid");
        let expected = interpret(&random.program, &random.symbols);
        let left = clusters[(seed % 3) as usize].run(seed, &plan);
        assert_eq!(left.failure, None, "seed {seed}");
        moves += left.moves;
        let found = results(&random, left.jobs);
        if let Some(difference) = found.difference(&expected, &random.program) {
            panic!("seed {seed}:\n{difference}\n{}", random.program.spec());
        }
    }
    assert!(moves > 100, "{moves}");
    let spilled = spills().counts();
    assert!(spilled.reads > 100, "{spilled:?}");
}

/// So large that pieces of all pairs of a worker are too many for places: they come by mail, and sources stamp their turns.
#[derive(Clone)]
struct Wide {
    number: u64,
    _wide: [[u64; 128]; 128],
}

impl Default for Wide {
    fn default() -> Wide {
        let (number, _wide) = (0, [[0; 128]; 128]);
        Wide { number, _wide }
    }
}

impl Payload for Wide {
    const FIXED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("wide")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.number.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Wide, DecodeError> {
        let number = u64::decode(input)?;
        Ok(Wide {
            number,
            ..Wide::default()
        })
    }
}

/// What a partition sends to another of wide pieces: to one in three nothing.
fn said(count: u64, to: u32) -> Option<u64> {
    let number = count.wrapping_mul(31).wrapping_add(u64::from(to));
    (number % 3 != 0).then_some(number)
}

fn heard(count: &mut u64, source: u32, number: u64) {
    *count = count.wrapping_mul(1_000_003).wrapping_add(number) ^ u64::from(source);
}

/// Each turn waits for what every partition has sent in it, or has not: be it by stamp, by mail or by a frame, and wherever that is by then.
#[test]
fn shards_move_that_hear_by_stamps_and_by_mail() {
    const PARTITIONS: u32 = 12;
    const TURNS: u64 = 20;
    let mut p = Program::new("wide");
    let counts = p.dataset::<u64>("counts", PARTITIONS);
    p.keep(&counts);
    let exchange = p.exchange::<Wide>("wide", Relation::AllToAll);
    p.compute("begin").update(&counts).run_with_context(
        |context: &mut Context<'_>, count: &mut u64| {
            *count = u64::from(context.partition());
            Progress::Done
        },
    );
    p.repeat(TURNS, |p| {
        p.scatter("send", &exchange).read(&counts).run(
            |count: &u64, out: &mut Outbox<'_, Wide>| {
                for to in 0..PARTITIONS {
                    if let Some(number) = said(*count, to) {
                        out.piece(to).number = number;
                    }
                }
            },
        );
        p.gather("take", &exchange).update(&counts).run(
            |inbox: &mut Inbox<'_, Wide>, count: &mut u64| {
                inbox.for_each(|(source, piece)| heard(count, source, piece.number));
            },
        );
    });
    let mut expected: Vec<u64> = (0..PARTITIONS).map(u64::from).collect();
    for _ in 0..TURNS {
        let before = expected.clone();
        for (to, count) in (0..).zip(&mut expected) {
            for (source, sent) in (0..).zip(&before) {
                if let Some(number) = said(*sent, to) {
                    heard(count, source, number);
                }
            }
        }
    }
    let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
    let clusters = [Cluster::new(&[1, 1]), Cluster::new(&[2, 1, 3])];
    let mut moves = 0;
    for seed in seeds(20) {
        let left = clusters[(seed % 2) as usize].run(seed, &plan);
        assert_eq!(left.failure, None, "seed {seed}");
        moves += left.moves;
        let mut jobs: Vec<Job> = left.jobs.into_iter().map(sole).collect();
        for (index, expected) in (0..).zip(&expected) {
            let holder = jobs
                .iter_mut()
                .find_map(|job| job.holds(counts.id(), index).unwrap().then_some(job));
            let found: u64 = holder.unwrap().take(counts.id(), index);
            assert_eq!(found, *expected, "seed {seed}, partition {index}");
        }
    }
    assert!(moves > 20, "{moves}");
}

/// A shard that is to leave while a task of it waits for a completion stays until that has come: the task is called
/// again here, and nothing of it is lost.
#[test]
fn a_shard_that_waits_for_a_completion_moves_when_it_has_come() {
    moves_whatever_is_woken(|context, count| {
        *count += 1;
        if *count % 2 == 0 {
            return Progress::Done;
        }
        let completion = context.completion();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(500));
            completion.wake();
        });
        Progress::Pending
    });
}

/// Kernels ask for completions and do not wait for them, and those come several times, also when the task is over and its shard elsewhere.
#[test]
fn a_shard_moves_although_completions_come_that_nobody_waits_for() {
    moves_whatever_is_woken(|context, count| {
        *count += 1;
        let (early, late) = (context.completion(), context.completion());
        early.wake_by_ref();
        early.wake();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(300));
            late.wake_by_ref();
            late.wake();
        });
        match *count % 2 {
            0 => Progress::Done,
            _ => Progress::More,
        }
    });
}

/// Runs a kernel that counts its calls, two for each of 20 turns, while its shards move, and move again.
fn moves_whatever_is_woken(kernel: fn(&mut Context<'_>, &mut u64) -> Progress) {
    let mut p = Program::new("woken");
    let counts = p.dataset::<u64>("counts", 4);
    p.keep(&counts);
    p.repeat(20, |p| {
        p.compute("ask and wait")
            .update(&counts)
            .run_with_context(kernel);
        p.all_reduce(Max, &counts, &counts);
    });
    let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
    let cluster = Cluster::new(&[1, 1]);
    let mut moves = 0;
    for seed in 0..20 {
        let left = cluster.run(seed, &plan);
        assert_eq!(left.failure, None);
        moves += left.moves;
        let mut jobs: Vec<Job> = left.jobs.into_iter().map(sole).collect();
        for index in 0..4 {
            let mut holder = jobs
                .iter_mut()
                .filter_map(|job| job.holds(counts.id(), index).unwrap().then_some(job));
            let found: u64 = holder.next().unwrap().take(counts.id(), index);
            assert_eq!(found, 40, "partition {index}");
        }
    }
    assert!(moves > 20, "{moves}");
}

//! The budget is the truth about pieces: what a job sends is charged, and given back however the job ends.

use brambling_memory::{Budget, Class, Floors};
use brambling_program::{
    Bindings, Context, DecodeError, Inbox, KernelError, Outbox, Partitioner, Payload, Plan,
    Program, Relation, Rows,
};
use brambling_worker::executor::{
    Caller, Failure, Interrupted, Job, JobOptions, Pool, QuietCaller,
};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const THREADS: u32 = 2;
/// What somebody else holds of the budget while the jobs run.
const PRIOR_BYTES: u64 = 1_000;

/// Runs a program and drops its job; gives how it ended, and the most that its pieces took.
fn run(budget: &Budget, program: Program, caller: &mut dyn Caller) -> (Result<(), Failure>, u64) {
    let prior = budget.reserve(Class::Exchange, PRIOR_BYTES).unwrap();
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let options = JobOptions {
        budget: budget.clone(),
        ..JobOptions::default()
    };
    let pool = Pool::new(THREADS, true).unwrap();
    let job = Job::new(plan, pool.parkers(), options);
    let ended = pool.run(&job, caller);
    drop(job);
    assert_eq!(budget.in_use_bytes(), PRIOR_BYTES, "after {ended:?}");
    drop(prior);
    (
        ended,
        budget.class_peak_bytes(Class::Exchange) - PRIOR_BYTES,
    )
}

fn budget(budget_bytes: u64) -> Budget {
    Budget::new(budget_bytes, Floors::of(budget_bytes))
}

/// So many that slots would exceed their bound.
const MANY: u32 = 260;
const ROWS: u64 = 300;

fn shuffle(partitions: u32) -> Program {
    let mut p = Program::new("shuffle");
    let from = p.load("rows", partitions, Partitioner::Opaque, |index, _| {
        let first = u64::from(index) * ROWS;
        (first..first + ROWS).map(|key| (key, key)).collect()
    });
    let to = p.dataset::<Rows<u64, u64>>("by key", partitions);
    p.shuffle(&from, &to);
    p
}

#[test]
fn a_shuffle_that_fits_gives_everything_back() {
    for partitions in [3, MANY] {
        let (ended, peak_bytes) = run(&budget(64 << 20), shuffle(partitions), &mut QuietCaller);
        ended.unwrap();
        // No gather ends before the last scatter has sent: all rows lie in the exchange at once.
        let rows_bytes = u64::from(partitions) * ROWS * 16;
        assert!(
            (rows_bytes..=rows_bytes * 12).contains(&peak_bytes),
            "{peak_bytes} bytes for {rows_bytes}"
        );
    }
}

#[test]
fn a_shuffle_beyond_the_budget_is_refused() {
    let told = run(&budget(4 << 20), shuffle(MANY), &mut QuietCaller).0;
    let told = told.unwrap_err().to_string();
    assert!(
        told.starts_with("stage `shuffle rows` on partition "),
        "{told}"
    );
    assert!(
        told.contains(
            ", sending pieces of exchange `shuffle rows`, ran out of memory: the exchange asked for "
        ),
        "{told}"
    );
    assert!(
        told.contains(" of 4194304 in use; raise the budget with BRAMBLING_MEMORY"),
        "{told}"
    );
}

/// Bytes of pieces that exist, and the most that did.
#[derive(Default)]
struct Gauge {
    now_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl Gauge {
    fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}

/// A piece that is too wide for slots, and counted while it exists.
#[derive(Default)]
struct Piece {
    content: Vec<u8>,
    gauge: Option<Arc<Gauge>>,
    _wide: [[u64; 32]; 32],
}

impl Piece {
    fn fill(&mut self, bytes: usize, gauge: &Arc<Gauge>) {
        self.content = vec![1; bytes];
        let now = gauge.now_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        gauge.peak_bytes.fetch_max(now, Ordering::Relaxed);
        self.gauge = Some(gauge.clone());
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(gauge) = &self.gauge {
            let bytes = self.content.len() as u64;
            gauge.now_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Clone for Piece {
    fn clone(&self) -> Piece {
        unreachable!("pieces are sent, not copied")
    }
}

impl Payload for Piece {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("counted piece")
    }
    fn heap_bytes(&self) -> usize {
        self.content.capacity()
    }
    fn encode(&self, _: &mut Vec<u8>) {
        unreachable!("within a process nothing is encoded")
    }
    fn decode(_: &mut &[u8]) -> Result<Piece, DecodeError> {
        unreachable!("within a process nothing is encoded")
    }
}

/// Partitions send pieces that own so many bytes to each other, turn after turn; `sent` is called after each that
/// was put, `taken` before each gather.
fn copies(
    piece_bytes: usize,
    turns: u64,
    gauge: &Arc<Gauge>,
    sent: impl Fn() + Send + Sync + 'static,
    taken: impl Fn() + Send + Sync + 'static,
) -> Program {
    let mut p = Program::new("copies");
    let exchange = p.exchange::<Piece>("copies", Relation::AllToAll);
    let numbers = p.dataset::<u64>("numbers", 30);
    let gauge = gauge.clone();
    p.repeat(turns, |p| {
        p.scatter("send", &exchange).read(&numbers).run(
            move |_: &u64, out: &mut Outbox<'_, Piece>| {
                for to in 0..out.fan_out() {
                    out.piece(to).fill(piece_bytes, &gauge);
                    sent();
                }
            },
        );
        p.gather("take", &exchange).update(&numbers).run(
            move |inbox: &mut Inbox<'_, Piece>, sum: &mut u64| {
                taken();
                *sum += inbox
                    .map(|(_, piece)| piece.content.len() as u64)
                    .sum::<u64>();
            },
        );
    });
    p
}

/// Panics when called so often.
fn panics_at(call: usize) -> impl Fn() + Send + Sync + 'static {
    let calls = AtomicUsize::new(0);
    move || assert!(calls.fetch_add(1, Ordering::Relaxed) != call, "right out")
}

#[test]
fn a_scatter_is_left_one_piece_beyond_the_budget() {
    const PIECE_BYTES: usize = 500_000;
    let budget_bytes = 16 << 20;
    let (budget, gauge) = (budget(budget_bytes), Arc::<Gauge>::default());
    let program = copies(PIECE_BYTES, 1, &gauge, || {}, || {});
    let (ended, peak_bytes) = run(&budget, program, &mut QuietCaller);
    assert!(
        matches!(ended, Err(Failure::OutOfMemory { .. })),
        "{ended:?}"
    );
    assert!(budget.peak_bytes() <= budget_bytes);
    let bound = peak_bytes + u64::from(THREADS) * ((64 << 10) + PIECE_BYTES as u64);
    let held = gauge.peak_bytes();
    assert!(held <= bound, "{held} bytes were held, {bound} are allowed");
    assert!(held > 4 << 20, "refused at {held} bytes");
}

#[test]
fn a_kernel_that_panics() {
    let gauge = Arc::<Gauge>::default();
    for program in [
        // So large that the task's pieces before it were charged already.
        copies(70_000, 1, &gauge, panics_at(800), || {}),
        copies(1_000, 5, &gauge, || {}, panics_at(67)),
    ] {
        let (ended, peak_bytes) = run(&budget(256 << 20), program, &mut QuietCaller);
        assert!(matches!(ended, Err(Failure::Panic { .. })), "{ended:?}");
        assert!(peak_bytes > 0);
    }
    assert_eq!(gauge.now_bytes.load(Ordering::Relaxed), 0);
}

/// Ends the job once pieces have been sent.
struct Cancels(Arc<Gauge>);

impl Caller for Cancels {
    fn check(&mut self) -> Result<(), Interrupted> {
        match self.0.peak_bytes() {
            0 => Ok(()),
            _ => Err(Interrupted),
        }
    }
}

#[test]
fn a_job_that_is_cancelled() {
    let gauge = Arc::<Gauge>::default();
    let endless = copies(1_000, u64::MAX, &gauge, || {}, || {});
    let (ended, peak_bytes) = run(&budget(256 << 20), endless, &mut Cancels(gauge));
    assert!(matches!(ended, Err(Failure::Interrupted)), "{ended:?}");
    assert!(peak_bytes > 0);
}

/// A program of one kernel, which wants to work with so many bytes.
fn working(
    bytes: u64,
    kernel: impl Fn(u64, &Context<'_>) -> Result<(), KernelError> + Send + Sync + 'static,
) -> Program {
    let mut p = Program::new("working");
    let dataset = p.dataset::<u64>("dataset", 3);
    let stage = p.compute("work").update(&dataset);
    stage.run_with_context(move |context: &mut Context<'_>, _: &mut u64| kernel(bytes, context));
    p
}

#[test]
fn what_a_kernel_reserves_counts_while_it_is_held() {
    let budget = budget(1 << 20);
    let seen = budget.clone();
    let program = working(300_000, move |bytes, context| {
        let room = context.reserve(bytes)?;
        assert!(seen.class_in_use_bytes(Class::Resident) >= bytes);
        drop(room);
        Ok(())
    });
    run(&budget, program, &mut QuietCaller).0.unwrap();
    assert!(budget.class_peak_bytes(Class::Resident) >= 300_000);
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn a_kernel_that_is_refused_ends_the_job_by_its_stage_or_does_with_less() {
    let passes_on = |bytes, context: &Context<'_>| {
        let _room = context.reserve(bytes)?;
        Ok(())
    };
    let failed = run(
        &budget(1 << 20),
        working(2 << 20, passes_on),
        &mut QuietCaller,
    )
    .0;
    let told = failed.unwrap_err().to_string();
    assert!(told.starts_with("stage `work` on partition "), "{told}");
    for part in [
        "ran out of memory: resident data asked for 2097152 bytes with ",
        " of 1048576 in use; raise the budget with BRAMBLING_MEMORY or memory in brambling.toml",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let does_with_less = |bytes, context: &Context<'_>| {
        let room = context
            .reserve(bytes)
            .or_else(|_| context.reserve(bytes / 100));
        drop(room?);
        Ok(())
    };
    run(
        &budget(1 << 20),
        working(2 << 20, does_with_less),
        &mut QuietCaller,
    )
    .0
    .unwrap();
}

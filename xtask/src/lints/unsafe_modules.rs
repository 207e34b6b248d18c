//! The modules that may hold `unsafe`, each with its reason. Everywhere else it is denied.

/// Path and reason.
pub const ARGUED: &[(&str, &str)] = &[
    (
        "bench/src/limits",
        "hand-written loops that ours are compared with, intrinsics included",
    ),
    (
        "bench/src/task_graph/kernel.rs",
        "Task Bench's compute-bound kernel, compiled for AVX2 and FMA",
    ),
    (
        "crates/engine/src/cluster/environment.rs",
        "the environment is one for all threads, and the system shows where it began: a token is overwritten there",
    ),
    (
        "crates/exchange/src/in_process",
        "slots and mailboxes that sources write into while their owner reads: loom answers for them",
    ),
    (
        "crates/exchange/src/transports/forks.rs",
        "takes sockets from processes that this one forks, in a handler of libc's",
    ),
    (
        "crates/exchange/src/transports/tcp/acknowledged.rs",
        "asks the system what a connection's other end has acknowledged, which only libc can",
    ),
    (
        "crates/exchange/src/transports/tcp/channel/memory/shared.rs",
        "a ring of bytes in memory that another process maps too",
    ),
    (
        "crates/machine/src/exit.rs",
        "ends a process whose other threads cannot be ended",
    ),
    ("crates/machine/src/pin.rs", "the affinity calls of libc"),
    (
        "crates/machine/src/probes/bandwidth.rs",
        "a limit has to be measured with the CPU's own prefetches",
    ),
    (
        "crates/machine/src/probes/bandwidth/x86.rs",
        "and with its vector loads",
    ),
    (
        "crates/machine/src/probes/process.rs",
        "the clocks of processes that libc reads",
    ),
    (
        "crates/machine/src/probes/flops.rs",
        "a limit has to be measured with functions compiled for the CPU at hand",
    ),
    (
        "crates/memory/src/pages.rs",
        "zeros that the system gave are seen as items",
    ),
    (
        "crates/operators/src/simd",
        "intrinsics, and the one place where code for a newer CPU is entered",
    ),
    (
        "crates/operators/examples/gradient_rate.rs",
        "measures the kernels as the executor calls them, through the same erased pointers",
    ),
    (
        "crates/program/src/kernel.rs",
        "a task is a plain function over pointers whose types were checked when linked",
    ),
    (
        "crates/program/src/ports.rs",
        "piece buffers are erased; the builder fixed their type",
    ),
    (
        "crates/program/src/streams.rs",
        "chunk buffers are erased; the builder fixed their type",
    ),
    (
        "crates/program/src/stages.rs",
        "hands a kernel's erased pointers to the function that the builder checked",
    ),
    (
        "crates/program/src/typed.rs",
        "casts erased pointers back to the types that the builder recorded",
    ),
    (
        "crates/program/tests/chunks.rs",
        "an allocator that counts what a thread has",
    ),
    (
        "crates/program/src/chunks/kept.rs",
        "chunks that are lent keep the value in which they lie",
    ),
    (
        "crates/program/src/value/table.rs",
        "the operations of a type over pointers whose type is erased",
    ),
    (
        "crates/program/src/value.rs",
        "type erasure: a pointer and the table of its type travel together",
    ),
    (
        "crates/exchange/tests/loom.rs",
        "a loom cell stands for the place of a piece",
    ),
    (
        "crates/program/src/foreign.rs",
        "memory of other languages, read in place and kept alive by its owner",
    ),
    (
        "crates/program/src/slots.rs",
        "addresses of pieces that lie in one piece of memory",
    ),
    (
        "crates/simulation/src/kernels.rs",
        "calls kernels as the executor does, from the oracle's own copies",
    ),
    (
        "crates/storage/src/cached.rs",
        "asks the system which pages of a file it has, which only libc can",
    ),
    (
        "crates/worker/src/assembly.rs",
        "several readers write into one value, each its own part",
    ),
    (
        "crates/worker/src/executor/sampling.rs",
        "passes a kernel's arguments on while it times the call",
    ),
    (
        "crates/worker/src/executor/job.rs",
        "shards and run queues lie in cells that their thread's zone guards",
    ),
    (
        "crates/worker/src/executor/job/owners.rs",
        "run queues lie in cells that their thread's zone guards",
    ),
    (
        "crates/worker/src/executor/job/placing.rs",
        "each thread fills the cells of its shards before any of them is queued",
    ),
    (
        "crates/worker/src/executor/thread_jobs.rs",
        "a worker borrows the job that its seat keeps",
    ),
    (
        "crates/worker/src/executor/slice.rs",
        "calls kernels over erased pointers whose types the plan fixed",
    ),
    (
        "crates/worker/src/executor/slice/exchanging.rs",
        "lends a kernel its ports for the time of a call, and touches the thread's run queue inside its zone",
    ),
    (
        "crates/worker/src/executor/slice/streaming.rs",
        "lends a kernel its ports for the time of a call",
    ),
    (
        "crates/worker/src/executor/spread.rs",
        "asks libc which CPU a thread is on, and moves it once",
    ),
    (
        "crates/worker/src/executor/stall.rs",
        "looks into shards after every thread has left the job",
    ),
    (
        "crates/worker/src/executor/steps.rs",
        "keeps erased pointers to the values of a shard's cells, and references into its job",
    ),
    (
        "crates/worker/src/executor/thread.rs",
        "touches its own run queue and shards inside its zone",
    ),
    (
        "crates/worker/src/executor/thread/beginning.rs",
        "touches its own run queue inside its zone",
    ),
    (
        "crates/worker/src/executor/thread/idle.rs",
        "touches its own run queue inside its zone",
    ),
    (
        "crates/worker/src/executor/thread/leaving.rs",
        "touches its own run queue and shards inside its zone",
    ),
    (
        "crates/worker/src/executor/thread/thief.rs",
        "touches a victim's run queue while it is locked out of its zone",
    ),
    (
        "crates/worker/src/executor/times.rs",
        "passes a kernel's arguments on to it, with its caller's promise",
    ),
    (
        "crates/worker/tests/loom.rs",
        "a loom cell stands for the run queue that a zone guards",
    ),
    (
        "python/src/apart.rs",
        "the memory of arrays on their way, read and written under the interpreter's lock",
    ),
    (
        "python/src/array.rs",
        "takes the address of an array's elements, for compiled code",
    ),
    (
        "python/src/borrowed.rs",
        "borrows the caller's arrays for the time of a job",
    ),
    (
        "python/src/builder.rs",
        "declares stages whose kernels hold Python objects",
    ),
    (
        "python/src/builtin.rs",
        "reads the arrays whose addresses a compiled map passes",
    ),
    (
        "python/src/compiled.rs",
        "calls machine code at the address that its compiler gave",
    ),
    (
        "python/src/interrupts.rs",
        "asks the interpreter for a thread's name, and to raise an exception in another thread",
    ),
    (
        "python/src/kernels.rs",
        "calls Python over the cells that the builder declared",
    ),
    (
        "python/src/reserve.rs",
        "finds the budget of the kernel that its thread runs",
    ),
    (
        "python/src/sums.rs",
        "adds elements at addresses whose types and lengths agree",
    ),
    (
        "python/src/value.rs",
        "borrows the caller's arrays for the time of a run",
    ),
];

/// Whether the file is in the list. A listed path without `.rs` stands for a folder.
pub fn is_argued(path: &str) -> bool {
    ARGUED.iter().any(|(listed, _)| covers(listed, path))
}

fn covers(listed: &str, path: &str) -> bool {
    listed == path
        || path
            .strip_prefix(listed)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// Entries that no file of `allowing` needs any more.
pub fn stale(allowing: &[String]) -> Vec<String> {
    ARGUED
        .iter()
        .filter(|(listed, _)| !allowing.iter().any(|path| covers(listed, path)))
        .map(|(listed, _)| {
            format!("{listed}: unsafe: needs no exception; take it out of xtask/src/lints/unsafe_modules.rs")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_covers_its_files_only() {
        assert!(covers("crates/a/src/b", "crates/a/src/b/c.rs"));
        assert!(covers("crates/a/src/b.rs", "crates/a/src/b.rs"));
        assert!(!covers("crates/a/src/b", "crates/a/src/bc.rs"));
    }

    #[test]
    fn every_entry_has_a_reason() {
        for (path, reason) in ARGUED {
            assert!(reason.len() > 20, "{path}: {reason:?} argues for nothing");
        }
    }
}

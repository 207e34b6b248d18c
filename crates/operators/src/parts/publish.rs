//! Owns the end of a job that writes parts: once all parts and copies of all workers are on their
//! disks, each worker gives its directory its name.

use brambling_program::{Dataset, KernelError, Payload, Program, Sum};

/// What a task has written of a part, or of copies.
pub trait PartCount: Payload {
    /// Its bytes.
    fn bytes(&self) -> u64;
    /// The process in which the task ran.
    fn process(&self) -> &str;
}

/// A part's share of the directory, in the process in which the part is written.
pub(crate) trait PartOutput: Payload {
    /// All is whole: the directory gets its name.
    fn commit(&self) -> Result<(), KernelError>;
}

/// Adds the stages behind those that write parts and, where there are some, copies.
pub(crate) fn publish<O: PartOutput, P: PartCount, C: PartCount>(
    p: &mut Program,
    outputs: &Dataset<O>,
    written: &Dataset<P>,
    copied: Option<&Dataset<C>>,
) {
    let bytes = p.like::<u64, _>("bytes written", written);
    p.compute("count")
        .read(written)
        .write(&bytes)
        .run(bytes_of::<P>);
    let whole = p.temporary::<u64>("whole", 1);
    p.reduce_to(Sum, &bytes, &whole);
    if let Some(copied) = copied {
        let bytes = p.like::<u64, _>("bytes copied", copied);
        p.compute("count copies")
            .read(copied)
            .write(&bytes)
            .run(bytes_of::<C>);
        p.reduce(Sum, &bytes, &whole, |whole: &mut u64, copied: &u64| {
            *whole += copied
        });
    }
    let all = p.like::<u64, _>("all written", written);
    p.broadcast(&whole, &all);
    p.compute("publish")
        .read(&all)
        .read(outputs)
        .run(commit::<O>);
}

fn bytes_of<C: PartCount>(count: &C, bytes: &mut u64) {
    *bytes = count.bytes();
}

fn commit<O: PartOutput>(_all: &u64, output: &O) -> Result<(), KernelError> {
    output.commit()
}

//! Programs that leave their process: written as data, and linked again by whoever has the same functions.
//!
//! A program's [`Spec`](crate::Spec) says everything but what its functions do. These are found by names. Whoever writes a program registers it once, by
//! [`links!`](crate::links): a sample of it is built when a process first encodes or links a program, and each kernel, combiner and payload type of the
//! sample gets a name. So nothing is registered stage by stage, and a function has its name wherever it is used.
//!
//! # Rules
//! * A kernel has a name if it holds nothing, but for parameters that it was given by [`with`](crate::Compute::with): then one of its type does what any
//!   other does. What a closure captures cannot travel, and is refused by its stage.
//! * A name has a version. Whoever changes what a function does, or the encoding of its parameters, gives the sample a new one.
//! * Bytes are not trusted. A stage that links has exactly the payload and piece types that its kernel was compiled for.
//! * This module calls no kernel and does no I/O.

mod document;
mod error;
mod registry;

pub use document::{LINKED_VERSION, is_linked};
pub use error::LinkError;
pub use registry::Sample;

#[doc(hidden)]
pub use inventory::submit;

use crate::{DatasetId, Program};

/// Registers a program: its kernels, combiners and payload types get names, so that programs that use them can be
/// [encoded](Program::encode) here and [linked](Program::link) in another process that has this line too.
///
/// Give a name and a version, and a function that builds a sample. The sample never runs; its data may be empty. A closure that stands in a generic
/// function is another one for each of the function's types: those that the sample has are registered.
///
/// ```
/// use brambling_program::{Dataset, Program, Sum};
///
/// fn halve(times: &u64, number: &mut f64) {
///     *number /= 2f64.powi(*times as i32);
/// }
///
/// fn halving(p: &mut Program, times: u64) -> Dataset<f64> {
///     let number = p.value("number", 3, 80.0);
///     let total = p.dataset("total", 1);
///     p.compute("halve").update(&number).with(times).run(halve);
///     p.reduce_to(Sum, &number, &total);
///     total
/// }
/// brambling_program::links!("halving" 1, |p| {
///     halving(p, 1);
/// });
///
/// let mut p = Program::new("halving three times");
/// halving(&mut p, 3);
/// let elsewhere = Program::link(&p.encode()?)?;
/// assert_eq!(elsewhere.spec(), p.spec());
/// # Ok::<(), brambling_program::LinkError>(())
/// ```
#[macro_export]
macro_rules! links {
    ($name:literal $version:literal, $build:expr) => {
        $crate::link::submit! { $crate::link::Sample::new($name, $version, $build) }
    };
}

impl Program {
    /// The program as bytes that another process links. Datasets that functions of this process make, such as those of [`Program::load`], are named in
    /// them and not held by them: whoever sends the bytes sends their values too.
    ///
    /// # Errors
    /// When the program is wrong; when a kernel or combiner has no name, with its stage.
    pub fn encode(&self) -> Result<Vec<u8>, LinkError> {
        document::encode(self, registry::registry()?)
    }

    /// Whether [`Program::encode`] would not refuse.
    ///
    /// # Errors
    /// As there.
    pub fn check_links(&self) -> Result<(), LinkError> {
        document::check(self, registry::registry()?)
    }

    /// The program that bytes of [`Program::encode`] describe. Datasets that the encoding process made itself are to be [given](Program::give).
    ///
    /// # Errors
    /// When the bytes are no program, or of a newer format; when this process lacks a function or a type, with its name.
    pub fn link(bytes: &[u8]) -> Result<Program, LinkError> {
        document::link(bytes, registry::registry()?)
    }

    /// Whether a function of this process makes the values that a dataset begins with.
    pub fn is_made_here(&self, dataset: DatasetId) -> bool {
        matches!(
            self.sources[dataset.index()],
            Some(crate::program::InitialValues::Made(_))
        )
    }
}

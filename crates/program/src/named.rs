//! Names for the kernels of statements that are not declared stage by stage.

use crate::{Blocks, Combine, Dataset, Payload, Program};

/// A statement whose kernels have a name and parameters: made by [`Program::named`].
#[must_use = "give the statement"]
pub struct Named<'p> {
    program: &'p mut Program,
    name: String,
    parameters: Vec<u8>,
}

impl Program {
    /// Names the kernels of the statement that follows, with their serialised parameters, which workers
    /// compare. Without this their Rust names serve, and they must not capture anything that differs
    /// between processes. Stages that are declared one by one have the same, such as
    /// [`Compute::named`](crate::Compute::named).
    ///
    /// ```
    /// use brambling_program::Program;
    ///
    /// let halving = |limit: u64| {
    ///     let mut p = Program::new("halving");
    ///     let number = p.value("number", 1, 100u64);
    ///     p.named("above", limit.to_le_bytes().to_vec())
    ///         .repeat_while("large", &number, move |number| *number > limit, |p| {
    ///             p.compute("halve").update(&number).run(|number: &mut u64| *number /= 2);
    ///         });
    ///     p.spec().hash()
    /// };
    /// assert_eq!(halving(10), halving(10));
    /// assert_ne!(halving(10), halving(20));
    /// ```
    pub fn named(&mut self, name: impl Into<String>, parameters: Vec<u8>) -> Named<'_> {
        Named {
            program: self,
            name: name.into(),
            parameters,
        }
    }
}

impl Named<'_> {
    /// [`Program::repeat_while`]; the name is the test's, not that of what is repeated.
    pub fn repeat_while<T: Payload>(
        self,
        name: impl Into<String>,
        on: &Dataset<T>,
        test: impl Fn(&T) -> bool + Send + Sync + 'static,
        body: impl FnOnce(&mut Program),
    ) {
        // The kernel of the test is pushed before those of the body, so this is its number.
        let kernel = self.program.spec.kernels.len();
        self.program.repeat_while(name, on, test, body);
        let kernel = &mut self.program.spec.kernels[kernel];
        (kernel.name, kernel.parameters) = (self.name, self.parameters);
    }

    /// [`Program::reduce`].
    pub fn reduce<T: Payload, U: Payload>(
        self,
        op: impl Combine<T>,
        from: &Dataset<T>,
        to: &Dataset<U>,
        step: impl Fn(&mut U, &T) + Send + Sync + 'static,
    ) {
        self.statement(|p| p.reduce(op, from, to, step));
    }

    /// [`Program::reduce_blocks`].
    pub fn reduce_blocks<T: Payload, U: Payload>(
        self,
        op: impl Combine<T>,
        from: &Dataset<Blocks<T>>,
        to: &Dataset<U>,
        step: impl Fn(&mut U, &T) + Send + Sync + 'static,
    ) {
        self.statement(|p| p.reduce_blocks(op, from, to, step));
    }

    /// [`Program::reduce_to`].
    pub fn reduce_to<T: Payload>(self, op: impl Combine<T>, from: &Dataset<T>, to: &Dataset<T>) {
        self.statement(|p| p.reduce_to(op, from, to));
    }

    /// [`Program::all_reduce`].
    pub fn all_reduce<T: Payload>(self, op: impl Combine<T>, from: &Dataset<T>, to: &Dataset<T>) {
        self.statement(|p| p.all_reduce(op, from, to));
    }

    /// [`Program::all_reduce_blocks`].
    pub fn all_reduce_blocks<T: Payload>(
        self,
        op: impl Combine<T>,
        from: &Dataset<Blocks<T>>,
        to: &Dataset<T>,
    ) {
        self.statement(|p| p.all_reduce_blocks(op, from, to));
    }

    /// [`Program::exchange_neighbours`].
    #[allow(clippy::too_many_arguments)] // As there.
    pub fn exchange_neighbours<T: Payload, P: Payload>(
        self,
        name: &str,
        dataset: &Dataset<T>,
        offsets: &[i64],
        wrap: bool,
        send: impl Fn(&T, u32, &mut P) + Send + Sync + 'static,
        receive: impl Fn(&mut T, u32, &P) + Send + Sync + 'static,
    ) {
        self.statement(|p| p.exchange_neighbours(name, dataset, offsets, wrap, send, receive));
    }

    /// Adds a statement and names every kernel that it brought.
    fn statement(self, add: impl FnOnce(&mut Program)) {
        // A statement may bring several kernels, as a reduction brings its scatter and its gather:
        // each may capture what the parameters describe.
        let first = self.program.spec.kernels.len();
        add(self.program);
        for kernel in &mut self.program.spec.kernels[first..] {
            kernel.name.clone_from(&self.name);
            kernel.parameters.clone_from(&self.parameters);
        }
    }
}

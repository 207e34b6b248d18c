//! What a model is to those who keep a list of them: a name, its parameters, and the program that fits it.

use super::samples::{SampleTable, Samples, SamplesError};
use brambling_program::{Dataset, KernelError, Program};
use serde::{Deserialize, Serialize};

/// A model that one program fits.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// As it is called in every language.
    pub name: &'static str,
    /// What its parameters are called, in the order in which `build` takes them. A truth is 0 or 1.
    pub parameters: &'static [&'static str],
    /// Adds its stages to a program whose samples are loaded already. What it gives has one partition and is kept.
    /// Which stages there are does not depend on the parameters, so that any of them make a [sample](Model::sample).
    pub build: fn(&mut Program, &[f64], &Dataset<Samples>) -> Dataset<Found>,
}

impl Model {
    /// The program that fits it to a table, and where the program puts what it finds.
    ///
    /// # Panics
    /// When [`SampleTable::check_shape`] would refuse the table, or there are more or fewer parameters.
    pub fn program(
        &self,
        parameters: &[f64],
        table: SampleTable,
        partitions: u32,
    ) -> (Program, Dataset<Found>) {
        assert_eq!(parameters.len(), self.parameters.len());
        let mut p = Program::new(self.name);
        let samples = table.load(&mut p, partitions);
        let found = (self.build)(&mut p, parameters, &samples);
        p.keep(&found);
        (p, found)
    }

    /// Adds its stages, over a table without rows: what [`links!`](brambling_program::links) registers.
    pub fn sample(&self, p: &mut Program) {
        let samples = SampleTable::default().load(p, 1);
        (self.build)(p, &vec![0.0; self.parameters.len()], &samples);
    }
}

/// What a fit has found: arrays by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found(pub Vec<(String, Vec<f64>)>);
brambling_program::payload!(Found, |found| found
    .0
    .iter()
    .map(|(name, values)| name.capacity() + values.capacity() * size_of::<f64>())
    .sum());

impl Found {
    /// The array of a name; none if there is no such array.
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        let mut arrays = self.0.iter();
        arrays.find_map(|(found, values)| (found == name).then_some(&values[..]))
    }

    pub(super) fn of<const ARRAYS: usize>(arrays: [(&str, Vec<f64>); ARRAYS]) -> Found {
        let named = arrays.map(|(name, values)| (name.to_owned(), values));
        Found(named.into())
    }
}

/// How a kernel says what is wrong with the samples.
pub(super) fn refused(error: SamplesError) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}

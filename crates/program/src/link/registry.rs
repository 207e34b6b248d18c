//! The names of this process: what each sample of [`links!`](crate::links) has.

use super::LinkError;
use crate::program::{InitialValues, KnownCombiner, SourceReader};
use crate::{ExchangeId, Kernel, PayloadType, Program, Spec, StageId, StageKind, Use};
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::panic::catch_unwind;
use std::sync::{Arc, OnceLock};

/// A program that is registered.
#[derive(Debug)]
pub struct Sample {
    name: &'static str,
    version: u32,
    build: fn(&mut Program),
}

inventory::collect!(Sample);

impl Sample {
    /// For [`links!`](crate::links).
    pub const fn new(name: &'static str, version: u32, build: fn(&mut Program)) -> Sample {
        Sample {
            name,
            version,
            build,
        }
    }
}

/// A name with its version.
pub(super) type Name = (String, u32);

/// What a stage has to be for a kernel to be its own.
#[derive(Debug)]
pub(super) struct Signature {
    kind: StageKind,
    cells: bool,
    uses: Vec<(bool, &'static PayloadType)>,
    /// What it takes, and what it sends.
    pieces: [Vec<&'static PayloadType>; 2],
}

impl Signature {
    /// Of a stage, whose types are told by its program.
    pub(super) fn of(
        spec: &Spec,
        id: StageId,
        types: &[&'static PayloadType],
        pieces: &[&'static PayloadType],
    ) -> Signature {
        let stage = &spec.stages[id.index()];
        let piece = |exchange: &ExchangeId| pieces[exchange.index()];
        let pieces = [
            spec.takes_from(id).iter().map(piece).collect(),
            spec.sends_to(id).iter().map(piece).collect(),
        ];
        // A kernel's argument is `&T` or `&mut T`: nothing else of how a dataset is used reaches
        // it.
        let held =
            |&(dataset, how): &(crate::DatasetId, Use)| (how == Use::Read, types[dataset.index()]);
        Signature {
            kind: stage.kind,
            cells: stage.cells,
            uses: stage.uses.iter().map(held).collect(),
            pieces,
        }
    }

    /// Whether a kernel for one may be called for the other.
    pub(super) fn fits(&self, other: &Signature) -> bool {
        let is_same_use =
            |(a, b): (&(bool, &'static PayloadType), &(bool, &'static PayloadType))| {
                a.0 == b.0 && a.1.is_same(b.1)
            };
        let are_same = |(a, b): (&Vec<&'static PayloadType>, &Vec<&'static PayloadType>)| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b))
        };
        // Kinds are compared without their numbers, which are the program's.
        discriminant(&self.kind) == discriminant(&other.kind)
            && self.cells == other.cells
            && self.uses.len() == other.uses.len()
            && self.uses.iter().zip(&other.uses).all(is_same_use)
            && self.pieces.iter().zip(&other.pieces).all(are_same)
    }
}

/// A kernel that has a name.
pub(super) struct NamedKernel {
    pub(super) kernel: Arc<dyn Kernel>,
    pub(super) signature: Signature,
}

/// A combiner that has a name.
pub(super) struct NamedCombiner {
    pub(super) combining: KnownCombiner,
    pub(super) piece: &'static PayloadType,
}

/// All names.
#[derive(Default)]
pub(super) struct LinkRegistry {
    kernels: BTreeMap<Name, NamedKernel>,
    names: BTreeMap<TypeId, Name>,
    combiners: BTreeMap<Name, NamedCombiner>,
    readers: BTreeMap<Name, Arc<dyn SourceReader>>,
    types: BTreeMap<String, &'static PayloadType>,
}

/// Built once, when it is first needed.
pub(super) fn registry() -> Result<&'static LinkRegistry, LinkError> {
    static REGISTRY: OnceLock<Result<LinkRegistry, LinkError>> = OnceLock::new();
    let made = REGISTRY.get_or_init(|| {
        let mut samples: Vec<&Sample> = inventory::iter::<Sample>.into_iter().collect();
        // Sorted, whatever order the linker has put the samples in: a function that several samples
        // have is named after the same one everywhere.
        samples.sort_by_key(|sample| (sample.name, sample.version));
        let mut registry = LinkRegistry::default();
        samples
            .into_iter()
            .try_for_each(|sample| registry.take(sample))?;
        Ok(registry)
    });
    made.as_ref().map_err(LinkError::clone)
}

impl LinkRegistry {
    fn take(&mut self, sample: &Sample) -> Result<(), LinkError> {
        let program = built(sample)?;
        let types = program.types.iter().chain(&program.pieces);
        self.types
            .extend(types.map(|it| (it.name().into_owned(), *it)));
        let mut in_sample = BTreeMap::new();
        let mut name_of = |what: &str| {
            // Two stages of a sample may have one name: the second is told apart by its number.
            let count = in_sample.entry(what.to_owned()).or_insert(0u32);
            *count += 1;
            let name = match count {
                1 => format!("{}/{what}", sample.name),
                count => format!("{}/{what}#{count}", sample.name),
            };
            (name, sample.version)
        };
        for (id, stage) in (0..).map(StageId).zip(&program.spec.stages) {
            let kernel = &program.kernels[stage.kernel.index()];
            let signature = Signature::of(&program.spec, id, &program.types, &program.pieces);
            self.take_kernel(name_of(&stage.name), kernel, signature)?;
        }
        for (&exchange, combining) in &program.combiners {
            let name = name_of(&program.spec.exchanges[exchange.index()].name);
            let piece = program.pieces[exchange.index()];
            self.take_combiner(name, combining, piece)?;
        }
        for (dataset, origin) in program.spec.datasets.iter().zip(&program.sources) {
            if let Some(InitialValues::Scan(reader)) = origin {
                self.take_reader(name_of(&dataset.name), reader)?;
            }
        }
        Ok(())
    }

    fn take_reader(&mut self, name: Name, reader: &Arc<dyn SourceReader>) -> Result<(), LinkError> {
        let of_type = type_of_reader(reader);
        if let Some(known) = self.readers.get(&name)
            && type_of_reader(known) != of_type
        {
            let (name, version) = name;
            return Err(LinkError::Twice { name, version });
        }
        // A function is called by its first name: samples are taken in one order everywhere.
        self.names.entry(of_type).or_insert_with(|| name.clone());
        self.readers.insert(name, reader.clone());
        Ok(())
    }

    /// Kernels that hold something and take no parameters have no name: another of the type may do something else.
    fn take_kernel(
        &mut self,
        name: Name,
        kernel: &Arc<dyn Kernel>,
        signature: Signature,
    ) -> Result<(), LinkError> {
        let takes_parameters = kernel.with_parameters(&kernel.parameters()).is_some();
        // The captures of a closure cannot travel, so such a kernel gets no name.
        if !kernel.is_stateless() && !takes_parameters {
            return Ok(());
        }
        let of_type = type_of(kernel);
        if let Some(known) = self.kernels.get(&name)
            && type_of(&known.kernel) != of_type
        {
            let (name, version) = name;
            return Err(LinkError::Twice { name, version });
        }
        self.names.entry(of_type).or_insert_with(|| name.clone());
        let kernel = kernel.clone();
        self.kernels.insert(name, NamedKernel { kernel, signature });
        Ok(())
    }

    fn take_combiner(
        &mut self,
        name: Name,
        combining: &KnownCombiner,
        piece: &'static PayloadType,
    ) -> Result<(), LinkError> {
        let Some(of_type) = combining.stateless else {
            return Ok(());
        };
        if let Some(known) = self.combiners.get(&name)
            && known.combining.stateless != combining.stateless
        {
            let (name, version) = name;
            return Err(LinkError::Twice { name, version });
        }
        self.names.entry(of_type).or_insert_with(|| name.clone());
        let combining = combining.clone();
        self.combiners
            .insert(name, NamedCombiner { combining, piece });
        Ok(())
    }

    // ---- names of functions

    pub(super) fn name_of_kernel(&self, kernel: &Arc<dyn Kernel>) -> Option<&Name> {
        self.names.get(&type_of(kernel))
    }

    pub(super) fn name_of_combiner(
        &self,
        program: &Program,
        exchange: ExchangeId,
    ) -> Option<&Name> {
        let stateless = program.combiners.get(&exchange)?.stateless?;
        self.names.get(&stateless)
    }

    pub(super) fn name_of_reader(&self, reader: &Arc<dyn SourceReader>) -> Option<&Name> {
        self.names.get(&type_of_reader(reader))
    }

    // ---- functions of names

    pub(super) fn reader(&self, name: &Name) -> Result<&Arc<dyn SourceReader>, LinkError> {
        let versions = || versions(self.readers.keys(), name);
        let found = self.readers.get(name);
        found.ok_or_else(|| unknown("reader", name, versions()))
    }

    pub(super) fn kernel(&self, name: &Name) -> Result<&NamedKernel, LinkError> {
        let versions = || versions(self.kernels.keys(), name);
        let found = self.kernels.get(name);
        found.ok_or_else(|| unknown("kernel", name, versions()))
    }

    pub(super) fn combiner(&self, name: &Name) -> Result<&NamedCombiner, LinkError> {
        let versions = || versions(self.combiners.keys(), name);
        let found = self.combiners.get(name);
        found.ok_or_else(|| unknown("combiner", name, versions()))
    }

    pub(super) fn payload_type(
        &self,
        name: &str,
        what: impl FnOnce() -> String,
    ) -> Result<&'static PayloadType, LinkError> {
        let unknown = || LinkError::UnknownType {
            what: what(),
            name: name.into(),
        };
        self.types.get(name).copied().ok_or_else(unknown)
    }
}

/// A sample is its user's code: what goes wrong in it is an error like others.
fn built(sample: &Sample) -> Result<Program, LinkError> {
    let wrong = |why: String| LinkError::Sample {
        name: sample.name.into(),
        why,
    };
    let built = catch_unwind(|| {
        let mut program = Program::new(sample.name);
        (sample.build)(&mut program);
        program
    });
    let program = built.map_err(|payload| {
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| payload.downcast_ref::<&str>().copied());
        wrong(format!(
            "it panics: {}",
            said.unwrap_or("nothing more is known")
        ))
    })?;
    match program.errors.first() {
        Some(error) => Err(wrong(error.to_string())),
        None => Ok(program),
    }
}

fn type_of(kernel: &Arc<dyn Kernel>) -> TypeId {
    let kernel: &dyn Any = &**kernel;
    kernel.type_id()
}

fn type_of_reader(reader: &Arc<dyn SourceReader>) -> TypeId {
    let reader: &dyn Any = &**reader;
    reader.type_id()
}

fn versions<'n>(names: impl Iterator<Item = &'n Name>, name: &Name) -> Vec<u32> {
    let same = names.filter(|known| known.0 == name.0);
    same.map(|known| known.1).collect()
}

fn unknown(what: &'static str, (name, version): &Name, versions: Vec<u32>) -> LinkError {
    LinkError::Unknown {
        what,
        name: name.clone(),
        version: *version,
        versions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(samples: &[Sample]) -> String {
        let mut registry = LinkRegistry::default();
        let taken = samples.iter().try_for_each(|sample| registry.take(sample));
        taken.unwrap_err().to_string()
    }

    #[test]
    fn two_functions_of_one_name_are_refused() {
        let one = |p: &mut Program| {
            let x = p.dataset::<u64>("x", 1);
            p.compute("step").update(&x).run(|x: &mut u64| *x += 1);
        };
        let other = |p: &mut Program| {
            let x = p.dataset::<u64>("x", 1);
            p.compute("step").update(&x).run(|x: &mut u64| *x += 2);
        };
        let mut registry = LinkRegistry::default();
        for version in [1, 1, 2] {
            registry.take(&Sample::new("same", version, one)).unwrap();
        }
        assert_eq!(
            told(&[Sample::new("same", 1, one), Sample::new("same", 1, other)]),
            "two functions are registered as `same/step` of version 1; give one of the programs that links! registers another name"
        );
    }

    #[test]
    fn a_sample_that_cannot_be_built_is_named() {
        let text = told(&[Sample::new("wrong", 1, |p| {
            let _ = p.dataset::<u64>("x", 0);
        })]);
        let says = "the program `wrong`, which links! registers, cannot be built: dataset `x` has zero partitions; give it at least 1";
        assert_eq!(text, says);
        let text = told(&[Sample::new("ends", 1, |p| p.end())]);
        let says = "the program `ends`, which links! registers, cannot be built: it panics: no loop or branch is open";
        assert_eq!(text, says);
    }

    /// Another of a type that holds something may do something else: it has no name.
    #[test]
    fn what_captures_has_no_name() {
        let mut registry = LinkRegistry::default();
        registry
            .take(&Sample::new("captures", 1, |p| {
                let x = p.dataset::<u64>("x", 1);
                let by = p.spec().datasets.len() as u64;
                p.compute("step")
                    .update(&x)
                    .run(move |x: &mut u64| *x += by);
            }))
            .unwrap();
        assert!(registry.kernels.is_empty() && registry.names.is_empty());
    }
}

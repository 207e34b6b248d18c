//! A program's bytes: its spec, and the names of what its spec does not hold.
//!
//! `BRML`, a version (u16, little-endian), then in postcard: the spec's own bytes, which have a version of their own; names with versions; for each
//! kernel its name; for each exchange that is merged on its way its combiner's name; where values come from; where shards had better be.

use super::LinkError;
use super::registry::{LinkRegistry, Name, Signature};
use crate::program::{InitialValues, KnownCombiner};
use crate::{
    DatasetId, ExchangeId, Kernel, KernelId, PayloadType, PlacementHint, Program, Relation, Spec,
    StageId, Value,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The newest version of the format.
pub const LINKED_VERSION: u16 = 1;
const MAGIC: &[u8; 4] = b"BRML";

#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(with = "serde_bytes")]
    spec: Vec<u8>,
    names: Vec<Name>,
    /// By kernel, its name.
    kernels: Vec<u32>,
    combiners: Vec<(ExchangeId, u32)>,
    sources: Vec<(DatasetId, From)>,
    hints: Vec<(DatasetId, PlacementHint)>,
}

/// Where the values come from that a dataset begins with.
#[derive(Serialize, Deserialize)]
enum From {
    /// Each partition begins with a copy of this.
    Value(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Whoever sends the program makes them.
    Sender,
    /// A function makes them wherever the partition is: its name, and its parameters.
    Scan(u32, #[serde(with = "serde_bytes")] Vec<u8>),
}

/// Numbers for names, in the order in which they are first met.
#[derive(Default)]
struct Names<'n> {
    numbers: BTreeMap<&'n Name, u32>,
    list: Vec<Name>,
}

impl<'n> Names<'n> {
    fn number(&mut self, name: &'n Name) -> u32 {
        *self.numbers.entry(name).or_insert_with(|| {
            self.list.push(name.clone());
            self.list.len() as u32 - 1
        })
    }
}

/// Whether bytes say that they are a program that links.
pub fn is_linked(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

pub(super) fn check(program: &Program, registry: &LinkRegistry) -> Result<(), LinkError> {
    named(program, registry).map(drop)
}

type Numbered<'n> = (Names<'n>, Vec<u32>, Vec<(ExchangeId, u32)>);

/// The names of all functions, or whichever has none.
fn named<'n>(program: &Program, registry: &'n LinkRegistry) -> Result<Numbered<'n>, LinkError> {
    if let Some(error) = program.errors.first() {
        return Err(error.clone().into());
    }
    let mut names = Names::default();
    let mut kernels = vec![0; program.kernels.len()];
    for stage in &program.spec.stages {
        let kernel = &program.kernels[stage.kernel.index()];
        let what = || format!("stage `{}`", stage.name);
        let name = match registry.name_of_kernel(kernel) {
            Some(name) => name,
            None => return Err(nameless(kernel, what())),
        };
        // By kernel, not by stage: several stages may share one.
        kernels[stage.kernel.index()] = names.number(name);
    }
    let mut combiners = Vec::new();
    for (&exchange, combining) in &program.combiners {
        let what = || {
            format!(
                "exchange `{}`",
                program.spec.exchanges[exchange.index()].name
            )
        };
        let Some(name) = registry.name_of_combiner(program, exchange) else {
            return Err(match combining.stateless {
                Some(_) => LinkError::Nameless { what: what() },
                None => LinkError::Captures { what: what() },
            });
        };
        combiners.push((exchange, names.number(name)));
    }
    for (dataset, origin) in program.spec.datasets.iter().zip(&program.sources) {
        if let Some(InitialValues::Scan(reader)) = origin
            && registry.name_of_reader(reader).is_none()
        {
            let what = format!("dataset `{}`", dataset.name);
            return Err(LinkError::Nameless { what });
        }
    }
    Ok((names, kernels, combiners))
}

fn nameless(kernel: &Arc<dyn Kernel>, what: String) -> LinkError {
    let has_parameters = || kernel.with_parameters(&kernel.parameters()).is_some();
    match kernel.is_stateless() || has_parameters() {
        true => LinkError::Nameless { what },
        false => LinkError::Captures { what },
    }
}

pub(super) fn encode(program: &Program, registry: &LinkRegistry) -> Result<Vec<u8>, LinkError> {
    let (mut names, kernels, combiners) = named(program, registry)?;
    let mut sources = Vec::new();
    for (dataset, origin) in (0..).map(DatasetId).zip(&program.sources) {
        let from = match origin {
            None => continue,
            Some(InitialValues::Value(value)) => {
                let mut bytes = Vec::new();
                value.encode(&mut bytes);
                From::Value(bytes)
            }
            // Values that a closure makes cannot travel with it: whoever sends the program is asked
            // for them.
            Some(InitialValues::Made(_) | InitialValues::Given) => From::Sender,
            Some(InitialValues::Scan(reader)) => {
                let name = registry.name_of_reader(reader).expect("checked");
                From::Scan(names.number(name), reader.parameters())
            }
        };
        sources.push((dataset, from));
    }
    let document = Document {
        spec: program.spec.encode(),
        names: names.list,
        kernels,
        combiners,
        sources,
        hints: (program.hints.iter())
            .map(|(dataset, hint)| (*dataset, *hint))
            .collect(),
    };
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&LINKED_VERSION.to_le_bytes());
    Ok(postcard::to_io(&document, out).expect("a program serialises into memory"))
}

fn malformed(reason: impl Into<String>) -> LinkError {
    LinkError::Malformed {
        reason: reason.into(),
    }
}

fn read(bytes: &[u8]) -> Result<(Spec, Document), LinkError> {
    let header: &[u8; 6] = bytes
        .first_chunk()
        .ok_or_else(|| malformed("shorter than a header"))?;
    if &header[..4] != MAGIC {
        return Err(malformed("the first four bytes are not BRML"));
    }
    // Before anything else is read: a newer format may mean something else by every byte.
    let found = u16::from_le_bytes([header[4], header[5]]);
    if found > LINKED_VERSION {
        return Err(LinkError::NewerFormat {
            found,
            known: LINKED_VERSION,
        });
    }
    let read = postcard::take_from_bytes::<Document>(&bytes[6..]);
    let (document, rest) = read.map_err(|error| malformed(error.to_string()))?;
    // Bytes behind a program are no program of ours.
    if !rest.is_empty() {
        return Err(malformed(format!("{} bytes too many", rest.len())));
    }
    let spec = Spec::decode(&document.spec)?;
    Ok((spec, document))
}

pub(super) fn link(bytes: &[u8], registry: &LinkRegistry) -> Result<Program, LinkError> {
    let (spec, document) = read(bytes)?;
    let types = spec.datasets.iter().map(|dataset| {
        registry.payload_type(&dataset.payload, || format!("dataset `{}`", dataset.name))
    });
    let types = types.collect::<Result<Vec<_>, _>>()?;
    let pieces = spec.exchanges.iter().map(|exchange| {
        registry.payload_type(&exchange.piece, || format!("exchange `{}`", exchange.name))
    });
    let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
    let mut program = Program::new(spec.name.clone());
    program.kernels = kernels(&spec, &document, registry, (&types, &pieces))?;
    program.combiners = combiners(&spec, &document, registry, &pieces)?;
    program.sources = sources(&spec, &document, registry, &types)?;
    program.scatters = scatters(&spec);
    for &(dataset, hint) in &document.hints {
        if dataset.index() >= spec.datasets.len() {
            return Err(malformed(format!("no dataset {dataset}")));
        }
        program.hints.insert(dataset, hint);
    }
    program.types = types;
    program.pieces = pieces;
    program.spec = spec;
    // Bytes from outside: whatever the builder would have refused is refused here.
    program.validate()?;
    Ok(program)
}

fn name_at(document: &Document, at: u32) -> Result<&Name, LinkError> {
    let name = document.names.get(at as usize);
    name.ok_or_else(|| malformed(format!("name {at} of only {}", document.names.len())))
}

fn kernels(
    spec: &Spec,
    document: &Document,
    registry: &LinkRegistry,
    (types, pieces): (&[&'static PayloadType], &[&'static PayloadType]),
) -> Result<Vec<Arc<dyn Kernel>>, LinkError> {
    // The spec has checked its numbers of kernels against its own list alone, and below they index
    // this one.
    if document.kernels.len() != spec.kernels.len() {
        return Err(malformed("not as many names as kernels"));
    }
    let mut linked: Vec<Option<Arc<dyn Kernel>>> = vec![None; spec.kernels.len()];
    for (id, stage) in (0..).map(StageId).zip(&spec.stages) {
        let KernelId(at) = stage.kernel;
        let name = name_at(document, document.kernels[at as usize])?;
        let known = registry.kernel(name)?;
        // The bytes say which datasets and pieces a stage hands its kernel: they have to be those
        // for which the kernel was compiled.
        if !known
            .signature
            .fits(&Signature::of(spec, id, types, pieces))
        {
            let name = &name.0;
            let stage = &stage.name;
            return Err(malformed(format!(
                "stage `{stage}` hands kernel `{name}` other datasets or pieces than it takes"
            )));
        }
        let parameters = &spec.kernels[at as usize].parameters;
        let kernel = match known.kernel.with_parameters(parameters) {
            None => known.kernel.clone(),
            Some(Ok(kernel)) => kernel,
            Some(Err(error)) => {
                let stage = &stage.name;
                return Err(malformed(format!("parameters of stage `{stage}`: {error}")));
            }
        };
        linked[at as usize] = Some(kernel);
    }
    let all = linked.into_iter().collect::<Option<Vec<_>>>();
    // A kernel that no stage names was checked against no signature.
    all.ok_or_else(|| malformed("a kernel of no stage"))
}

fn combiners(
    spec: &Spec,
    document: &Document,
    registry: &LinkRegistry,
    pieces: &[&'static PayloadType],
) -> Result<BTreeMap<ExchangeId, KnownCombiner>, LinkError> {
    let combiner = |&(exchange, name): &(ExchangeId, u32)| {
        let name = name_at(document, name)?;
        let known = registry.combiner(name)?;
        let spec = spec.exchanges.get(exchange.index());
        let spec = spec.ok_or_else(|| malformed(format!("no exchange {exchange}")))?;
        // The combiner casts pieces by this type.
        let fits = known.piece.is_same(pieces[exchange.index()]);
        if !fits || spec.streamed || spec.relation != Relation::AllToOne {
            let (exchange, name) = (&spec.name, &name.0);
            return Err(malformed(format!(
                "exchange `{exchange}` is not one that combiner `{name}` merges"
            )));
        }
        Ok((exchange, known.combining.clone()))
    };
    document.combiners.iter().map(combiner).collect()
}

fn sources(
    spec: &Spec,
    document: &Document,
    registry: &LinkRegistry,
    types: &[&'static PayloadType],
) -> Result<Vec<Option<InitialValues>>, LinkError> {
    let mut sources: Vec<Option<InitialValues>> = (0..types.len()).map(|_| None).collect();
    for (dataset, from) in &document.sources {
        let place = sources.get_mut(dataset.index());
        let place = place.ok_or_else(|| malformed(format!("no dataset {dataset}")))?;
        let name = &spec.datasets[dataset.index()].name;
        *place = Some(match from {
            From::Value(bytes) => {
                let mut input = &bytes[..];
                let value = Value::decode(types[dataset.index()], &mut input);
                let value =
                    value.map_err(|error| malformed(format!("dataset `{name}`: {error}")))?;
                if !input.is_empty() {
                    return Err(malformed(format!("dataset `{name}`: bytes too many")));
                }
                InitialValues::Value(value)
            }
            From::Scan(reader, parameters) => {
                let reader = registry.reader(name_at(document, *reader)?)?;
                if !reader.payload().is_same(types[dataset.index()]) {
                    return Err(malformed(format!(
                        "dataset `{name}` is read as another type"
                    )));
                }
                let reader = reader.with_parameters(parameters);
                let reader =
                    reader.map_err(|error| malformed(format!("dataset `{name}`: {error}")))?;
                InitialValues::Scan(reader)
            }
            From::Sender => InitialValues::Given,
        });
    }
    for (dataset, source) in spec.datasets.iter().zip(&sources) {
        // Otherwise a shard would begin with nothing, or with a value that nobody expects.
        if dataset.loaded != source.is_some() {
            let name = &dataset.name;
            return Err(malformed(format!(
                "dataset `{name}` begins with a value, or does not"
            )));
        }
    }
    Ok(sources)
}

/// The first scatter of each exchange.
fn scatters(spec: &Spec) -> Vec<Option<StageId>> {
    let mut scatters = vec![None; spec.exchanges.len()];
    for id in (0..spec.stages.len() as u32).map(StageId) {
        if let Some(exchange) = spec.sends_to(id) {
            scatters[exchange.index()].get_or_insert(id);
        }
    }
    scatters
}

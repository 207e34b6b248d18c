//! Models and analyses as bytes, for workers that build the same program of them: the call, with its arrays.

use crate::graph::{self, EdgeList, Ids, PageRank, Precision};
use crate::ml::{self, Given, KMeans, KMeansStart, LogisticRegression, Solver, Table};
use crate::{Caller, RunOptions};
use brambling_operators::ml::samples::SampleTable;
use brambling_program::{DecodeError, Foreign, Payload, Program};

/// What a recipe begins with. It ends with the version of its encoding.
const MAGIC: &[u8] = b"brambling recipe 2\n";

/// A call of a model or an analysis that runs one program.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) call: Call,
    /// Partitions of its data, of its vertices, or of its edges.
    pub(crate) partitions: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Call {
    Logistic {
        model: LogisticRegression,
        x: Table,
        y: Foreign<f64>,
        columns: usize,
        classes: usize,
        given: Given,
    },
    KMeans {
        model: KMeans,
        table: SampleTable,
        centres: Vec<f64>,
    },
    KMeansStart {
        table: SampleTable,
        clusters: usize,
        seed: u64,
    },
    PageRank {
        how: PageRank,
        edges: EdgeList,
    },
    Analysis {
        what: Analysis,
        edges: EdgeList,
    },
    /// One of [`ml::MODELS`].
    Model {
        name: String,
        parameters: Vec<f64>,
        table: SampleTable,
    },
}

/// An algorithm on a graph, with its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Analysis {
    Components,
    Bfs(usize),
    Sssp(usize),
    LabelPropagation(u64),
    LocalClustering,
}

impl Recipe {
    /// The bytes that a worker is sent.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        self.partitions.encode(&mut out);
        self.call.encode(&mut out);
        out
    }

    /// The program that bytes describe; nothing when they are no recipe.
    pub(crate) fn program(bytes: &[u8]) -> Option<Result<Program, String>> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let built = Recipe::decode(&mut rest).map_err(|error| error.to_string());
        Some(built.and_then(|recipe| recipe.build()))
    }

    fn decode(input: &mut &[u8]) -> Result<Recipe, DecodeError> {
        let partitions = u32::decode(input)?;
        let call = Call::decode(input)?;
        match input {
            [] => Ok(Recipe { call, partitions }),
            _ => Err(broken("more bytes than a recipe has")),
        }
    }

    /// Calls it, and keeps the program that would run.
    fn build(self) -> Result<Program, String> {
        let options = RunOptions::new()
            .partitions(self.partitions)
            .grid(self.partitions);
        let call = self.call;
        let program = options.program_of(|options, caller| call.run(options, caller));
        program.map_err(|refused| refused.unwrap_or_else(|| "it runs no program".into()))
    }
}

impl Call {
    /// What went wrong, if anything did.
    fn run(self, options: &RunOptions, caller: &mut dyn Caller) -> Option<String> {
        fn told<T, E: ToString>(result: Result<T, E>) -> Option<String> {
            result.err().map(|error| error.to_string())
        }
        match self {
            Call::Logistic {
                model,
                x,
                y,
                columns,
                classes: 2,
                given,
            } => told(model.fit_given(x, y, columns, given, options, caller)),
            Call::Logistic {
                model,
                x,
                y,
                columns,
                classes,
                given,
            } => told(model.fit_classes_given(x, y, columns, classes, given, options, caller)),
            Call::KMeans {
                model,
                table,
                centres,
            } => {
                let SampleTable {
                    x,
                    weights,
                    columns,
                    ..
                } = table;
                told(model.fit_weighted(x, weights, columns, centres, options, caller))
            }
            Call::KMeansStart {
                table,
                clusters,
                seed,
            } => {
                let SampleTable {
                    x,
                    weights,
                    columns,
                    ..
                } = table;
                let start = KMeansStart::PlusPlus;
                told(start.centres_weighted(x, weights, columns, clusters, seed, options, caller))
            }
            Call::PageRank { how, edges } => {
                told(graph::pagerank_with(&edges, &how, options, caller))
            }
            Call::Analysis { what, edges } => what.run(&edges, options, caller),
            Call::Model {
                name,
                parameters,
                table,
            } => match ml::model(&name) {
                Some(model) => told(ml::fit(model, &parameters, table, options, caller)),
                None => Some(format!("this version has no model {name:?}")),
            },
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Call::Logistic {
                model,
                x,
                y,
                columns,
                classes,
                given,
            } => {
                (0u8, *columns as u64, *classes as u64).encode(out);
                (model.c, model.fit_intercept, model.tol, model.max_iter).encode(out);
                (model.solver == Solver::Lbfgs).encode(out);
                match x {
                    Table::Doubles(x) => {
                        false.encode(out);
                        put(x, out);
                    }
                    Table::Singles(x) => {
                        true.encode(out);
                        put(x, out);
                    }
                }
                put(y, out);
                put(&given.weights, out);
                given.start.encode(out);
            }
            Call::KMeans {
                model,
                table,
                centres,
            } => {
                (1u8, model.tol, model.max_iter).encode(out);
                table.encode(out);
                centres.encode(out);
            }
            Call::KMeansStart {
                table,
                clusters,
                seed,
            } => {
                (2u8, *clusters as u64, *seed).encode(out);
                table.encode(out);
            }
            Call::PageRank { how, edges } => {
                (3u8, how.damping, how.tol, how.max_iter).encode(out);
                (how.precision == Precision::F32).encode(out);
                how.personalization.is_some().encode(out);
                how.personalization
                    .iter()
                    .for_each(|values| put(values, out));
                put_edges(edges, out);
            }
            Call::Analysis { what, edges } => {
                let (kind, parameter) = what.coded();
                (4u8, kind, parameter).encode(out);
                put_edges(edges, out);
            }
            Call::Model {
                name,
                parameters,
                table,
            } => {
                5u8.encode(out);
                name.encode(out);
                parameters.encode(out);
                table.encode(out);
            }
        }
    }

    fn decode(input: &mut &[u8]) -> Result<Call, DecodeError> {
        Ok(match u8::decode(input)? {
            0 => {
                let (columns, classes) = (size(input)?, size(input)?);
                let (c, fit_intercept, tol, max_iter) = Payload::decode(input)?;
                let solver = match bool::decode(input)? {
                    true => Solver::Lbfgs,
                    false => Solver::GradientDescent,
                };
                let x = match bool::decode(input)? {
                    false => Table::Doubles(get(input)?),
                    true => Table::Singles(get(input)?),
                };
                let model = LogisticRegression {
                    c,
                    fit_intercept,
                    tol,
                    max_iter,
                    solver,
                };
                let y = get(input)?;
                let given = Given::new(get(input)?, Payload::decode(input)?);
                Call::Logistic {
                    model,
                    x,
                    y,
                    columns,
                    classes,
                    given,
                }
            }
            1 => {
                let (tol, max_iter) = Payload::decode(input)?;
                let (table, centres) = (SampleTable::decode(input)?, Payload::decode(input)?);
                Call::KMeans {
                    model: KMeans { tol, max_iter },
                    table,
                    centres,
                }
            }
            2 => {
                let (clusters, seed) = (size(input)?, u64::decode(input)?);
                let table = SampleTable::decode(input)?;
                Call::KMeansStart {
                    table,
                    clusters,
                    seed,
                }
            }
            3 => {
                let (damping, tol, max_iter) = Payload::decode(input)?;
                let precision = match bool::decode(input)? {
                    true => Precision::F32,
                    false => Precision::F64,
                };
                let personalization = match bool::decode(input)? {
                    true => Some(get(input)?),
                    false => None,
                };
                let how = PageRank {
                    damping,
                    tol,
                    max_iter,
                    personalization,
                    precision,
                };
                let edges = get_edges(input)?;
                Call::PageRank { how, edges }
            }
            4 => {
                let (kind, parameter) = Payload::decode(input)?;
                let what = Analysis::of_code(kind, parameter)?;
                let edges = get_edges(input)?;
                Call::Analysis { what, edges }
            }
            5 => Call::Model {
                name: Payload::decode(input)?,
                parameters: Payload::decode(input)?,
                table: SampleTable::decode(input)?,
            },
            other => return Err(broken(format!("there is no call {other}"))),
        })
    }
}

impl Analysis {
    fn run(
        self,
        edges: &EdgeList,
        options: &RunOptions,
        caller: &mut dyn Caller,
    ) -> Option<String> {
        let failed = match self {
            Analysis::Components => graph::connected_components(edges, options, caller).err(),
            Analysis::Bfs(from) => graph::bfs(edges, from, options, caller).err(),
            Analysis::Sssp(from) => graph::sssp(edges, from, options, caller).err(),
            Analysis::LabelPropagation(turns) => {
                graph::label_propagation(edges, turns, options, caller).err()
            }
            Analysis::LocalClustering => graph::local_clustering(edges, options, caller).err(),
        };
        failed.map(|error| error.to_string())
    }

    fn coded(self) -> (u8, u64) {
        match self {
            Analysis::Components => (0, 0),
            Analysis::Bfs(from) => (1, from as u64),
            Analysis::Sssp(from) => (2, from as u64),
            Analysis::LabelPropagation(turns) => (3, turns),
            Analysis::LocalClustering => (4, 0),
        }
    }

    fn of_code(kind: u8, parameter: u64) -> Result<Analysis, DecodeError> {
        let place = || {
            usize::try_from(parameter).map_err(|_| broken("a vertex beyond this machine's numbers"))
        };
        Ok(match kind {
            0 => Analysis::Components,
            1 => Analysis::Bfs(place()?),
            2 => Analysis::Sssp(place()?),
            3 => Analysis::LabelPropagation(parameter),
            4 => Analysis::LocalClustering,
            other => return Err(broken(format!("there is no analysis {other}"))),
        })
    }
}

fn broken(reason: impl Into<String>) -> DecodeError {
    DecodeError {
        expected: "recipe".into(),
        reason: reason.into(),
    }
}

fn size(input: &mut &[u8]) -> Result<usize, DecodeError> {
    usize::try_from(u64::decode(input)?).map_err(|_| broken("a size beyond this machine's numbers"))
}

/// As a vector of the same values is encoded.
fn put<T: Payload>(values: &Foreign<T>, out: &mut Vec<u8>) {
    (values.len() as u64).encode(out);
    T::encode_all(values, out);
}

fn get<T: Payload>(input: &mut &[u8]) -> Result<Foreign<T>, DecodeError> {
    Vec::<T>::decode(input).map(Foreign::owned)
}

fn put_ids(ids: &Ids, out: &mut Vec<u8>) {
    match ids {
        Ids::U32(ids) => {
            false.encode(out);
            put(ids, out);
        }
        Ids::U64(ids) => {
            true.encode(out);
            put(ids, out);
        }
    }
}

fn get_ids(input: &mut &[u8]) -> Result<Ids, DecodeError> {
    Ok(match bool::decode(input)? {
        false => Ids::U32(get(input)?),
        true => Ids::U64(get(input)?),
    })
}

fn put_edges(edges: &EdgeList, out: &mut Vec<u8>) {
    (edges.vertices as u64).encode(out);
    put_ids(&edges.sources, out);
    put_ids(&edges.targets, out);
    edges.weights.is_some().encode(out);
    edges.weights.iter().for_each(|weights| put(weights, out));
}

fn get_edges(input: &mut &[u8]) -> Result<EdgeList, DecodeError> {
    let vertices = size(input)?;
    let (sources, targets) = (get_ids(input)?, get_ids(input)?);
    let weights = match bool::decode(input)? {
        true => Some(get(input)?),
        false => None,
    };
    Ok(EdgeList {
        vertices,
        sources,
        targets,
        weights,
    })
}

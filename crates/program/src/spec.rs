//! The program as data: what workers compare, print and compile. Holds no code.

use crate::{BlockId, BuildError, DatasetId, ExchangeId, KernelId, Relation, StageId, StreamId};
use serde::{Deserialize, Serialize};

/// The newest format version. A program that streams nothing is written in version 1, as it always was; version 2 adds what streams.
pub const FORMAT_VERSION: u16 = 2;
/// The version of the numeric kernels: part of the promise of equal bits.
pub const NUMERICS_VERSION: u32 = 1;
const MAGIC: &[u8; 4] = b"BRMP";

/// A number of partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Count {
    /// Known when the program is written.
    Fixed(u32),
    /// Bound when the job starts: an index into the program's symbols.
    Symbol(u32),
}

impl From<u32> for Count {
    fn from(count: u32) -> Count {
        Count::Fixed(count)
    }
}

/// How a dataset's rows were dealt to its partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Partitioner {
    /// One value per partition; nothing is known.
    Opaque,
    /// Whole blocks of the global grid, in order.
    Blocks,
    /// By the hash of a key.
    Hash,
}

/// A variable of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatasetSpec {
    /// Its name.
    pub name: String,
    /// Name of its payload type.
    pub payload: String,
    /// Its number of partitions.
    pub count: Count,
    /// How it is partitioned.
    pub partitioner: Partitioner,
    /// Whether it outlives its last use.
    pub keep: bool,
    /// Whether it has a value before the program starts.
    pub loaded: bool,
}

/// A scatter and its gather.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExchangeSpec {
    /// Its name.
    pub name: String,
    /// Name of its piece type.
    pub piece: String,
    /// Who may send to whom.
    pub relation: Relation,
    /// Whether its ends are streaming stages, and a source sends any number of chunks to a destination.
    #[serde(skip)]
    pub streamed: bool,
}

/// What a streaming stage reads and writes by chunks, between its first call and its last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StreamSpec {
    /// The streamed exchanges that it reads.
    pub inputs: Vec<ExchangeId>,
    /// The one that it writes.
    pub output: Option<ExchangeId>,
    /// Whether a task that is begun anew sends the same chunks, and leaves the same behind.
    pub repeatable: bool,
}

impl StreamSpec {
    /// Whether an open task keeps its shard where it is until it is done: begun anew it would not do the same.
    pub fn keeps_its_shard(&self) -> bool {
        !self.repeatable && !brambling_memory::mutants::is_on("open-tasks-leave")
    }
}

/// Who runs a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Runner {
    /// A worker thread.
    Native,
    /// The thread that called run: it holds the interpreter lock of another language.
    Caller,
}

/// A user's function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelSpec {
    /// Its name.
    pub name: String,
    /// Its serialised parameters, or its code.
    pub parameters: Vec<u8>,
    /// Who runs it.
    pub runner: Runner,
}

/// What a stage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StageKind {
    /// One shard in, same shard out.
    Compute,
    /// Sends pieces to another group.
    Scatter(ExchangeId),
    /// Merges the pieces that reached this partition.
    Gather(ExchangeId),
    /// Gives a boolean to everybody.
    Signal,
    /// Keeps a state between its calls, and reads and writes by chunks.
    Stream(StreamId),
}

/// How a stage uses a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Use {
    /// Reads it.
    Read,
    /// Writes it; what was there before does not matter.
    Write,
    /// Reads and writes it.
    Update,
}

/// An instruction that runs user code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StageSpec {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: StageKind,
    /// The datasets it uses, in the order of its kernel's arguments.
    pub uses: Vec<(DatasetId, Use)>,
    /// Whether the kernel gets cells instead of payloads.
    pub cells: bool,
    /// Its function.
    pub kernel: KernelId,
    /// The block it stands in.
    pub block: BlockId,
}

/// A node of the structured program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProgramNode {
    /// An instruction.
    Stage(StageId),
    /// A counted loop.
    Repeat {
        /// How many turns.
        turns: u64,
        /// What is repeated.
        body: BlockId,
    },
    /// A loop that a signal ends; tested before each turn.
    While {
        /// The block of the test: entered once more than the body.
        test_block: BlockId,
        /// The signal stage.
        test: StageId,
        /// What is repeated.
        body: BlockId,
    },
    /// A branch on the latest outcome of a signal.
    Branch {
        /// The signal stage.
        signal: StageId,
        /// When true.
        then: BlockId,
        /// When false.
        otherwise: BlockId,
    },
}

/// A whole program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// The seed of its random numbers.
    pub seed: u64,
    /// Version of the numeric kernels.
    pub numerics: u32,
    /// Names of the partition counts bound when the job starts.
    pub symbols: Vec<String>,
    /// Its variables.
    pub datasets: Vec<DatasetSpec>,
    /// Its exchanges.
    pub exchanges: Vec<ExchangeSpec>,
    /// Its functions.
    pub kernels: Vec<KernelSpec>,
    /// Its instructions.
    pub stages: Vec<StageSpec>,
    /// Its blocks; the first is the program's own.
    pub blocks: Vec<Vec<ProgramNode>>,
    /// What its streaming stages read and write.
    #[serde(skip)]
    pub streams: Vec<StreamSpec>,
}

/// What version 2 adds to version 1.
#[derive(Serialize, Deserialize)]
struct Streamed {
    exchanges: Vec<ExchangeId>,
    stages: Vec<StreamSpec>,
}

impl Spec {
    /// The block that the program starts with.
    pub const ROOT: BlockId = BlockId(0);

    /// The program's bytes: magic, format version, then the fields.
    pub fn encode(&self) -> Vec<u8> {
        let is_streamed = |id: &ExchangeId| self.exchanges[id.index()].streamed;
        let exchanges = (0..self.exchanges.len() as u32).map(ExchangeId);
        let streamed = Streamed {
            exchanges: exchanges.filter(is_streamed).collect(),
            stages: self.streams.clone(),
        };
        let streams = !streamed.exchanges.is_empty() || !streamed.stages.is_empty();
        // A program without streams keeps the older format: older builds can read it, and its hash
        // stays.
        let version = if streams { FORMAT_VERSION } else { 1 };
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&version.to_le_bytes());
        out = postcard::to_io(self, out).expect("a program serialises into memory");
        match streams {
            true => postcard::to_io(&streamed, out).expect("so do its streams"),
            false => out,
        }
    }

    /// Reads a program.
    ///
    /// # Errors
    /// When the bytes are no program, of a newer format, or name things that they do not hold.
    pub fn decode(bytes: &[u8]) -> Result<Spec, BuildError> {
        let malformed = |reason: String| BuildError::Malformed { reason };
        let header: &[u8; 6] = bytes
            .first_chunk()
            .ok_or_else(|| malformed("shorter than a header".into()))?;
        if &header[..4] != MAGIC {
            return Err(malformed("the first four bytes are not BRMP".into()));
        }
        let version = u16::from_le_bytes([header[4], header[5]]);
        if version > FORMAT_VERSION {
            return Err(BuildError::NewerFormat {
                found: version,
                known: FORMAT_VERSION,
            });
        }
        let wrong = |e: postcard::Error| malformed(e.to_string());
        let (mut spec, mut rest) = postcard::take_from_bytes::<Spec>(&bytes[6..]).map_err(wrong)?;
        if version > 1 {
            let (streamed, end) = postcard::take_from_bytes::<Streamed>(rest).map_err(wrong)?;
            rest = end;
            spec.streams = streamed.stages;
            for id in streamed.exchanges {
                let exchange = spec.exchanges.get_mut(id.index());
                let exchange = exchange.ok_or_else(|| malformed(format!("no exchange {id}")))?;
                exchange.streamed = true;
            }
        }
        if !rest.is_empty() {
            return Err(malformed(format!("{} bytes too many", rest.len())));
        }
        spec.check_references().map_err(malformed)?;
        Ok(spec)
    }

    /// A hash of the encoding: workers compare it before a program starts.
    pub fn hash(&self) -> u128 {
        xxhash_rust::xxh3::xxh3_128(&self.encode())
    }

    /// By stage, whether it stands in a loop. A loop's test does.
    pub fn stages_in_loops(&self) -> Vec<bool> {
        let mut repeats = vec![false; self.blocks.len()];
        // Inner blocks are numbered after the block they stand in.
        for (at, block) in self.blocks.iter().enumerate() {
            for node in block {
                match *node {
                    ProgramNode::Stage(_) => {}
                    ProgramNode::Repeat { body, .. } => repeats[body.index()] = true,
                    ProgramNode::While {
                        test_block, body, ..
                    } => {
                        repeats[test_block.index()] = true;
                        repeats[body.index()] = true;
                    }
                    ProgramNode::Branch {
                        then, otherwise, ..
                    } => {
                        repeats[then.index()] = repeats[at];
                        repeats[otherwise.index()] = repeats[at];
                    }
                }
            }
        }
        let in_loop = |stage: &StageSpec| repeats[stage.block.index()];
        self.stages.iter().map(in_loop).collect()
    }

    /// The exchange that a stage sends to.
    pub fn sends_to(&self, stage: StageId) -> Option<ExchangeId> {
        match self.stages[stage.index()].kind {
            StageKind::Scatter(exchange) => Some(exchange),
            StageKind::Stream(stream) => self.streams[stream.index()].output,
            StageKind::Gather(_) | StageKind::Compute | StageKind::Signal => None,
        }
    }

    /// The exchanges that a stage takes from.
    pub fn takes_from(&self, stage: StageId) -> &[ExchangeId] {
        match &self.stages[stage.index()].kind {
            StageKind::Gather(exchange) => std::slice::from_ref(exchange),
            StageKind::Stream(stream) => &self.streams[stream.index()].inputs,
            StageKind::Scatter(_) | StageKind::Compute | StageKind::Signal => &[],
        }
    }

    /// Every id is in range and every block is entered from exactly one place, so that walking ends.
    fn check_references(&self) -> Result<(), String> {
        let within = |what: &str, index: usize, len: usize| {
            if index < len {
                Ok(())
            } else {
                Err(format!("{what} {index} of only {len}"))
            }
        };
        for dataset in &self.datasets {
            if let Count::Symbol(symbol) = dataset.count {
                within("symbol", symbol as usize, self.symbols.len())?;
            }
        }
        for stage in &self.stages {
            within("kernel", stage.kernel.index(), self.kernels.len())?;
            within("block", stage.block.index(), self.blocks.len())?;
            for (dataset, _) in &stage.uses {
                within("dataset", dataset.index(), self.datasets.len())?;
            }
            match stage.kind {
                StageKind::Scatter(exchange) | StageKind::Gather(exchange) => {
                    within("exchange", exchange.index(), self.exchanges.len())?;
                }
                StageKind::Stream(stream) => {
                    within("stream", stream.index(), self.streams.len())?;
                }
                StageKind::Compute | StageKind::Signal => {}
            }
        }
        for stream in &self.streams {
            for exchange in stream.inputs.iter().chain(&stream.output) {
                within("exchange", exchange.index(), self.exchanges.len())?;
            }
        }
        // The program's own block has to be there: whoever walks a program begins with it.
        within("block", 0, self.blocks.len())?;
        // Each block has one place. If several could share a block, whoever walks a program of
        // hostile bytes might take time exponential in their number.
        let mut entered = vec![0usize; self.blocks.len()];
        entered[0] = 1;
        let mut depths = vec![0usize; self.blocks.len()];
        for (at, block) in self.blocks.iter().enumerate() {
            for node in block {
                let (stage, inner) = match *node {
                    ProgramNode::Stage(stage) => (Some(stage), vec![]),
                    ProgramNode::Repeat { body, .. } => (None, vec![body]),
                    ProgramNode::While {
                        test_block,
                        test,
                        body,
                    } => (Some(test), vec![test_block, body]),
                    ProgramNode::Branch {
                        signal,
                        then,
                        otherwise,
                    } => (Some(signal), vec![then, otherwise]),
                };
                if let Some(stage) = stage {
                    within("stage", stage.index(), self.stages.len())?;
                }
                for block in inner {
                    within("block", block.index(), self.blocks.len())?;
                    // Inner blocks are numbered after the block they stand in: no cycles.
                    if block.index() <= at {
                        return Err(format!("block {block} stands inside a later one"));
                    }
                    entered[block.index()] += 1;
                    depths[block.index()] = depths[at] + 1;
                    // Whoever walks blocks recurses as deep: hostile bytes must not overflow the
                    // stack.
                    if depths[at] == crate::DEPTH_MAX {
                        return Err(format!(
                            "blocks stand deeper in each other than {}",
                            crate::DEPTH_MAX
                        ));
                    }
                }
            }
        }
        match entered.iter().position(|&count| count != 1) {
            Some(block) => Err(format!(
                "block {block} is entered from {} places, not one",
                entered[block]
            )),
            None => Ok(()),
        }
    }
}

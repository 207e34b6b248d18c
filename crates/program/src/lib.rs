//! What a job is: datasets, instructions, groups and positions; validated and compiled to flat code.
//!
//! Nothing here runs anything or does I/O. A [`Program`] is built by ordinary code, its [`Spec`] is the part
//! that workers compare, and [`Plan`] is what shards execute.

mod blocks;
mod chunks;
mod error;
mod exchanges;
mod foreign;
mod growth;
mod hint;
mod ids;
mod kernel;
pub mod key;
pub mod link;
mod named;
mod payload;
mod placement;
mod plan;
mod ports;
mod program;
mod random;
mod relation;
mod run;
mod show;
mod slots;
mod spec;
mod stages;
mod streams;
pub mod tree;
mod typed;
mod validate;
mod value;
mod work;

pub use blocks::{BLOCK_ROWS, Blocked, Blocks, blocks_of, default_partitions};
pub use brambling_memory::{OutOfMemory, Reservation, SpillError};
pub use chunks::{
    Chunk, ChunkError, Chunks, Cursor, Decoder, Encoder, Lent, PayloadPart, decode_front,
    decode_parts,
};
pub use error::{BuildError, KernelError};
pub use exchanges::{Combine, Max, Min, Number, Partials, Rows, Sum};
pub use foreign::Foreign;
pub use growth::{DEPTH_MAX, Mark};
pub use hint::PlacementHint;
pub use ids::*;
pub use kernel::{
    Context, GatherPieces, IntoProgress, Kernel, PieceSink, PieceSource, Progress, Sink,
};
pub use key::{Key, partition_of};
pub use link::LinkError;
pub use named::Named;
#[doc(hidden)]
pub use payload::payload_serde;
pub use payload::{DecodeError, Payload, decode_plain};
pub use plan::{
    Action, Bindings, Code, Cut, CutAnswer, CutPlan, CutSite, CutStates, CutTurn, ExchangePlan,
    GroupState, Linked, LoopId, Mask, Op, OutermostLoop, Plan, Task,
};
pub use ports::{Inbox, Outbox};
pub use program::{Dataset, Exchange, PartitionSource, Program, Signal};
pub use random::Rng;
pub use relation::{Links, LinksAt, Relation, RelationTable};
pub use run::Run;
pub use slots::{SlotHeader, SlotRoute, SlotsIn, SlotsOut};
pub use spec::{
    Count, DatasetSpec, ExchangeSpec, FORMAT_VERSION, KernelSpec, NUMERICS_VERSION, Partitioner,
    ProgramNode, Runner, Spec, StageKind, StageSpec, StreamSpec, Use,
};
pub use stages::{Compute, Gather, Map, Parameterised, Scatter, SignalStage, Stream};
pub use streams::{CHUNK_BYTES_MAX, OpenTask, Polled, StreamPorts, Streams};
pub use validate::{Group, Structure};
pub use value::{PayloadType, Value};
pub use work::Work;

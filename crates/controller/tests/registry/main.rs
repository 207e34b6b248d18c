//! Workers register, clients submit; what the registry tells whom.

mod callers;
mod deaths;
mod drains;
mod fences;
mod generations;
mod jobs;
mod loads;
mod recovery;
mod room;
mod silence;
mod stuck;
mod terms;
mod wishes;
mod words;
mod workers;

//! What loom enumerates: the queue, the word and the bed, without threads of their own.

#[path = "queue.rs"]
mod queue;
#[path = "sleep.rs"]
mod sleep;
#[path = "sync.rs"]
mod sync;
#[path = "word.rs"]
mod word;

pub use queue::Queue;
pub use sleep::Bed;
pub use word::Word;

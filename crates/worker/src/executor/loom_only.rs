//! What loom enumerates: doorbell, biased lock and parker, without threads of their own.

#[path = "biased_lock.rs"]
mod biased_lock;
#[path = "doorbell.rs"]
mod doorbell;
#[path = "parker.rs"]
mod parker;
#[path = "sync.rs"]
mod sync;

pub use biased_lock::BiasedLock;
pub use doorbell::Doorbell;
pub use parker::Parker;

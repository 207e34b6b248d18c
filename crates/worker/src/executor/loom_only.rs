//! What loom enumerates: mail, zone and bed, without threads of their own.

#[path = "mail.rs"]
mod mail;
#[path = "sleep.rs"]
mod sleep;
#[path = "sync.rs"]
mod sync;
#[path = "zone.rs"]
mod zone;

pub use mail::Mail;
pub use sleep::Bed;
pub use zone::Zone;

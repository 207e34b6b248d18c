//! A place for what is spilled that is no disk.

use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled};
use std::sync::{Arc, Mutex};

/// Takes so many pieces, and keeps what it was told.
#[derive(Debug)]
pub struct Shelf {
    places: usize,
    /// Whether what it takes can be read again.
    is_broken: bool,
    pub triggers: Mutex<Vec<OutOfMemory>>,
}

#[derive(Debug)]
struct Laid(Vec<u8>);

/// What a broken shelf has taken.
#[derive(Debug)]
struct Lost(u64);

impl Spilled for Lost {
    fn bytes(&self) -> u64 {
        self.0
    }
    fn read(&self) -> Result<Vec<u8>, SpillError> {
        Err(SpillError::Damaged {
            directory: "the shelf".into(),
            bytes: self.0,
        })
    }
}

impl Spilled for Laid {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self) -> Result<Vec<u8>, SpillError> {
        Ok(self.0.clone())
    }
}

impl Shelf {
    pub fn new(places: usize) -> Arc<Shelf> {
        let (is_broken, triggers) = (false, Mutex::default());
        Arc::new(Shelf {
            places,
            is_broken,
            triggers,
        })
    }

    pub fn broken() -> Arc<Shelf> {
        let (places, is_broken, triggers) = (usize::MAX, true, Mutex::default());
        Arc::new(Shelf {
            places,
            is_broken,
            triggers,
        })
    }

    pub fn spills(&self) -> usize {
        self.triggers.lock().unwrap().len()
    }
}

impl Spill for Shelf {
    fn put(&self, parts: &[&[u8]], refused: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        let bytes = parts.concat();
        if self.spills() == self.places {
            return Err(SpillError::Full {
                directory: "the shelf".into(),
                asked_bytes: bytes.len() as u64,
                why: "it is full".into(),
            });
        }
        self.triggers.lock().unwrap().push(*refused);
        if self.is_broken {
            return Ok(Arc::new(Lost(bytes.len() as u64)));
        }
        Ok(Arc::new(Laid(bytes)))
    }
}

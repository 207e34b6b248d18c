//! A file is published by a thread that waits for files, for sinks, which must not wait.

use super::OutputFile;
use crate::pool::{Request, Ticket};
use crate::requests::FileError;
use crate::shared_pool::shared_pool;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// A file on its way to its name. Whoever drops it before it is ready does not know whether it has come there.
#[derive(Debug)]
pub struct Publishing {
    file: Arc<OutputFile>,
    state: Stage,
}

#[derive(Debug)]
enum Stage {
    New,
    Going(Ticket<()>),
    Ended(Result<(), FileError>),
}

impl Publishing {
    /// Of a file to which everything has been written. Nothing happens before it is polled.
    pub fn new(file: &Arc<OutputFile>) -> Publishing {
        Publishing {
            file: file.clone(),
            state: Stage::New,
        }
    }

    /// What came of [`OutputFile::publish`]. The waker is woken when it has ended, and perhaps before.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<(), FileError>> {
        if matches!(self.state, Stage::New) {
            let given = shared_pool().map(|pool| pool.give(Publish(self.file.clone()), waker));
            match given {
                Err(error) => self.state = Stage::Ended(Err(error)),
                Ok(Ok(ticket)) => self.state = Stage::Going(ticket),
                // The waker is woken when there is room.
                Ok(Err(_)) => return Poll::Pending,
            }
        }
        if let Stage::Going(ticket) = &mut self.state
            && let Poll::Ready(ended) = ticket.poll(waker)
        {
            self.state = Stage::Ended(ended);
        }
        match &self.state {
            Stage::Ended(ended) => Poll::Ready(ended.clone()),
            _ => Poll::Pending,
        }
    }
}

struct Publish(Arc<OutputFile>);

impl Request for Publish {
    type Done = ();

    fn run(self) -> Result<(), FileError> {
        self.0.publish()
    }

    fn name(&self) -> String {
        format!("publishing {}", self.0.path().display())
    }
}

//! Requests to a server, and the thread that makes them. Each ends: with an answer, or when its time is over.

use super::access::S3Access;
use super::trouble;
use crate::objects::{S3Place, StoreTrouble};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{ObjectStore as _, PutMode, PutPayload, RetryConfig};
use std::future::Future;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A server that is there accepts a connection in this time.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// One request, with all of its bytes.
const REQUEST_MAX: Duration = Duration::from_secs(60);
/// One call, with its repetitions.
const CALL_MAX: Duration = Duration::from_secs(150);
/// How often a request that changes nothing is repeated, and one that deletes.
const REPETITIONS: usize = 4;

/// What requests are made with.
pub(super) type S3Handle = Arc<AmazonS3>;

/// Requests of one bucket.
pub(super) struct S3Client {
    place: S3Place,
    access: S3Access,
    connected: Mutex<Option<Connected>>,
}

/// What a process has of a server. A process that was forked has none of it: its connections are the other's, and its threads are not there.
#[derive(Clone)]
struct Connected {
    process: u32,
    /// Repeats requests.
    repeats: S3Handle,
    /// Makes each request once: whoever makes objects has to know of each.
    once: S3Handle,
    runtime: &'static Runtime,
}

/// What a request that has failed may have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doubt {
    /// The server has refused it.
    Refused,
    /// It was not sent.
    NotSent,
    /// It may have been done.
    MayHaveArrived,
}

impl S3Client {
    pub(super) fn new(place: &S3Place, access: S3Access) -> S3Client {
        S3Client {
            place: place.clone(),
            access,
            connected: Mutex::default(),
        }
    }

    /// Makes a request that may be repeated.
    pub(super) fn ask<T, F>(&self, request: impl FnOnce(S3Handle) -> F) -> Result<T, StoreTrouble>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let connected = self.connected()?;
        let answer = connected.wait(request(connected.repeats.clone()));
        answer.map_err(|error| self.trouble(error).0)
    }

    /// Makes an object if there is none of its key, in one request.
    pub(super) fn create(
        &self,
        path: &Path,
        payload: PutPayload,
    ) -> Result<(), (StoreTrouble, Doubt)> {
        let connected = self
            .connected()
            .map_err(|trouble| (trouble, Doubt::Refused))?;
        let (s3, path) = (connected.once.clone(), path.clone());
        let mode = match brambling_memory::mutants::is_on("creates-over-others") {
            true => PutMode::Overwrite,
            false => PutMode::Create,
        };
        let made = connected.wait(async move { s3.put_opts(&path, payload, mode.into()).await });
        made.map(drop).map_err(|error| self.trouble(error))
    }

    fn trouble(&self, error: Option<object_store::Error>) -> (StoreTrouble, Doubt) {
        match error {
            Some(error) => trouble::of(&error, &self.place, &self.access),
            None => {
                let why = format!("no answer in {} s", CALL_MAX.as_secs());
                (StoreTrouble::Unreachable(why), Doubt::MayHaveArrived)
            }
        }
    }

    fn connected(&self) -> Result<Connected, StoreTrouble> {
        let process = std::process::id();
        let mut connected = self
            .connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(connected) = connected.as_ref().filter(|it| it.process == process) {
            return Ok(connected.clone());
        }
        let new = self.connect(process)?;
        // What another process has left must not be closed here.
        std::mem::forget(connected.replace(new.clone()));
        Ok(new)
    }

    fn connect(&self, process: u32) -> Result<Connected, StoreTrouble> {
        let build = |repetitions: usize| {
            let retry = RetryConfig {
                max_retries: repetitions,
                retry_timeout: CALL_MAX / 2,
                ..RetryConfig::default()
            };
            let builder = self
                .access
                .builder(&self.place.bucket, CONNECT_MAX, REQUEST_MAX);
            let built = builder.with_retry(retry).build();
            built
                .map(Arc::new)
                .map_err(|error| trouble::of(&error, &self.place, &self.access).0)
        };
        Ok(Connected {
            process,
            repeats: build(REPETITIONS)?,
            once: build(0)?,
            runtime: runtime(process)?,
        })
    }
}

impl Connected {
    /// None when the time is over. Whoever calls may be a thread of another runtime, so it waits without this one.
    fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, Option<object_store::Error>> {
        let (sender, answer) = channel();
        self.runtime.spawn(async move {
            // Nobody listens any more when the time is over.
            let _ = sender.send(tokio::time::timeout(CALL_MAX, request).await);
        });
        match answer.recv_timeout(CALL_MAX + REQUEST_MAX) {
            Ok(Ok(answer)) => answer.map_err(Some),
            _ => Err(None),
        }
    }
}

/// The process's one thread for requests. It goes with the process.
fn runtime(process: u32) -> Result<&'static Runtime, StoreTrouble> {
    static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, runtime)) = runtime.filter(|(of, _)| *of == process) {
        return Ok(runtime);
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).max_blocking_threads(4);
    let built = builder.thread_name("brambling-s3").enable_all().build();
    let built = built.map_err(|error| StoreTrouble::Other(error.to_string()))?;
    let built: &'static Runtime = Box::leak(Box::new(built));
    *runtime = Some((process, built));
    Ok(built)
}

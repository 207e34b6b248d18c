//! A controller and its workers, in the process of the test.

use brambling::cluster::{
    ControllerOptions, ControllerProcess, JOBS_AT_ONCE, Prints, Rendezvous, Source, Token,
    WorkerEnd, WorkerOptions, WorkerProcess,
};
use brambling::program::Program;
use brambling::{Caller, QuietCaller, Settings};
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a controller is asked for where a test does not say otherwise: any port, and shards that stay where they are.
pub fn options() -> ControllerOptions {
    ControllerOptions {
        bind: "127.0.0.1:0".parse().unwrap(),
        token: Token::new([9; 32]),
        tls: None,
        balance_each: None,
        jobs_at_once: JOBS_AT_ONCE,
        snapshots: None,
        state: None,
        silence: brambling::cluster::SILENCE,
    }
}

/// A controller, and what others find it by.
pub fn controller(options: ControllerOptions) -> (ControllerProcess, Rendezvous) {
    let token = options.token.clone();
    let tls = options.tls.clone();
    let controller = ControllerProcess::start(options).unwrap();
    let address = controller.address();
    let at = Rendezvous {
        address,
        token,
        tls,
    };
    (controller, at)
}

/// Settings of so many threads.
pub fn threads(threads: u32) -> Settings {
    let mut settings = Settings::default();
    settings.threads = Some(threads);
    settings
}

/// The same with so much memory.
pub fn threads_and_memory(count: u32, memory: &str) -> Settings {
    let mut settings = threads(count);
    settings.memory = Some(memory.into());
    settings
}

/// What a worker of the cluster is asked for.
pub fn worker_options(at: &Rendezvous, settings: Settings) -> WorkerOptions {
    WorkerOptions {
        cluster: at.clone(),
        settings,
        bind: None,
    }
}

/// A worker that the controller knows.
pub fn worker(at: &Rendezvous, settings: Settings, source: impl Source + 'static) -> WorkerProcess {
    let options = worker_options(at, settings);
    let worker = WorkerProcess::start(options, Box::new(source)).unwrap();
    let ended = settled(&worker);
    assert!(ended.is_none(), "it is not registered: {ended:?}");
    worker
}

/// Waits until a worker has a name, or ends.
pub fn settled(worker: &WorkerProcess) -> Option<WorkerEnd> {
    let deadline = Instant::now() + PATIENCE;
    while worker.name().is_none() {
        assert!(Instant::now() < deadline, "it is not registered");
        if let Some(end) = worker.wait(Duration::from_millis(50)) {
            return Some(end);
        }
    }
    None
}

/// Builds programs of what clients say of them.
pub struct Builds<F>(pub F);

impl<F: Fn(&[u8]) -> Result<Program, String> + Send + Sync> Source for Builds<F> {
    fn program(&self, bytes: &[u8], _: &Prints) -> Result<Program, String> {
        self.0(bytes)
    }

    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
}

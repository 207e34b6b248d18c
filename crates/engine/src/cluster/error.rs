//! What can go wrong between processes.

use brambling_exchange::transports::tcp::Lost;
use brambling_program::LinkError;
use brambling_protocol::greeting::GreetingError;
use brambling_protocol::{JobId, WorkerId};
use brambling_storage::{OpenError, StoreError};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Why a process takes no part in a cluster, or a program did not run there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The text names no address.
    #[error("`{text}` is no address; give HOST:PORT, such as 127.0.0.1:7077")]
    Address {
        /// What was given.
        text: String,
        /// Why not.
        source: Option<std::io::Error>,
    },
    /// The address cannot be listened at.
    #[error(
        "cannot listen at {at}: {source}; give another address with --bind, such as 127.0.0.1:0 for any free port"
    )]
    Bind {
        /// The address.
        at: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Metrics cannot be served at the address.
    #[error(
        "cannot serve metrics at {at}: {source}; give another address with --metrics, such as 127.0.0.1:0 for any free port"
    )]
    Metrics {
        /// The address.
        at: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Nothing can be spilled to the directory that is set.
    #[error(
        "{source}; name a directory that exists and may be written to with --spill, BRAMBLING_SPILL or spill in brambling.toml"
    )]
    Spill {
        /// Which, and why not.
        source: OpenError,
    },
    /// Nothing can be stored where the cluster's jobs are to be saved.
    #[error(transparent)]
    Store {
        /// Which store, and why not.
        #[from]
        source: StoreError,
    },
    /// A job was not saved in time.
    #[error(
        "job {job} was not saved within {} s: it comes to a cut at the end of a turn of its loop; ask again, with more --patience",
        after.as_secs()
    )]
    NotSaved {
        /// The job.
        job: JobId,
        /// How long it was waited for.
        after: Duration,
    },
    /// Another controller has this state.
    #[error(
        "another controller has taken over the cluster of {state}; this one ends, and its workers and clients find the other where they were told to look"
    )]
    Deposed {
        /// The state.
        state: String,
    },
    /// Nobody answers there, or whoever does is no controller.
    #[error(
        "no controller at {at}: {why}; start one with `brambling controller` or `brambling cluster`, or give its address"
    )]
    NoController {
        /// The address.
        at: SocketAddr,
        /// What happened.
        why: String,
    },
    /// A controller is there, and the two do not come together: another token, another version, certificates.
    #[error("the controller at {at} is there, and this process cannot take part: {why}")]
    Unwelcome {
        /// The address.
        at: SocketAddr,
        /// Why, and the way out.
        why: String,
    },
    /// A controller is there, and says nothing.
    #[error(
        "the controller at {at} is there and has answered nothing for {} s: it gets no CPU, or was stopped; look at its process, and try again",
        after.as_secs()
    )]
    NoAnswer {
        /// Its address.
        at: SocketAddr,
        /// How long it was waited for.
        after: Duration,
    },
    /// The link to the controller was lost.
    #[error("the controller at {at} is gone: {why}; connect again when there is one")]
    ControllerGone {
        /// Its address.
        at: SocketAddr,
        /// What happened.
        why: String,
    },
    /// Two processes have no way to each other: a cable, a firewall, or a machine without power.
    #[error("{who} cannot reach {whom}: {why}; look at the network between the two")]
    CutOff {
        /// Who speaks.
        who: String,
        /// Whom it cannot reach, and where.
        whom: String,
        /// What happens, and for how long.
        why: String,
    },
    /// The controller refuses.
    #[error("{why}")]
    Refused {
        /// Why, and the way out.
        why: String,
    },
    /// A job that was cancelled has not ended yet.
    #[error(
        "job {job} is not over after {} s; it was told to end, and does when the cluster hears of it: `brambling jobs` says whether",
        after.as_secs()
    )]
    NotOver {
        /// Which.
        job: JobId,
        /// How long it was waited for.
        after: Duration,
    },
    /// A worker that holds results is gone.
    #[error("the results on {worker} cannot be fetched: {why}")]
    ResultsGone {
        /// Who.
        worker: String,
        /// What happened.
        why: String,
    },
    /// What is to be sent to a worker has no room there.
    #[error(
        "`{program}` brings {program_bytes} bytes of program and {part_bytes} bytes of rows to {worker}, which needs {needed_bytes} for them and has room for \
         {room_bytes} of the {budget_bytes} bytes that it was given; nothing was sent: give workers more with --memory, BRAMBLING_MEMORY or memory in \
         brambling.toml, add workers, or bring less"
    )]
    NoRoom {
        /// The program.
        program: String,
        /// The worker.
        worker: WorkerId,
        /// The program, with the values in it.
        program_bytes: u64,
        /// The worker's part of the rows.
        part_bytes: u64,
        /// What both need there.
        needed_bytes: u64,
        /// What both can have.
        room_bytes: u64,
        /// The worker's budget.
        budget_bytes: u64,
    },
    /// Kernels have loaded packages on two workers that are not the same.
    #[error("{0}")]
    PackagesDiffer(Box<PackagesDiffer>),
    /// Somebody says what nobody says who follows the rules.
    #[error("{who} says what cannot be understood: {why}")]
    Broken {
        /// Who.
        who: String,
        /// What it says.
        why: String,
    },
    /// No token.
    #[error(
        "no token for the cluster at {at}; a controller of the same account writes it to {looked_at}; elsewhere give \
         that file with --token-file, or its token in BRAMBLING_TOKEN"
    )]
    NoToken {
        /// The controller's address.
        at: String,
        /// Where a file was looked for.
        looked_at: PathBuf,
    },
    /// No cluster is known, or several are.
    #[error("{why}")]
    WhichCluster {
        /// What to do.
        why: String,
    },
    /// The program cannot leave this process.
    #[error("the program `{name}` does not run on a cluster: {source}")]
    NotLinked {
        /// The program.
        name: String,
        /// What keeps it here, and the way out.
        source: LinkError,
    },
    /// An option says how this process works, and others do.
    #[error(
        "the option {option} is of this process, and the program runs on a cluster; its workers have been started with theirs: \
         leave it out"
    )]
    OwnOption {
        /// As the method of `RunOptions` is called.
        option: &'static str,
    },
    /// A token that is none.
    #[error("the token in {place} cannot be used: {why}")]
    BadToken {
        /// Where it came from.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file that TLS needs cannot be read.
    #[error(
        "{path}: {source}; --tls and BRAMBLING_TLS name a folder that `brambling certs` has made: make one, or copy the cluster's to this machine"
    )]
    NoCertificates {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file that TLS needs holds something else, or nothing that is good any more.
    #[error("{path} cannot be used: {why}")]
    BadCertificates {
        /// Which.
        path: PathBuf,
        /// What is wrong, and the way out.
        why: String,
    },
    /// New certificates would take the place of something.
    #[error(
        "{folder} exists and is not empty, and certificates are not overwritten; give a new folder, or remove this one when no process uses it"
    )]
    FolderInUse {
        /// Where they were to be.
        folder: PathBuf,
    },
    /// A certificate cannot name this host.
    #[error(
        "`{text}` cannot be in a certificate: {why}; give addresses, or names that this machine can resolve, or no --host at all"
    )]
    Host {
        /// What was given.
        text: String,
        /// Why not.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The system gives no threads, sockets or random bytes.
    #[error("the system does not give what a process of a cluster needs: {source}")]
    System {
        /// Why not.
        source: std::io::Error,
    },
}

/// A package that is another one on two workers.
#[derive(Debug, thiserror::Error)]
#[error(
    "the workers have loaded different packages: `{package}` {version} on {worker}, and `{package}` {other_version} on {other}; install the \
     same version on every machine, and start the workers again"
)]
pub struct PackagesDiffer {
    /// Which.
    pub package: String,
    /// Who loaded it first.
    pub worker: WorkerId,
    /// What it is there.
    pub version: String,
    /// Who has another.
    pub other: WorkerId,
    /// What it is there.
    pub other_version: String,
}

impl ClusterError {
    /// Nobody let this process in at an address.
    pub(super) fn unmet(at: SocketAddr, lost: &Lost) -> ClusterError {
        let why = lost.to_string();
        match lost {
            Lost::Greeting(GreetingError::NotBrambling) => ClusterError::NoController { at, why },
            Lost::Greeting(_) | Lost::Tls(_) => ClusterError::Unwelcome { at, why },
            _ => ClusterError::NoController { at, why },
        }
    }
}

//! Takes orders of a process that knows the token: sends and counts flows, and keeps disks busy.
//!
//! A thread accepts, and each connection has one. Those that have proved nothing are bounded by [`STRANGERS_MOST`], and leave after
//! [`GREETING_TIME`](super::GREETING_TIME).

use super::greeting::{dial, turn_away, welcome};
use super::messages::{ProbeOrder, ProbeReply, hear, say};
use super::{ANSWER_TIME, FLOW_MOST, ProbeError};
use crate::cluster::VERSION;
use brambling_machine::network::flow::{congestion_control, receive_all, send_for};
use brambling_machine::probes::disk::{DiskError, DiskFiles, DiskLimit};
use brambling_protocol::greeting::Token;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Connections that have proved nothing, at once.
const STRANGERS_MOST: usize = 64;
/// Connections that have, at once: each of many hosts sends to this one.
const WELCOME_MOST: usize = 1_024;
/// How often the thread that accepts looks whether it has to end.
const LOOKS: Duration = Duration::from_millis(20);
/// Who orders nothing for so long is gone.
const ORDERS_WITHIN: Duration = Duration::from_secs(150);
/// Of each directory.
const DISK_STREAMS: usize = 4;
/// The same.
const DISK_BLOCK_BYTES: usize = 4 << 20;

/// Listens for orders, on threads of its own. Dropping it ends that; flows under way end by themselves.
#[derive(Debug)]
pub struct ProbeListener {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What connections share.
struct Shared {
    token: Token,
    dirs: Vec<PathBuf>,
    strangers: AtomicUsize,
    welcome: AtomicUsize,
}

impl ProbeListener {
    /// Listens at an address, where port 0 is any free one. `dirs` are the directories whose disks are measured when that is ordered.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn start(
        at: SocketAddr,
        token: Token,
        dirs: Vec<PathBuf>,
    ) -> Result<ProbeListener, ProbeError> {
        let bind = || {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind().map_err(|source| ProbeError::Listen { at, source })?;
        let shared = Arc::new(Shared {
            token,
            dirs,
            strangers: AtomicUsize::new(0),
            welcome: AtomicUsize::new(0),
        });
        let ends = Arc::<AtomicBool>::default();
        let stops = ends.clone();
        let builder = thread::Builder::new().name("brambling-probe".into());
        let thread = builder.spawn(move || accept(&listener, &shared, &stops));
        let thread = thread.map_err(|source| ProbeError::System { source })?;
        Ok(ProbeListener {
            address,
            ends,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ProbeListener {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, ends: &AtomicBool) {
    while !ends.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => take(stream, shared),
            // Nobody dials, or the system has no descriptor to give: later, perhaps.
            Err(_) => thread::sleep(LOOKS),
        }
    }
}

fn take(mut stream: TcpStream, shared: &Arc<Shared>) {
    if shared.strangers.load(Ordering::SeqCst) >= STRANGERS_MOST {
        return turn_away(&mut stream);
    }
    let place = Place::take(shared.clone(), |it| &it.strangers);
    let serve = move || {
        // The dialer sees the connection end, and says why as far as it knows.
        let _ = talk(stream, place);
    };
    let builder = thread::Builder::new().name("brambling-probed".into());
    // Where the system gives no thread the connection ends.
    let _ = builder.spawn(serve);
}

/// One of so many.
struct Place {
    shared: Arc<Shared>,
    of: fn(&Shared) -> &AtomicUsize,
}

impl Place {
    fn take(shared: Arc<Shared>, of: fn(&Shared) -> &AtomicUsize) -> Place {
        of(&shared).fetch_add(1, Ordering::SeqCst);
        Place { shared, of }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.of)(&self.shared).fetch_sub(1, Ordering::SeqCst);
    }
}

fn talk(mut stream: TcpStream, stranger: Place) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let shared = stranger.shared.clone();
    if welcome(&mut stream, &shared.token).is_err() {
        return Ok(());
    }
    drop(stranger);
    if shared.welcome.load(Ordering::SeqCst) >= WELCOME_MOST {
        let why = format!("it has {WELCOME_MOST} connections already");
        return say(&mut stream, &ProbeReply::Failed { why });
    }
    let _place = Place::take(shared.clone(), |it| &it.welcome);
    let mut files = Vec::new();
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    loop {
        stream.set_read_timeout(Some(ORDERS_WITHIN))?;
        let Some(order) = hear(&mut stream)? else {
            return Ok(());
        };
        let reply = match order {
            ProbeOrder::Hello => ProbeReply::Hello {
                version: VERSION.into(),
                dirs: shared
                    .dirs
                    .iter()
                    .map(|it| it.display().to_string())
                    .collect(),
            },
            ProbeOrder::Receive => {
                stream.set_read_timeout(Some(ANSWER_TIME))?;
                let flow = receive_all(&mut stream)?;
                say(
                    &mut stream,
                    &ProbeReply::Received {
                        bytes_per_s: flow.bytes_per_s(),
                    },
                )?;
                // The sender has ended its direction: nothing else comes.
                return Ok(());
            }
            ProbeOrder::Send { to, millis } => send(&to, time(millis), &shared.token),
            ProbeOrder::WriteDisks { millis } => {
                disks(write(&shared.dirs, time(millis), &mut files))
            }
            ProbeOrder::ReadDisks { millis } => disks(read(&mut files, time(millis))),
        };
        say(&mut stream, &reply)?;
    }
}

fn time(millis: u64) -> Duration {
    Duration::from_millis(millis).min(FLOW_MOST)
}

// ---- flows

fn send(to: &[String], time: Duration, token: &Token) -> ProbeReply {
    let flow = |to: &String| flow(to, time, token).map_err(|error| error.to_string());
    let flows: Vec<_> = thread::scope(|scope| {
        let flows: Vec<_> = to.iter().map(|to| scope.spawn(move || flow(to))).collect();
        let joined = flows.into_iter().map(|it| it.join());
        joined
            .map(|it| it.unwrap_or_else(|_| Err("its thread panicked".into())))
            .collect()
    });
    let congestion = flows
        .iter()
        .find_map(|it| it.as_ref().ok())
        .map(|it| it.1.clone());
    ProbeReply::Sent {
        flows: flows.into_iter().map(|it| it.map(|it| it.0)).collect(),
        congestion: congestion.unwrap_or_default(),
    }
}

/// What came there in a second, and the congestion control in use.
fn flow(to: &str, time: Duration, token: &Token) -> io::Result<(f64, String)> {
    let at = to
        .to_socket_addrs()?
        .next()
        .ok_or(ErrorKind::AddrNotAvailable)?;
    let mut stream = dial(at, token).map_err(io::Error::other)?;
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    let congestion = congestion_control(&stream)?;
    say(&mut stream, &ProbeOrder::Receive)?;
    send_for(&mut stream, time)?;
    match hear(&mut stream)? {
        Some(ProbeReply::Received {
            bytes_per_s: Some(rate),
        }) => Ok((rate, congestion)),
        Some(ProbeReply::Received { bytes_per_s: None }) => Err(io::Error::other(
            "hardly anything came there in the time of a flow",
        )),
        Some(ProbeReply::Failed { why }) => Err(io::Error::other(why)),
        Some(_) => Err(ErrorKind::InvalidData.into()),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

// ---- disks

fn disks(measured: Result<Vec<f64>, DiskError>) -> ProbeReply {
    match measured {
        Ok(bytes_per_s) => ProbeReply::Disks { bytes_per_s },
        Err(error) => ProbeReply::Failed {
            why: error.to_string(),
        },
    }
}

/// All directories at once, into new files.
fn write(
    dirs: &[PathBuf],
    time: Duration,
    files: &mut Vec<DiskFiles>,
) -> Result<Vec<f64>, DiskError> {
    files.clear();
    for dir in dirs {
        files.push(DiskFiles::create(dir, DISK_STREAMS, DISK_BLOCK_BYTES)?);
    }
    at_once(files, |files| {
        let file_bytes = files.file_bytes_most()?;
        files.write(DiskLimit { time, file_bytes })
    })
}

fn read(files: &mut [DiskFiles], time: Duration) -> Result<Vec<f64>, DiskError> {
    at_once(files, |files| files.read(time))
}

fn at_once(
    files: &mut [DiskFiles],
    work: impl Fn(&mut DiskFiles) -> Result<f64, DiskError> + Sync,
) -> Result<Vec<f64>, DiskError> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter_mut()
            .map(|it| scope.spawn(move || work(it)))
            .collect();
        threads
            .into_iter()
            .map(|it| it.join().expect("a disk's probe does not panic"))
            .collect()
    })
}

//! How a worker's process ends while kernels run in it.

use brambling_machine::exit;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long what was printed may take to be written.
const FLUSHING: Duration = Duration::from_secs(1);

/// Ends the process with a code. For workers whose kernels may still run: an interpreter that takes itself apart meanwhile would end their threads in the
/// midst of calls that cannot be left in this way.
///
/// `flush` writes what the host's language keeps of what was printed; it may wait for a kernel, and then nobody waits for it for long.
pub fn leave(code: u8, flush: impl FnOnce() + Send + 'static) -> ! {
    let (sender, done) = channel();
    let builder = std::thread::Builder::new().name("brambling-flush".into());
    let flushing = builder.spawn(move || {
        flush();
        let _ = sender.send(());
    });
    if flushing.is_ok() {
        let _ = done.recv_timeout(FLUSHING);
    }
    exit::at_once(code)
}

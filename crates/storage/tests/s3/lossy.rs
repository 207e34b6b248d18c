//! Between a store and its server: requests arrive, answers to some are lost.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct LossyWire {
    pub port: u16,
    /// Answers to puts that are still to be lost.
    pub losses: Arc<AtomicU32>,
}

impl LossyWire {
    pub fn to(server: u16) -> LossyWire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let losses = Arc::<AtomicU32>::default();
        let lost = losses.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, lost) = (client.unwrap(), lost.clone());
                std::thread::spawn(move || carry(client, server, &lost));
            }
        });
        LossyWire { port, losses }
    }
}

/// One request at a time: its bytes are passed on until the answer begins.
fn carry(mut client: TcpStream, server: u16, lost: &AtomicU32) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)) else {
        return;
    };
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let is_put = Arc::new(AtomicU32::new(0));
    let sees_put = is_put.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from_client.read(&mut bytes) {
            if bytes.starts_with(b"PUT ") {
                sees_put.store(1, Ordering::SeqCst);
            } else if [&b"GET "[..], b"HEAD", b"POST"]
                .iter()
                .any(|it| bytes.starts_with(it))
            {
                sees_put.store(0, Ordering::SeqCst);
            }
            if to_server.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut bytes = [0; 1 << 16];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        let is_lost = is_put.load(Ordering::SeqCst) == 1
            && !bytes.starts_with(b"HTTP/1.1 100")
            && lost
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1))
                .is_ok();
        if is_lost || client.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

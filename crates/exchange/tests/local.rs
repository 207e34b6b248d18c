//! Links between processes of one machine, which are Unix sockets: their tests, and when there are such.
#![allow(clippy::print_stdout)] // What is skipped is said.

mod links;
mod support;

use brambling_exchange::transports::tcp::LinkOrigin;
use rustix::thread::set_thread_uid;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixListener};
use std::sync::mpsc::channel;
use support::{Side, ack};

/// Whether who was dialed was reached without TCP.
fn is_by_name(origin: LinkOrigin) -> bool {
    matches!(origin, LinkOrigin::Accepted(from) if from.port() == 0)
}

fn named(at: SocketAddr) -> UnixListener {
    let name = Name::from_abstract_name(format!("brambling/{at}")).unwrap();
    UnixListener::bind_addr(&name).unwrap()
}

/// Whether a side that may use names reaches one that has none otherwise, and can talk to it.
fn reaches_by_tcp(listening: &Side) -> bool {
    let dialing = Side::new(1, false);
    dialing.net.dial(listening.at()).unwrap();
    let (here, (there, origin)) = (dialing.opened().0, listening.opened());
    dialing.net.send(here, [ack(1)]);
    assert_eq!(listening.frame(there), ack(1).to_vec());
    !is_by_name(origin)
}

#[test]
fn who_listens_here_is_reached_by_name() {
    let (listening, dialing) = (Side::new(1, true), Side::new(1, false));
    dialing.net.dial(listening.at()).unwrap();
    dialing.opened();
    let (_, origin) = listening.opened();
    assert!(is_by_name(origin), "{origin:?}");
}

#[test]
fn who_has_no_name_is_reached_all_the_same() {
    assert!(reaches_by_tcp(&Side::over_tcp(1)));
}

/// The name may be anybody's, and so who holds it has to be a process of the same user: another one could listen to what is said.
#[test]
fn a_name_that_another_user_took_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can take a name as another user");
        return;
    }
    let listening = Side::over_tcp(1);
    let at = listening.at();
    let (has_it, had) = channel();
    let (over, is_over) = channel::<()>();
    let other = std::thread::spawn(move || {
        // Of this thread alone.
        set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
        let taken = named(at);
        has_it.send(()).unwrap();
        let _ = is_over.recv();
        drop(taken);
    });
    had.recv().unwrap();
    assert!(reaches_by_tcp(&listening));
    drop(over);
    other.join().unwrap();
}

/// Who listens cannot have the name then, and listens all the same.
#[test]
fn a_name_that_is_taken_is_no_error() {
    let first = Side::over_tcp(1);
    let at = first.at();
    drop(first);
    let _taken = named(at);
    let listening = Side::bound(1, at);
    assert_eq!(listening.at(), at);
}

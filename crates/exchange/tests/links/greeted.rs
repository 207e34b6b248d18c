//! Links on loopback: frames arrive whole and in order, strangers do not get in, and every link ends with a reason.

use crate::support::{Event, PATIENCE, Side, ack, is_local, nonce, pair, part};
use brambling_exchange::transports::tcp::{
    Carried, LinkId, LinkOrigin, Lost, Net, NetOptions, Owner,
};
use brambling_memory::Budget;
use brambling_protocol::frame::Incoming;
use brambling_protocol::greeting::{GreetingError, Token};
use bytes::Bytes;
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

#[test]
fn frames_arrive_whole_and_in_order_both_ways() {
    let (a, to_b, b, to_a) = pair();
    // Larger than any socket's buffer, and small ones before and after.
    let large: Vec<u8> = (0..20_000_000u32).map(|i| (i * 7) as u8).collect();
    let frames = || {
        (0..500)
            .map(ack)
            .chain([part(&large)])
            .chain((500..600).map(ack))
    };
    for frame in frames() {
        a.net.send(to_b, [frame.clone()]);
        b.net.send(to_a, [frame]);
    }
    for frame in frames() {
        assert!(a.frame(to_b) == *frame, "another frame than was sent");
        assert!(b.frame(to_a) == *frame, "another frame than was sent");
    }
}

/// Also of links that have ended: what was counted never goes back.
#[test]
fn what_links_have_carried_is_counted_on_both_sides() {
    let (a, to_b, b, to_a) = pair();
    let large = part(&[7; 3_000_000]);
    let greeted = (a.net.carried(), b.net.carried());
    // A challenge and a verdict came for an opening and an answer, and none of them is a frame.
    assert_eq!((greeted.0.sent_frames, greeted.0.received_frames), (0, 0));
    assert_eq!((greeted.1.sent_frames, greeted.1.received_frames), (0, 0));
    assert_eq!(greeted.0.sent_bytes, greeted.1.received_bytes);
    assert_eq!(greeted.0.received_bytes, greeted.1.sent_bytes);
    assert!(greeted.0.sent_bytes > 0 && greeted.0.received_bytes > 0);
    a.net.send(to_b, [ack(1), large.clone()]);
    a.net.send(to_b, [ack(2)]);
    b.net.send(to_a, [ack(3)]);
    (0..3).for_each(|_| drop(b.frame(to_a)));
    a.frame(to_b);
    let small = ack(1).len() as u64;
    let sent = 2 * small + large.len() as u64;
    let expected_of_a = Carried {
        sent_bytes: greeted.0.sent_bytes + sent,
        sent_frames: 3,
        received_bytes: greeted.0.received_bytes + small,
        received_frames: 1,
    };
    let expected_of_b = Carried {
        sent_bytes: greeted.1.sent_bytes + small,
        sent_frames: 1,
        received_bytes: greeted.1.received_bytes + sent,
        received_frames: 3,
    };
    a.carries(expected_of_a);
    b.carries(expected_of_b);
    a.net.close(to_b);
    assert!(matches!((a.lost(), b.lost()), (Lost::Closed, Lost::Ended)));
    // What is sent on a link that has ended goes nowhere.
    a.net.send(to_b, [ack(4)]);
    a.carries(expected_of_a);
    b.carries(expected_of_b);
    // Another link counts on.
    a.net.dial(b.at()).unwrap();
    let (to_b, _) = a.opened();
    let (to_a, _) = b.opened();
    a.net.send(to_b, [ack(5)]);
    b.frame(to_a);
    let now = a.net.carried();
    assert_eq!(now.sent_frames, 4);
    assert!(now.received_bytes > expected_of_a.received_bytes);
}

/// Frames around every size at which they are read another way, one after the other, whoever reads them.
#[test]
fn frames_of_any_size_arrive_whole() {
    let (a, to_b, b, to_a) = pair();
    let around = |size: usize| (size - 90..size + 10).step_by(9);
    let sizes: Vec<usize> = [1 << 10, 1 << 15, 1 << 16, 3 << 15, 1 << 17, 1 << 20]
        .into_iter()
        .flat_map(around)
        .collect();
    // Small ones after large ones, and large ones after each other.
    let sizes = sizes
        .iter()
        .chain(sizes.iter().rev())
        .chain(&[5, 1 << 18, 0]);
    let frames: Vec<Bytes> = sizes
        .enumerate()
        .map(|(place, bytes)| part(&(0..*bytes).map(|at| (at + place) as u8).collect::<Vec<_>>()))
        .collect();
    let over = AtomicBool::new(false);
    for polls in [false, true] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while polls && !over.load(Ordering::Relaxed) {
                    b.net.poll();
                }
            });
            for frame in &frames {
                a.net.send(to_b, [frame.clone()]);
            }
            for frame in &frames {
                assert!(b.frame(to_a) == *frame, "another frame than was sent");
            }
            over.store(true, Ordering::Relaxed);
        });
        over.store(false, Ordering::Relaxed);
    }
}

/// Threads that poll and the helper take frames from the same links; still each comes once and in order.
#[test]
fn polling_threads_and_the_helper_do_not_disturb_each_other() {
    let (a, to_b, b, to_a) = pair();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    b.net.poll();
                }
            });
        }
        for number in 1_000..21_000 {
            a.net.send(to_b, [ack(number)]);
        }
        for number in 1_000..21_000 {
            assert_eq!(b.frame(to_a), *ack(number));
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Reads nothing while the test has its door.
struct Behind(Arc<Mutex<()>>, Mutex<Sender<usize>>);

impl Owner for Behind {
    fn opened(&self, _: LinkId, _: LinkOrigin) {}
    fn frame(&self, _: LinkId, frame: Incoming<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        drop(self.0.lock().unwrap());
        let sender = self.1.lock().unwrap();
        sender.send(frame.bytes().len()).unwrap();
        Ok(())
    }
    fn lost(&self, _: LinkId, _: Lost) {}
}

/// A thread that queued frames kept the helper from a link just when its socket took more again, and had itself seen the socket full before.
/// Threads that poll had left the event to it, and then turned to other work. No further event came: what a job had left
/// never reached its client, once in some hundred fetches.
#[test]
fn a_full_socket_that_takes_more_while_frames_are_queued() {
    let (sender, came) = channel();
    let door = Arc::new(Mutex::new(()));
    let reader = Net::new(
        NetOptions {
            bind: Some("127.0.0.1:0".parse().unwrap()),
            token: Token::new([7; 32]),
            nonce,
            tls: None,
            local: is_local(),
            budget: Budget::unlimited(),
        },
        Arc::new(Behind(door.clone(), Mutex::new(sender))),
    )
    .unwrap();
    let a = Side::new(7, false);
    a.net.dial(reader.listens_at().unwrap()).unwrap();
    let (link, _) = a.opened();
    let closed = door.lock().unwrap();
    let large = part(&vec![7; 20_000_000]);
    a.net.send(link, [ack(1), large.clone()]);
    let (queues, queued) = (Barrier::new(2), Barrier::new(2));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Makes its frame while it has the link.
            let slow = std::iter::once_with(|| {
                queues.wait();
                queued.wait();
                ack(2)
            });
            a.net.send(link, slow);
        });
        queues.wait();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                a.net.poll();
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(closed);
        std::thread::sleep(Duration::from_millis(20));
        over.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
        queued.wait();
    });
    for bytes in [ack(1).len(), large.len(), ack(2).len()] {
        assert_eq!(came.recv_timeout(PATIENCE), Ok(bytes));
    }
}

#[test]
fn another_token_is_refused_and_both_sides_hear_it() {
    let (listening, dialing) = (Side::new(1, true), Side::new(2, false));
    dialing.net.dial(listening.at()).unwrap();
    let why = dialing.lost();
    assert!(
        matches!(why, Lost::Greeting(GreetingError::Token)),
        "{why:?}"
    );
    assert_eq!(
        why.to_string(),
        "it has another token; give the one that the controller wrote when it started"
    );
    // The listener only sees that the dialer goes away.
    assert!(matches!(listening.lost(), Lost::Ended));
}

#[test]
fn nobody_there_and_somebody_else_there() {
    let dialing = Side::new(1, false);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap();
    drop(free);
    dialing.net.dial(nobody).unwrap();
    let why = dialing.lost();
    let refused =
        matches!(&why, Lost::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused);
    assert!(refused, "{why:?}");

    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    dialing.net.dial(web.local_addr().unwrap()).unwrap();
    let (mut stream, _) = web.accept().unwrap();
    let mut opening = [0; 48];
    stream.read_exact(&mut opening).unwrap();
    let page = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".as_slice(),
        &[b' '; 80],
    ]
    .concat();
    stream.write_all(&page).unwrap();
    let why = dialing.lost();
    assert!(
        matches!(why, Lost::Greeting(GreetingError::NotBrambling)),
        "{why:?}"
    );
}

#[test]
fn who_says_nothing_is_let_go_after_a_while() {
    let listening = Side::new(1, true);
    let silent = TcpStream::connect(listening.at()).unwrap();
    assert!(matches!(listening.lost(), Lost::Silent));
    drop(silent);
}

/// Frames before the greeting, random bytes, and half a greeting: none of it gets through, and the net serves on.
#[test]
fn strangers_do_not_get_through() {
    let listening = Side::new(1, true);
    let mut random = 12345u32;
    let mut noise = |bytes: usize| -> Vec<u8> {
        let step = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        std::iter::repeat_with(step).take(bytes).collect()
    };
    for round in 0..50 {
        let mut stream = TcpStream::connect(listening.at()).unwrap();
        let said = match round % 3 {
            0 => ack(1).to_vec(),
            1 => noise(1 + round * 100),
            // The magic word, and nonsense after it.
            _ => [b"BRMBLING\x01\0".as_slice(), &noise(300)].concat(),
        };
        // The net may have hung up already.
        let _ = stream.write_all(&said);
        let _ = stream.flush();
    }
    let dialing = Side::new(1, false);
    dialing.net.dial(listening.at()).unwrap();
    dialing.opened();
    listening.opens_among_strangers();
}

#[test]
fn what_is_no_frame_ends_the_link_and_no_other() {
    let (a, to_b, b, to_a) = pair();
    a.net.dial(b.at()).unwrap();
    let ((other, _), (other_there, _)) = (a.opened(), b.opened());
    let mut damaged = ack(7).to_vec();
    damaged[12] ^= 1;
    a.net.send(to_b, [Bytes::from(damaged)]);
    match b.next() {
        Event::Lost(link, Lost::Frame(_)) => assert_eq!(link, to_a),
        event => panic!("{event:?}"),
    }
    match a.next() {
        Event::Lost(link, _) => assert_eq!(link, to_b),
        event => panic!("{event:?}"),
    }
    a.net.send(other, [ack(8)]);
    assert_eq!(b.frame(other_there), *ack(8));
    // What the owner refuses ends a link as well, with the owner's reason.
    a.net.send(other, [ack(666)]);
    match b.next() {
        Event::Lost(link, why) => {
            assert_eq!(link, other_there);
            assert_eq!(
                why.to_string(),
                "it sent what no worker sends: nobody has sent so many"
            );
        }
        event => panic!("{event:?}"),
    }
}

#[test]
fn a_closed_link_is_lost_at_both_ends_once() {
    let (a, to_b, b, to_a) = pair();
    a.net.close(to_b);
    a.net.close(to_b);
    assert!(matches!(a.lost(), Lost::Closed));
    assert!(matches!(b.lost(), Lost::Ended | Lost::Io(_)));
    a.net.send(to_b, [ack(1)]);
    b.net.send(to_a, [ack(1)]);
    drop((a.net, b.net));
    assert!(a.events.try_recv().is_err() && b.events.try_recv().is_err());
}

#[test]
fn a_net_that_ends_leaves_no_link() {
    let (a, _, b, _) = pair();
    let at = b.at();
    drop(b.net);
    assert!(matches!(a.lost(), Lost::Ended | Lost::Io(_)));
    assert!(matches!(
        b.events.recv_timeout(PATIENCE).unwrap(),
        Event::Lost(..)
    ));
    assert!(TcpStream::connect(at).is_err(), "nobody listens any more");
}

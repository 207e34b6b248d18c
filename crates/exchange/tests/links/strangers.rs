//! However many strangers dial, and whatever they say, whoever knows the token gets in, and those who are in do not notice.

use crate::support::{Event, PATIENCE, Side, ack, is_local, nonce, pair};
use brambling_exchange::transports::tcp::{GREETED_AT_ONCE, GREETING_TIME, LinkOrigin, Lost};
use brambling_protocol::greeting::{Answer, Challenge, Dialer, Listener, Opening, Token, Verdict};
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A connection from a certain address of this machine.
fn connected(from: &str, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let from: SocketAddr = from.parse().unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// What strangers say: nothing, a bit of an opening, a whole one, a whole one with what is no proof, and what is no greeting.
fn said(which: usize) -> Vec<u8> {
    let (_, opening) = Dialer::new(Token::new([9; 32]), nonce());
    match which % 5 {
        0 => Vec::new(),
        1 => b"BRM".to_vec(),
        2 => opening.to_vec(),
        3 => [opening.as_slice(), &[7; size_of::<Answer>()]].concat(),
        _ => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    }
}

/// Does something while strangers from one address come without end, and stay for as long as they may.
fn flooded(to: SocketAddr, from: &str, act: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let came = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = VecDeque::new();
            while !over.load(Ordering::Relaxed) {
                let which = came.fetch_add(1, Ordering::Relaxed);
                let mut stranger = connected(from, to);
                // The listener may have hung up already.
                let _ = stranger.write_all(&said(which));
                held.push_back(stranger);
                if held.len() > 4 * GREETED_AT_ONCE {
                    held.pop_front();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // Those who come later find no place free.
        let begun = Instant::now();
        while came.load(Ordering::Relaxed) < 6 * GREETED_AT_ONCE {
            assert!(begun.elapsed() < PATIENCE, "no flood");
            std::thread::sleep(Duration::from_millis(1));
        }
        act();
        over.store(true, Ordering::Relaxed);
    });
}

/// Also when they come from the same address: dialers that are put out are told so in a way that has them dial again.
#[test]
fn who_knows_the_token_gets_in_through_a_flood() {
    let listening = Side::new(1, true);
    let dialing = Side::new(1, false);
    flooded(listening.at(), "127.0.0.1:0", || {
        for _ in 0..50 {
            let begun = Instant::now();
            loop {
                dialing.net.dial(listening.at()).unwrap();
                match dialing.next() {
                    Event::Opened(..) => break,
                    Event::Lost(_, why) => {
                        assert!(why.may_pass(), "{why:?}");
                        assert!(!is_local(), "processes of a user have places of their own");
                        assert!(begun.elapsed() < GREETING_TIME, "{why:?}");
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    event => panic!("{event:?}"),
                }
            }
        }
    });
    let opened = listening.events.try_iter().filter(|event| match event {
        Event::Opened(..) => true,
        Event::Lost(_, why) => {
            assert!(!matches!(why, Lost::Frame(_) | Lost::Panicked), "{why:?}");
            false
        }
        Event::Frame(_, frame) => panic!("{frame:?} of a stranger"),
    });
    assert_eq!(opened.count(), 50);
}

/// Whoever comes from another address may take its time for each step.
#[test]
fn who_is_slow_is_not_put_out_by_a_flood_from_elsewhere() {
    const STEP: Duration = Duration::from_millis(1_500);
    let listening = Side::over_tcp(1);
    flooded(listening.at(), "127.0.0.2:0", || {
        let mut stream = connected("127.0.0.1:0", listening.at());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (dialer, opening) = Dialer::new(Token::new([1; 32]), nonce());
        let (first, last) = opening.split_at(size_of::<Opening>() / 2);
        stream.write_all(first).unwrap();
        std::thread::sleep(STEP);
        stream.write_all(last).unwrap();
        let mut challenge: Challenge = [0; _];
        stream.read_exact(&mut challenge).unwrap();
        let answer = dialer.on_challenge(&challenge).unwrap();
        std::thread::sleep(STEP);
        stream.write_all(&answer).unwrap();
        let mut verdict: Verdict = [0; _];
        stream.read_exact(&mut verdict).unwrap();
        dialer.on_verdict(&verdict).unwrap();
        stream.write_all(&ack(7)).unwrap();
        loop {
            match listening.next() {
                Event::Lost(..) => {}
                Event::Opened(_, origin) => assert!(
                    matches!(origin, LinkOrigin::Accepted(from) if from == stream.local_addr().unwrap())
                ),
                Event::Frame(_, frame) => break assert_eq!(frame, *ack(7)),
            }
        }
    });
}

/// What comes with the last word of a greeting, and right after it, is not lost between the one who greets and those who carry frames.
#[test]
fn what_is_said_while_the_door_opens_arrives() {
    let listening = Side::over_tcp(1);
    for round in 0..200 {
        let mut stream = TcpStream::connect(listening.at()).unwrap();
        stream.set_nodelay(true).unwrap();
        let (dialer, opening) = Dialer::new(Token::new([1; 32]), nonce());
        stream.write_all(&opening).unwrap();
        let mut challenge: Challenge = [0; _];
        stream.read_exact(&mut challenge).unwrap();
        let mut said = dialer.on_challenge(&challenge).unwrap().to_vec();
        let frames = (0..20).flat_map(|number| ack(1_000 + round * 20 + number).to_vec());
        said.extend(frames);
        // Broken off anywhere, also within a frame.
        let (first, last) = said.split_at((round as usize * 13) % said.len());
        stream.write_all(first).unwrap();
        std::thread::yield_now();
        stream.write_all(last).unwrap();
        let (link, _) = listening.opened();
        for number in 0..20 {
            assert_eq!(listening.frame(link), *ack(1_000 + round * 20 + number));
        }
        drop(stream);
        listening.lost();
    }
}

/// Of more than there are places those who came first are told to come again; the others stay, and who knows the token gets in.
#[test]
fn many_strangers_cost_little() {
    const TOO_MANY: usize = 100;
    let listening = Side::new(1, true);
    let strangers: Vec<TcpStream> = (0..GREETED_AT_ONCE + TOO_MANY)
        .map(|_| TcpStream::connect(listening.at()).unwrap())
        .collect();
    let (first, others) = strangers.split_at(TOO_MANY);
    for mut stream in first {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert_eq!(said, Listener::busy());
    }
    let dialing = Side::new(1, false);
    dialing.net.dial(listening.at()).unwrap();
    dialing.opened();
    listening.opens_among_strangers();
    // At most one of them had to go for that.
    let has_gone = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0; 80]).is_ok()
    };
    assert!(others.iter().filter(|stream| has_gone(stream)).count() <= 1);
}

/// A link that is open carries on.
#[test]
fn those_who_are_in_do_not_notice_a_flood() {
    let (a, to_b, b, to_a) = pair();
    flooded(b.at(), "127.0.0.1:0", || {
        for number in 1_000..3_000 {
            a.net.send(to_b, [ack(number)]);
            loop {
                match b.next() {
                    Event::Lost(link, why) => assert_ne!(link, to_a, "{why:?}"),
                    Event::Frame(link, frame) => {
                        break assert_eq!((link, frame), (to_a, ack(number).to_vec()));
                    }
                    event => panic!("{event:?}"),
                }
            }
        }
    });
}

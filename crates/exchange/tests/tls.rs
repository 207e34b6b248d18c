//! Links under TLS: the same frames, nothing of them in the clear, and nobody without a certificate of the cluster's own authority.

mod support;

use brambling_exchange::transports::tcp::{GREETED_AT_ONCE, Lost};
use brambling_exchange::transports::tls::{MEMBER, Tls, TlsError};
use brambling_protocol::greeting::{GreetingError, Listener};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::certificates::Authority;
use support::{PATIENCE, Side, ack, linked, part};

/// Two sides of one cluster.
fn sides() -> (Side, Side) {
    let tls = Authority::new("one").member();
    (
        Side::with(1, true, Some(tls.clone())),
        Side::with(1, false, Some(tls)),
    )
}

/// Why a dialer and a listener with these do not come together, as each of them hears it.
fn apart(listener: Option<Tls>, dialer: Option<Tls>) -> (Lost, Lost) {
    let listening = Side::with(1, true, listener);
    let dialing = Side::with(1, false, dialer);
    dialing.net.dial(listening.at()).unwrap();
    let lost = (dialing.lost(), listening.lost());
    listening.hears_nothing();
    dialing.hears_nothing();
    lost
}

fn is_apart(listener: &Tls, dialer: &Tls) -> (TlsError, TlsError) {
    match apart(Some(listener.clone()), Some(dialer.clone())) {
        (Lost::Tls(there), Lost::Tls(here)) => (there, here),
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_arrive_whole_and_in_order_both_ways() {
    let (listening, dialing) = sides();
    let (a, to_b, b, to_a) = linked(listening, dialing);
    // Larger than any socket's buffer, and small ones before and after.
    let large: Vec<u8> = (0..20_000_000u32).map(|i| (i * 7) as u8).collect();
    let frames = || {
        let small = |from: u64| (from..from + 500).map(ack);
        small(0).chain([part(&large)]).chain(small(1_000))
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The one side is polled, the other has its helper alone.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                b.net.poll();
            }
        });
        for frame in frames() {
            a.net.send(to_b, [frame.clone()]);
            b.net.send(to_a, [frame]);
        }
        for frame in frames() {
            assert!(a.frame(to_b) == *frame, "another frame than was sent");
            assert!(b.frame(to_a) == *frame, "another frame than was sent");
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Frames around the sizes at which they are read another way.
#[test]
fn frames_of_any_size_arrive_whole() {
    let (listening, dialing) = sides();
    let (a, to_b, b, to_a) = linked(listening, dialing);
    let around = |size: usize| (size - 90..size + 10).step_by(9);
    let sizes = [1 << 10, 1 << 14, 1 << 15, 1 << 16, 1 << 18].into_iter();
    let sizes = sizes.flat_map(around).chain([5, 1 << 20, 0]);
    let frames: Vec<Bytes> = sizes.map(|bytes| part(&vec![bytes as u8; bytes])).collect();
    for frame in &frames {
        a.net.send(to_b, [frame.clone()]);
    }
    for frame in &frames {
        assert!(b.frame(to_a) == *frame, "another frame than was sent");
    }
}

/// Passes on what two sides say, and keeps it.
fn overheard(to: SocketAddr, over: &AtomicBool, listener: TcpListener) -> Vec<u8> {
    let (mut here, _) = listener.accept().unwrap();
    let mut there = TcpStream::connect(to).unwrap();
    let mut heard = Vec::new();
    for end in [&here, &there] {
        end.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
    }
    let mut pass = |from: &mut TcpStream, to: &mut TcpStream| {
        let mut bytes = [0; 4096];
        // Nothing has come, or it was closed, as it is in the end.
        if let Ok(count) = from.read(&mut bytes) {
            heard.extend(&bytes[..count]);
            let _ = to.write_all(&bytes[..count]);
        }
    };
    while !over.load(Ordering::Relaxed) {
        pass(&mut here, &mut there);
        pass(&mut there, &mut here);
    }
    heard
}

#[test]
fn nothing_that_is_said_can_be_read_on_its_way() {
    const SECRET: &[u8] = b"what only the two of them may read";
    for encrypts in [true, false] {
        let tls = encrypts.then(|| Authority::new("one").member());
        let listening = Side::with(1, true, tls.clone());
        let dialing = Side::with(1, false, tls);
        let between = TcpListener::bind("127.0.0.1:0").unwrap();
        dialing.net.dial(between.local_addr().unwrap()).unwrap();
        let over = AtomicBool::new(false);
        let at = listening.at();
        let heard = std::thread::scope(|scope| {
            let listens = scope.spawn(|| overheard(at, &over, between));
            let (to, there) = (dialing.opened().0, listening.opened().0);
            dialing.net.send(to, [part(SECRET)]);
            assert_eq!(listening.frame(there), *part(SECRET));
            listening.net.send(there, [part(SECRET)]);
            assert_eq!(dialing.frame(to), *part(SECRET));
            over.store(true, Ordering::Relaxed);
            listens.join().unwrap()
        });
        let is_heard = |what: &[u8]| heard.windows(what.len()).any(|it| it == what);
        // Without TLS both are: the test can tell.
        assert_eq!(is_heard(SECRET), !encrypts);
        assert_eq!(is_heard(b"BRMBLING"), !encrypts);
    }
}

#[test]
fn who_is_of_another_authority_is_refused_by_either_side() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let (there, here) = is_apart(&ours.member(), &other.member());
    assert!(matches!(there, TlsError::Stranger), "{there:?}");
    assert!(matches!(here, TlsError::StrangerThere), "{here:?}");
    // The dialer trusts the listener, but not the other way about.
    let stranger = ours.trusting(&other.sign(&[MEMBER], 4096));
    let (there, here) = is_apart(&ours.member(), &stranger);
    assert!(matches!(there, TlsError::StrangerThere), "{there:?}");
    assert!(matches!(here, TlsError::Stranger), "{here:?}");
    for error in [there, here] {
        assert!(error.to_string().contains("`brambling certs`"), "{error}");
    }
}

/// As somebody makes it who wants to be taken for the other.
#[test]
fn an_authority_of_the_same_name_is_another() {
    let (ours, other) = (Authority::new("ours"), Authority::new("ours"));
    let (there, _) = is_apart(&ours.member(), &other.member());
    assert!(matches!(there, TlsError::Stranger), "{there:?}");
    let stranger = ours.trusting(&other.sign(&[MEMBER], 4096));
    let (_, here) = is_apart(&ours.member(), &stranger);
    assert!(matches!(here, TlsError::Stranger), "{here:?}");
}

#[test]
fn a_certificate_that_has_expired_is_refused_by_either_side() {
    let ours = Authority::new("ours");
    let expired = ours.trusting(&ours.sign(&[MEMBER], 2021));
    assert!(matches!(expired.check(), Err(TlsError::Expired)));
    assert!(ours.member().check().is_ok());
    let (there, here) = is_apart(&expired, &ours.member());
    assert!(matches!(there, TlsError::Expired), "{there:?}");
    assert!(matches!(here, TlsError::ExpiredThere), "{here:?}");
    let (there, here) = is_apart(&ours.member(), &expired);
    assert!(matches!(there, TlsError::ExpiredThere), "{there:?}");
    assert!(matches!(here, TlsError::Expired), "{here:?}");
}

#[test]
fn a_certificate_for_hosts_is_taken_there_alone() {
    let ours = Authority::new("ours");
    let here = ours.trusting(&ours.sign(&["127.0.0.1"], 4096));
    let elsewhere = ours.trusting(&ours.sign(&["10.1.2.3", "node-7"], 4096));
    linked(
        Side::with(1, true, Some(here)),
        Side::with(1, false, Some(elsewhere.clone())),
    );
    let (there, _) = is_apart(&elsewhere, &ours.member());
    assert!(matches!(there, TlsError::OtherHost), "{there:?}");
    assert!(there.to_string().contains("--host"), "{there}");
}

#[test]
fn one_side_without_tls_is_refused_and_told_so() {
    let tls = Authority::new("ours").member();
    let why = apart(Some(tls.clone()), None);
    let is_needed = |why: &Lost| matches!(why, Lost::Greeting(GreetingError::TlsNeeded));
    assert!(is_needed(&why.0) && is_needed(&why.1), "{why:?}");
    assert!(why.0.to_string().contains("--tls DIR"), "{}", why.0);
    let why = apart(None, Some(tls));
    let is_unknown = |why: &Lost| matches!(why, Lost::Greeting(GreetingError::NoTls));
    assert!(is_unknown(&why.0) && is_unknown(&why.1), "{why:?}");
    assert!(why.0.to_string().contains("--tls"), "{}", why.0);
}

#[test]
fn a_certificate_is_no_token() {
    let tls = Authority::new("ours").member();
    let listening = Side::with(1, true, Some(tls.clone()));
    let dialing = Side::with(2, false, Some(tls));
    dialing.net.dial(listening.at()).unwrap();
    let why = dialing.lost();
    assert!(
        matches!(why, Lost::Greeting(GreetingError::Token)),
        "{why:?}"
    );
    assert!(matches!(listening.lost(), Lost::Ended));
}

/// Whoever is there may say what TLS does not, or nothing.
#[test]
fn what_is_no_tls_is_told_from_a_stranger() {
    let (_, dialing) = sides();
    for said in [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".as_slice(),
        // A refusal that breaks off.
        b"BRMBLING\x01",
    ] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        dialing.net.dial(other.local_addr().unwrap()).unwrap();
        let (mut stream, _) = other.accept().unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
        stream.write_all(said).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let why = dialing.lost();
        let is_other = matches!(why, Lost::Greeting(GreetingError::NotBrambling));
        assert!(is_other, "{why:?}");
    }
    // A refusal in two parts.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    dialing.net.dial(other.local_addr().unwrap()).unwrap();
    let (mut stream, _) = other.accept().unwrap();
    stream.write_all(&Listener::busy()[..20]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    stream.write_all(&Listener::busy()[20..]).unwrap();
    let why = dialing.lost();
    assert!(
        matches!(why, Lost::Greeting(GreetingError::Busy)),
        "{why:?}"
    );
}

/// It says that nothing more comes, and something more: nobody is kept busy by that, and the greeting's time ends it at the latest.
#[test]
fn who_goes_on_after_its_end_is_let_go() {
    let (_, dialing) = sides();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    dialing.net.dial(other.local_addr().unwrap()).unwrap();
    let (mut stream, _) = other.accept().unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    let alert = [0x15, 3, 3, 0, 2, 1, 0];
    stream
        .write_all(&[&alert[..], &[0x17, 3, 3, 9, 9]].concat())
        .unwrap();
    let why = dialing.lost();
    let is_over = matches!(why, Lost::Ended | Lost::Tls(_) | Lost::Silent);
    assert!(is_over, "{why:?}");
}

/// The first bytes of a handshake that says it is of 60,000 bytes.
fn begun() -> Vec<u8> {
    let mut begun = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xEA, 0x60];
    begun.resize(5 + 0x4000, 0);
    begun
}

#[test]
fn who_begins_a_handshake_and_says_nothing_more_is_let_go_after_a_while() {
    let (listening, _) = sides();
    let mut silent = TcpStream::connect(listening.at()).unwrap();
    silent.write_all(&begun()[..100]).unwrap();
    let started = Instant::now();
    assert!(matches!(listening.lost(), Lost::Silent));
    assert!(started.elapsed() > Duration::from_secs(4));
}

#[test]
fn no_more_is_taken_of_a_handshake_than_certificates_are_long() {
    let (listening, _) = sides();
    let mut stream = TcpStream::connect(listening.at()).unwrap();
    let mut written = 0;
    for _ in 0..40 {
        // It may have hung up.
        written += stream.write(&begun()).unwrap_or(0);
    }
    assert!(written > 0);
    let why = listening.lost();
    assert!(matches!(why, Lost::Tls(TlsError::TooMuch)), "{why:?}");
}

/// Random bytes, half a handshake, frames, ends that are none: nothing gets through, and the net serves on.
#[test]
fn strangers_do_not_get_through() {
    let (listening, dialing) = sides();
    let mut random = 12345u32;
    let mut noise = |bytes: usize| -> Vec<u8> {
        let step = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        std::iter::repeat_with(step).take(bytes).collect()
    };
    for round in 0..60 {
        let mut stream = TcpStream::connect(listening.at()).unwrap();
        let said = match round % 6 {
            0 => ack(1).to_vec(),
            1 => noise(1 + round * 100),
            2 => [&[0x16, 3, 1, 1, 0], noise(400).as_slice()].concat(),
            // Two alerts: that nothing more comes, and something more.
            3 => [[0x15, 3, 3, 0, 2, 1, 0].as_slice(), &noise(30)].concat(),
            4 => [
                [0x16, 3, 1, 0, 2, 1, 0, 0x15, 3, 3, 0, 2, 1, 0].as_slice(),
                &[0x17, 3, 3, 9, 9],
            ]
            .concat(),
            _ => begun()[..5 + round].to_vec(),
        };
        // The net may have hung up already.
        let _ = stream.write_all(&said);
        let _ = stream.flush();
    }
    dialing.net.dial(listening.at()).unwrap();
    dialing.opened();
    listening.opens_among_strangers();
}

/// Further ones than there are places put out those who came first, who are told so if they have not begun to speak TLS. Whoever knows the
/// token is let in meanwhile.
#[test]
fn too_many_at_once_put_out_those_who_came_first() {
    let (listening, dialing) = sides();
    let strangers: Vec<TcpStream> = (0..3 * GREETED_AT_ONCE)
        .map(|which| {
            let mut stream = TcpStream::connect(listening.at()).unwrap();
            if which % 2 == 1 {
                // The listener may have hung up already.
                let _ = stream.write_all(&begun()[..50]);
            }
            stream
        })
        .collect();
    for (which, mut stream) in strangers[..2 * GREETED_AT_ONCE].iter().enumerate() {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut said = Vec::new();
        // Whoever is cut off in the midst of what it says may see it broken off.
        let _ = stream.read_to_end(&mut said);
        match which % 2 {
            0 => assert_eq!(said, Listener::busy()),
            _ => assert_eq!(said, []),
        }
    }
    dialing.net.dial(listening.at()).unwrap();
    dialing.opened();
    listening.opens_among_strangers();
    drop(strangers);
}

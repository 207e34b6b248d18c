//! Large frames whose last bytes are read to where their owner wants them.

use crate::support::{PATIENCE, Side, is_local, nonce};
use brambling_exchange::transports::tcp::{
    LinkId, LinkOrigin, Lost, Net, NetOptions, Owner, ReadBuffer, ReadTarget,
};
use brambling_memory::Budget;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId};
use brambling_protocol::frame::{
    Body, Data, DataHead, Frame, FrameTail, Incoming, Piece, VersionRange,
};
use brambling_protocol::greeting::{Challenge, Dialer, Token, Verdict};
use brambling_protocol::{Generation, JobId, Priority};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where a frame's last payload is wanted, and how much room there is.
type Wants = fn(FrameTail<'_>) -> Option<(usize, usize)>;

/// Rooms of the owner's, and what came: the frame, and whether its last payload lies in one of them.
struct Places {
    wants: Wants,
    asked: AtomicUsize,
    rooms: Mutex<Vec<usize>>,
    came: Mutex<Sender<(Vec<u8>, bool)>>,
}

struct Own(Vec<u8>);

impl ReadBuffer for Own {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Owner for Places {
    fn opened(&self, _: LinkId, _: LinkOrigin) {}
    fn place(&self, _: LinkId, begun: &[u8]) -> Option<ReadTarget> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (at, bytes) = (self.wants)(FrameTail::of(begun)?)?;
        let room = Own(vec![0; bytes]);
        self.rooms.lock().unwrap().push(room.0.as_ptr() as usize);
        Some(ReadTarget {
            at,
            room: Box::new(room),
        })
    }
    fn frame(
        &self,
        _: LinkId,
        incoming: Incoming<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let frame = Frame::come(incoming)?;
        let Body::Data(data) = &frame.body else {
            return Err("pieces were sent".into());
        };
        let last = data.pieces.last().expect("there are some").payload;
        let lies_there = self
            .rooms
            .lock()
            .unwrap()
            .contains(&(last.as_ptr() as usize));
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.came.lock().unwrap().send((bytes, lies_there))?;
        Ok(())
    }
    fn lost(&self, _: LinkId, _: Lost) {}
}

/// A frame of a small piece and a large one.
fn frame(turn: u64, bytes: usize) -> Bytes {
    let payload: Vec<u8> = (0..bytes).map(|at| (at as u64 * 31 + turn) as u8).collect();
    let piece = |index, payload| Piece {
        first: 0,
        end: 1,
        source: TreeNode::leaf(index),
        chunk: 0,
        last: true,
        payload,
    };
    let data = Data {
        head: DataHead {
            job: JobId(1),
            generation: Generation(0),
            exchange: ExchangeId(2),
            turn,
            group: GroupId(4),
        },
        versions: vec![VersionRange {
            first: 0,
            end: 1,
            version: 1,
        }],
        pieces: vec![piece(0, b"small"), piece(1, &payload)],
        empties: vec![],
        routes: Vec::new(),
    };
    Frame {
        priority: Priority::LAST,
        sequence: None,
        body: Body::Data(data),
    }
    .to_bytes()
}

type Came = Receiver<(Vec<u8>, bool)>;

fn placing(wants: Wants) -> (Net, Arc<Places>, Came) {
    let (came, receiver) = channel();
    let places = Arc::new(Places {
        wants,
        asked: AtomicUsize::new(0),
        rooms: Mutex::default(),
        came: Mutex::new(came),
    });
    let options = NetOptions {
        bind: Some("127.0.0.1:0".parse().unwrap()),
        token: Token::new([7; 32]),
        nonce,
        tls: None,
        local: is_local(),
        budget: Budget::unlimited(),
    };
    (Net::new(options, places.clone()).unwrap(), places, receiver)
}

/// Sends frames of all sizes, and gives which of the large ones came to where they were wanted.
fn sent(wants: Wants) -> (Vec<bool>, usize) {
    let (net, places, came) = placing(wants);
    let sender = Side::new(7, false);
    let link = sender.net.dial(net.listens_at().unwrap()).unwrap();
    sender.opened();
    let sizes = [
        100_000, 10, 40_000, 200_000, 200_001, 1, 3_000_000, 131_072, 33_000,
    ];
    let mut large = Vec::new();
    for round in 0..20 {
        for (turn, bytes) in (0..).zip(sizes) {
            sender.net.send(link, [frame(turn + round, bytes)]);
        }
        for (turn, bytes) in (0..).zip(sizes) {
            let (frame_that_came, lies_there) = came.recv_timeout(PATIENCE).expect("it comes");
            assert!(
                frame_that_came == frame(turn + round, bytes),
                "{bytes} bytes in round {round}"
            );
            if bytes > 100_000 {
                large.push(lies_there);
            } else if bytes < 30_000 {
                assert!(!lies_there, "it came with others");
            }
        }
    }
    (large, places.asked.load(Ordering::Relaxed))
}

#[test]
fn large_frames_end_where_they_are_wanted() {
    let (large, asked) = sent(|ending| Some((ending.at, ending.bytes)));
    assert!(large.iter().all(|lies_there| *lies_there), "{large:?}");
    assert!(asked >= large.len());
}

/// Who sends greets by hand, and says a frame piece by piece: no cut hides where it is to lie.
#[test]
fn frames_that_come_in_pieces_end_where_they_are_wanted() {
    const BYTES: usize = 200_000;
    let whole = frame(3, BYTES);
    for cut in [1, 7, 40, 90, 200, 300, 2_000, BYTES] {
        let (net, _places, came) = placing(|ending| Some((ending.at, ending.bytes)));
        let mut stream = TcpStream::connect(net.listens_at().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        greet(&mut stream);
        // The first is not expected to be large, the second is.
        for _ in 0..2 {
            for part in [&whole[..cut], &whole[cut..]] {
                stream.write_all(part).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            let (frame_that_came, lies_there) = came.recv_timeout(PATIENCE).expect("it comes");
            assert!(frame_that_came == whole, "cut at {cut}");
            assert!(lies_there, "cut at {cut}");
        }
    }
}

/// As who dials.
fn greet(stream: &mut TcpStream) {
    let (dialer, opening) = Dialer::new(Token::new([7; 32]), nonce());
    stream.write_all(&opening).unwrap();
    let mut challenge: Challenge = [0; _];
    stream.read_exact(&mut challenge).unwrap();
    let answer = dialer.on_challenge(&challenge).unwrap();
    stream.write_all(&answer).unwrap();
    let mut verdict: Verdict = [0; _];
    stream.read_exact(&mut verdict).unwrap();
    dialer.on_verdict(&verdict).unwrap();
}

/// Who knows no place, or one that does not fit, gets the frame all the same.
#[test]
fn places_that_do_not_fit_are_not_used() {
    let wants: [Wants; 5] = [
        |_| None,
        |ending| Some((ending.at, ending.bytes - 1)),
        |ending| Some((ending.at, ending.bytes + 1)),
        |ending| Some((ending.at + ending.bytes, 0)),
        |ending| Some((usize::MAX, ending.bytes)),
    ];
    for wants in wants {
        let (large, asked) = sent(wants);
        assert!(!large.iter().any(|lies_there| *lies_there), "{large:?}");
        assert!(asked >= large.len());
    }
}

use super::*;
use crate::transports::tcp::channel::ByteChannel;
use brambling_memory::Budget;
use brambling_protocol::Priority;
use brambling_protocol::frame::{Ack, Body, Frame};
use bytes::Bytes;
use std::io::{IoSlice, Read, Write};
use std::sync::atomic::AtomicUsize;

const PATIENCE: Duration = Duration::from_secs(20);
/// More than a socket holds.
const FRAMES: usize = 1 << 20;

/// Counts the frames that come, while its door is open.
#[derive(Default)]
struct Behind {
    door: Mutex<()>,
    came: AtomicUsize,
}

impl Owner for Behind {
    fn opened(&self, _: LinkId, _: LinkOrigin) {}
    fn frame(
        &self,
        _: LinkId,
        _: Incoming<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        drop(self.door.lock());
        self.came.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn lost(&self, _: LinkId, _: Lost) {}
}

fn net(bind: bool, local: bool) -> (Net, Arc<Behind>) {
    net_within(bind, local, Budget::unlimited())
}

fn net_within(bind: bool, local: bool, budget: Budget) -> (Net, Arc<Behind>) {
    let owner = Arc::<Behind>::default();
    let options = NetOptions {
        bind: bind.then(|| "127.0.0.1:0".parse().unwrap()),
        token: Token::new([7; 32]),
        nonce: || [1; size_of::<Nonce>()],
        tls: None,
        local,
        budget,
    };
    (Net::new(options, owner.clone()).unwrap(), owner)
}

fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ack() -> Bytes {
    let frame = Frame {
        priority: Priority::FIRST,
        sequence: None,
        body: Body::Ack(Ack { received: 1 }),
    };
    frame.to_bytes()
}

/// Gives and takes a few bytes at once, and lets out what it took with the next call only.
struct Dribbles {
    stream: SocketStream,
    held: Mutex<Vec<u8>>,
}

impl ByteChannel for Dribbles {
    fn socket(&self) -> &SocketStream {
        &self.stream
    }
    fn read(&self, place: &mut [u8]) -> Result<usize, Lost> {
        let few = place.len().min(7);
        Ok({ &self.stream }.read(&mut place[..few])?)
    }
    fn write(&self, slices: &[IoSlice<'_>], _: Sleep) -> io::Result<usize> {
        let mut held = self.held.lock().unwrap();
        while !held.is_empty() {
            let went = { &self.stream }.write(&held)?;
            held.drain(..went);
        }
        let first = slices.iter().find(|slice| !slice.is_empty());
        let few = first.map_or(&[][..], |slice| &slice[..slice.len().min(11)]);
        held.extend_from_slice(few);
        Ok(few.len())
    }
    fn holds_back(&self) -> bool {
        !self.held.lock().unwrap().is_empty()
    }
}

/// What a link knows of it is the trait.
#[test]
fn any_carrier_carries_frames() {
    let ((listening, came_there), (dialing, came_here)) = (net(true, false), net(false, false));
    let stream = SocketStream::dial(listening.listens_at().unwrap(), false).unwrap();
    let held = Mutex::default();
    let wire = LinkChannel::of(Dribbles { stream, held });
    let link = dialing.shared.link_of(wire, LinkOrigin::Dialed, None);
    dialing.shared.links.insert(link.clone());
    link.register().unwrap();
    within("greeted", || {
        link.is_open() && !listening.shared.links.all().is_empty()
    });
    const MANY: usize = 5_000;
    dialing.send(link.id(), std::iter::repeat_n(ack(), MANY));
    let other = listening.shared.links.all()[0].id();
    listening.send(other, std::iter::repeat_n(ack(), MANY));
    within("all come", || {
        came_there.came.load(Ordering::Relaxed) == MANY
            && came_here.came.load(Ordering::Relaxed) == MANY
    });
}

/// A helper that heard of room where nothing waited for it would push those who compute off their processor.
#[test]
fn room_is_awaited_only_while_something_waits_for_it() {
    for local in [false, true] {
        let (reader, behind) = net(true, local);
        let (writer, _) = net(false, local);
        let id = writer.dial(reader.listens_at().unwrap()).unwrap();
        let link = writer.shared.links.get(id).unwrap();
        within("greeted", || link.is_open() && !link.awaits_room());

        let door = behind.door.lock().unwrap();
        writer.send(id, std::iter::repeat_n(ack(), FRAMES));
        within("full", || link.is_full());
        // Where memory is shared, the other side rings.
        assert_eq!(link.awaits_room(), !local);
        drop(door);
        within("all come", || behind.came.load(Ordering::Relaxed) == FRAMES);
        within("empty", || !link.is_full() && !link.awaits_room());
        assert!(
            reader
                .shared
                .links
                .all()
                .iter()
                .all(|link| !link.awaits_room())
        );
    }
}

/// Each would cost those who poll a system call at every look.
#[test]
fn those_who_poll_do_not_see_strangers() {
    let (listening, _) = net(true, false);
    let at = listening.listens_at().unwrap();
    let strangers: Vec<_> = (0..50)
        .map(|_| std::net::TcpStream::connect(at).unwrap())
        .collect();
    let (dialing, _) = net(false, false);
    let id = dialing.dial(at).unwrap();
    let link = dialing.shared.links.get(id).unwrap();
    within("greeted", || link.is_open());
    within("let in", || listening.shared.links.all().len() == 1);
    drop(strangers);
}

/// What two processes share is in the memory of both.
#[test]
fn memory_to_share_counts_and_is_none_where_there_is_little() {
    let budget = |bytes| Budget::new(bytes, Default::default());
    let (much, little) = (1 << 30, 1 << 27);
    for (here, there) in [(much, much), (little, little), (much, little)] {
        let shares = [here == much, here == much && there == much];
        let (here, there) = (budget(here), budget(there));
        let (reader, behind) = net_within(true, true, there.clone());
        let (writer, _) = net_within(false, true, here.clone());
        let id = writer.dial(reader.listens_at().unwrap()).unwrap();
        let link = writer.shared.links.get(id).unwrap();
        within("greeted", || link.is_open());
        drop(link);
        writer.send(id, [ack()]);
        within("comes", || behind.came.load(Ordering::Relaxed) == 1);
        let used = [here.in_use_bytes(), there.in_use_bytes()];
        assert_eq!(used.map(|used| used > 1 << 22), shares, "{used:?}");
        drop((reader, writer));
        assert_eq!([here.in_use_bytes(), there.in_use_bytes()], [0, 0]);
    }
}

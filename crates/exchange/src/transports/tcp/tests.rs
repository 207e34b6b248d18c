use super::*;
use brambling_protocol::Priority;
use brambling_protocol::frame::{Ack, Body, Frame};
use bytes::Bytes;
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
    fn opened(&self, _: LinkId, _: Origin) {}
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
    let owner = Arc::<Behind>::default();
    let options = NetOptions {
        bind: bind.then(|| "127.0.0.1:0".parse().unwrap()),
        token: Token::new([7; 32]),
        nonce: || [1; size_of::<Nonce>()],
        tls: None,
        local,
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

/// A helper that heard of room where nothing waited for it would push those who compute off their processor.
#[test]
fn room_is_awaited_only_while_something_waits_for_it() {
    for local in [false, true] {
        let (reader, behind) = net(true, local);
        let (writer, _) = net(false, local);
        let id = writer.dial(reader.listens_at().unwrap()).unwrap();
        let link = writer.shared.link(id).unwrap();
        within("greeted", || link.is_open() && !link.awaits_room());

        let door = behind.door.lock().unwrap();
        let frame = Frame {
            priority: Priority::FIRST,
            sequence: None,
            body: Body::Ack(Ack { received: 1 }),
        };
        let frame: Bytes = frame.to_bytes();
        writer.send(id, std::iter::repeat_n(frame, FRAMES));
        within("full", || link.is_full());
        // Where memory is shared, the other side rings.
        assert_eq!(link.awaits_room(), !local);
        drop(door);
        within("all come", || behind.came.load(Ordering::Relaxed) == FRAMES);
        within("empty", || !link.is_full() && !link.awaits_room());
        assert!(reader.shared.all().iter().all(|link| !link.awaits_room()));
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
    let link = dialing.shared.link(id).unwrap();
    within("greeted", || link.is_open());
    within("let in", || listening.shared.all().len() == 1);
    drop(strangers);
}

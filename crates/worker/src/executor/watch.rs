//! What a thread looks at for its stalled shards: the marks that sources on other threads will set. A source
//! then need not tell a thread that is awake, and one cache line crosses instead of three.
//!
//! # Why no shard is left lying
//! A shard that stalls on a source of another home is watched for by its home thread, and only while it rests
//! there. A source that runs on its own home thread sets its mark, passes the cheap fence, and asks whether the
//! destination's thread sleeps; a thread that goes to sleep says so, passes the dear fence, and looks at all its
//! marks: one of the two sees the other (see [`fences`](brambling_exchange::in_process::fences)). A source of the
//! same home looks for itself what the destination lacks, and adds a watch when that is a source elsewhere.
//! Wherever one of the two runs as a guest, the other is told by doorbell.
//! While jobs share the threads, all is told by doorbell: a thread that turns to another job looks at no marks. It looks at all of them behind a dear
//! fence before it does. A guest that stalls meanwhile is given back without a word: beside its owner stands that it rests, and it is told by doorbell.

use brambling_exchange::in_process::StampRef;
use brambling_program::{ExchangeId, Turn};

/// A stalled shard's next missing source.
#[derive(Clone, Copy)]
pub(super) struct StampWatch<'a> {
    pub(super) mark: StampRef<'a>,
    pub(super) exchange: ExchangeId,
    pub(super) turn: Turn,
    /// The shard, and how many slices it had begun: a later slice makes its own watches.
    pub(super) number: u32,
    pub(super) slices: u32,
}

/// The watches of one thread.
#[derive(Default)]
pub(super) struct Watches<'a> {
    list: Vec<StampWatch<'a>>,
    next: usize,
}

/// Watches looked at between two slices, and one more for each so many in the list: none grows old, and the
/// list does not grow.
const LOOKS: usize = 2;
const LOOKS_SHARE: usize = 8;

impl<'a> Watches<'a> {
    #[inline]
    pub(super) fn add(&mut self, watch: StampWatch<'a>) {
        self.list.push(watch);
    }

    /// Looks at some of the watches, in turn; gives those whose marks are set, and forgets them.
    #[inline]
    pub(super) fn look(&mut self, each: impl FnMut(&mut Watches<'a>, StampWatch<'a>)) {
        // Never all at once: a thread with thousands of stalled shards would look at as many lines
        // of others between two slices.
        let most = (LOOKS + self.list.len() / LOOKS_SHARE).min(self.list.len());
        self.look_at(most, each);
    }

    /// Looks at all watches.
    #[inline]
    pub(super) fn look_at_all(&mut self, each: impl FnMut(&mut Watches<'a>, StampWatch<'a>)) {
        self.look_at(self.list.len(), each);
    }

    #[inline]
    fn look_at(&mut self, most: usize, mut each: impl FnMut(&mut Watches<'a>, StampWatch<'a>)) {
        for _ in 0..most {
            if self.next >= self.list.len() {
                self.next = 0;
            }
            let Some(watch) = self.list.get(self.next) else {
                return;
            };
            if watch.mark.is_set() {
                // The last one takes its place and is looked at next: `next` stays.
                let watch = self.list.swap_remove(self.next);
                each(self, watch);
            } else {
                self.next += 1;
            }
        }
    }

    /// Whether some mark is set by now.
    pub(super) fn is_any_set(&self) -> bool {
        self.list.iter().any(|watch| watch.mark.is_set())
    }
}

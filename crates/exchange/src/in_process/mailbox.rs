//! Mailboxes for exchanges with too many pairs for slots: memory follows the pieces that are sent.
#![allow(unsafe_code)] // A stack of heap nodes: pushed by many, taken whole by one.

use super::TURNS_OPEN;
use brambling_memory::{Budget, Class, OutOfMemory, mutants};
use brambling_program::{Links, PayloadType, Turn};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

#[repr(C)]
struct Node {
    next: *mut Node,
    source: u32,
    /// What the letter weighed when last looked at.
    bytes: u64,
}

/// A piece with its source, owned by whoever holds the letter.
pub(super) struct Letter {
    node: *mut Node,
    piece: &'static PayloadType,
}

fn node_layout(piece: &PayloadType) -> (Layout, usize) {
    let (layout, offset) = Layout::new::<Node>()
        .extend(piece.layout())
        .expect("a small header");
    (layout.pad_to_align(), offset)
}

/// Bytes from a node to its piece, as in [`node_layout`].
fn piece_offset(piece: &PayloadType) -> usize {
    let align = piece.layout().align();
    (size_of::<Node>() + align - 1) & !(align - 1)
}

impl Letter {
    /// A letter with a default piece.
    fn new(piece: &'static PayloadType, source: u32) -> Letter {
        let (layout, offset) = node_layout(piece);
        debug_assert_eq!(offset, piece_offset(piece));
        // SAFETY: the layout holds at least the header.
        let node = unsafe { alloc(layout) };
        if node.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: fresh memory of the layout.
        unsafe {
            node.cast::<Node>().write(Node {
                next: ptr::null_mut(),
                source,
                bytes: layout.size() as u64,
            });
            piece.write_default(node.add(offset));
        }
        Letter {
            node: node.cast(),
            piece,
        }
    }

    pub(super) fn source(&self) -> u32 {
        // SAFETY: the node lives as long as its letter.
        unsafe { (*self.node).source }
    }

    pub(super) fn piece(&self) -> *mut u8 {
        // SAFETY: the piece lies behind the header in the same allocation.
        unsafe { self.node.cast::<u8>().add(piece_offset(self.piece)) }
    }

    /// Bytes that it took when last weighed.
    pub(super) fn bytes(&self) -> u64 {
        // SAFETY: the node lives as long as its letter.
        unsafe { (*self.node).bytes }
    }

    /// Looks at what the piece owns by now. Gives all bytes of the letter.
    pub(super) fn weigh(&mut self) -> u64 {
        if !self.piece.is_fixed() && !mutants::is_on("mailbox-weighs-no-content") {
            let own = node_layout(self.piece).0.size() as u64;
            // SAFETY: the letter owns node and piece, and whoever writes the piece does so between two calls.
            unsafe { (*self.node).bytes = own + self.piece.heap_bytes(self.piece()) as u64 };
        }
        self.bytes()
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        // SAFETY: the letter owns its node, whose piece was written in `new`.
        unsafe {
            self.piece.drop_in_place(self.piece());
            dealloc(self.node.cast(), node_layout(self.piece).0);
        }
    }
}

/// One stack for each destination and open turn. Every letter on a stack is charged to the budget.
pub(super) struct Mailbox {
    heads: Box<[AtomicPtr<Node>]>,
    piece: &'static PayloadType,
    budget: Budget,
}

// SAFETY: nodes hold payloads, which are Send and Sync, and are owned by the stack they are on.
unsafe impl Send for Mailbox {}
// SAFETY: as above.
unsafe impl Sync for Mailbox {}

impl Mailbox {
    pub(super) fn new(links: &Links, piece: &'static PayloadType, budget: Budget) -> Mailbox {
        let stacks = links.destination_count() as usize * TURNS_OPEN as usize;
        Mailbox {
            heads: (0..stacks)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            piece,
            budget,
        }
    }

    fn head(&self, turn: Turn, destination: u32) -> &AtomicPtr<Node> {
        &self.heads[destination as usize * TURNS_OPEN as usize + (turn % TURNS_OPEN) as usize]
    }

    /// What an empty letter takes.
    pub(super) fn letter_bytes(&self) -> u64 {
        node_layout(self.piece).0.size() as u64
    }

    /// An empty letter of a source, delivered to nobody yet.
    pub(super) fn letter(&self, source: u32) -> Letter {
        Letter::new(self.piece, source)
    }

    /// Charges letters that took `old_bytes` and take `new_bytes`.
    pub(super) fn charge(&self, old_bytes: u64, new_bytes: u64) -> Result<(), OutOfMemory> {
        self.budget.adjust(Class::Exchange, old_bytes, new_bytes)
    }

    /// Hands a letter over, and with it what was charged for it.
    pub(super) fn deliver(&self, turn: Turn, destination: u32, letter: Letter) {
        let head = self.head(turn, destination);
        let node = letter.node;
        std::mem::forget(letter);
        let mut top = head.load(Ordering::Relaxed);
        loop {
            // SAFETY: not yet on the stack: only this thread sees it.
            unsafe { (*node).next = top };
            // Release: publishes the letter. Pairs with the Acquire swap in `drain`.
            match head.compare_exchange_weak(top, node, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes a complete turn's letters, in source order.
    pub(super) fn drain(&self, turn: Turn, destination: u32) -> Letters<'_> {
        let mut at = self
            .head(turn, destination)
            .swap(ptr::null_mut(), Ordering::AcqRel);
        let mut letters = Vec::new();
        while !at.is_null() {
            letters.push(Letter {
                node: at,
                piece: self.piece,
            });
            // SAFETY: taken from the stack, so it is ours.
            at = unsafe { (*at).next };
        }
        letters.sort_unstable_by_key(Letter::source);
        Letters {
            mailbox: self,
            letters,
            next: 0,
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        for stack in 0..self.heads.len() {
            let (destination, turn) = (stack / TURNS_OPEN as usize, stack % TURNS_OPEN as usize);
            drop(self.drain(turn as Turn, destination as u32));
        }
    }
}

/// What one turn brought to a destination. When dropped the letters are freed, then their charge is given back.
pub(super) struct Letters<'a> {
    mailbox: &'a Mailbox,
    letters: Vec<Letter>,
    next: usize,
}

impl Letters<'_> {
    /// The next source that sent something, and its piece.
    pub(super) fn next(&mut self) -> Option<(u32, *mut u8)> {
        let letter = self.letters.get(self.next)?;
        self.next += 1;
        Some((letter.source(), letter.piece()))
    }
}

impl Drop for Letters<'_> {
    fn drop(&mut self) {
        let bytes = self.letters.iter().map(Letter::bytes).sum();
        self.letters.clear();
        if !mutants::is_on("mailbox-keeps-its-charge") {
            // Giving back cannot fail.
            let _ = self.mailbox.charge(bytes, 0);
        }
    }
}

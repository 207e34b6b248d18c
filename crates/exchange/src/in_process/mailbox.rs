//! Mailboxes for exchanges with too many pairs for slots: memory follows the pieces that are sent.
#![allow(unsafe_code)] // A stack of heap nodes: pushed by many, taken whole by one.

use super::TURNS_OPEN;
use brambling_program::{Links, PayloadType, Turn};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

#[repr(C)]
struct Node {
    next: *mut Node,
    source: u32,
}

/// A piece with its source.
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

impl Letter {
    pub(super) fn source(&self) -> u32 {
        // SAFETY: the node lives as long as its letter.
        unsafe { (*self.node).source }
    }

    pub(super) fn piece(&self) -> *mut u8 {
        // SAFETY: the piece lies behind the header in the same allocation.
        unsafe { self.node.cast::<u8>().add(node_layout(self.piece).1) }
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        // SAFETY: the letter owns its node, whose piece was written in `Mailbox::write`.
        unsafe {
            self.piece.drop_in_place(self.piece());
            dealloc(self.node.cast(), node_layout(self.piece).0);
        }
    }
}

/// One stack for each destination and open turn.
pub(super) struct Mailbox {
    heads: Box<[AtomicPtr<Node>]>,
    piece: &'static PayloadType,
}

// SAFETY: nodes hold payloads, which are Send and Sync, and are owned by the stack they are on.
unsafe impl Send for Mailbox {}
// SAFETY: as above.
unsafe impl Sync for Mailbox {}

impl Mailbox {
    pub(super) fn new(links: &Links, piece: &'static PayloadType) -> Mailbox {
        let stacks = links.destination_count() as usize * TURNS_OPEN as usize;
        Mailbox {
            heads: (0..stacks)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            piece,
        }
    }

    fn head(&self, turn: Turn, destination: u32) -> &AtomicPtr<Node> {
        &self.heads[destination as usize * TURNS_OPEN as usize + (turn % TURNS_OPEN) as usize]
    }

    /// A new piece of a source.
    pub(super) fn write(&self, turn: Turn, source: u32, destination: u32) -> *mut u8 {
        let head = self.head(turn, destination);
        let node = self.allocate(source);
        let mut top = head.load(Ordering::Relaxed);
        loop {
            // SAFETY: not yet on the stack: only this thread sees it.
            unsafe { (*node).next = top };
            // Release: publishes the node. Pairs with the Acquire swap in `drain`.
            match head.compare_exchange_weak(top, node, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Letter::borrow(node, self.piece),
                Err(now) => top = now,
            }
        }
    }

    fn allocate(&self, source: u32) -> *mut Node {
        let (layout, offset) = node_layout(self.piece);
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
            });
            self.piece.write_default(node.add(offset));
        }
        node.cast()
    }

    /// Takes a complete turn's pieces, in source order.
    pub(super) fn drain(&self, turn: Turn, destination: u32) -> Vec<Letter> {
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
        letters
    }
}

impl Letter {
    fn borrow(node: *mut Node, piece: &'static PayloadType) -> *mut u8 {
        // SAFETY: as in `piece`.
        unsafe { node.cast::<u8>().add(node_layout(piece).1) }
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

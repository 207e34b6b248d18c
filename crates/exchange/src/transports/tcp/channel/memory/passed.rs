//! Files that go with a byte from one process of a machine to another, over a Unix socket (unix(7)).

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Room for one file that is passed on.
const PASSED_SPACE: usize = rustix::cmsg_space!(ScmRights(1));

/// Sends a byte, and a file with it.
///
/// # Errors
/// As of a nonblocking socket.
pub(super) fn pass(to: &impl AsFd, byte: u8, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); PASSED_SPACE];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() {
        assert!(passed.push(SendAncillaryMessage::ScmRights(files)));
    }
    let bytes = [IoSlice::new(std::slice::from_ref(&byte))];
    sendmsg(to.as_fd(), &bytes, &mut passed, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Reads as a nonblocking socket does, with the file that was passed on, if any was.
///
/// # Errors
/// As of a nonblocking socket.
pub(super) fn read(of: &impl AsFd, place: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); PASSED_SPACE];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let bytes = &mut [IoSliceMut::new(place)];
    let come = recvmsg(of.as_fd(), bytes, &mut passed, RecvFlags::CMSG_CLOEXEC)?;
    let files = passed.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((come.bytes, files.last()))
}

//! Places in which large frames end. Beside the transports, which loom does not see: what has places can be compiled without them.

/// Where the last bytes of a frame are to lie.
pub struct ReadTarget {
    /// Where in the frame they begin.
    pub at: usize,
    /// Their room: as long as they are.
    pub room: Box<dyn ReadBuffer>,
}

/// Memory of an owner's, into which a part of a frame is read.
pub trait ReadBuffer: Send {
    /// To be written.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// What was written.
    fn bytes(&self) -> &[u8];
}

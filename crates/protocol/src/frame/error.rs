//! Why bytes are not a frame.

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes end before the frame does: more may come.
    #[error("the frame is not complete")]
    Truncated,
    /// Something else is at the other end of this connection.
    #[error("these bytes are not a brambling frame")]
    NotAFrame,
    /// Another build wrote it.
    #[error(
        "the frame has format {found}, and this build reads format {known}: run the same version on every node"
    )]
    Format {
        /// The format of the frame.
        found: u16,
        /// The one that this build reads.
        known: u16,
    },
    /// A checksum does not fit its bytes.
    #[error("the frame's {part} is damaged")]
    Damaged {
        /// Header or body.
        part: &'static str,
    },
    /// A number that this format does not define.
    #[error("the frame's {field} is {found}, which this format does not define")]
    Undefined {
        /// The header's field.
        field: &'static str,
        /// What it holds.
        found: u8,
    },
    /// More than any sender may put into one frame.
    #[error("the frame's body of {bytes} bytes exceeds {max_bytes}")]
    TooLarge {
        /// What the header says.
        bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// The body breaks a rule of its kind.
    #[error("the frame's body is malformed: {rule}")]
    Malformed {
        /// The rule.
        rule: &'static str,
    },
}

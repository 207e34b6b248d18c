//! Compressed files: what their bytes are once they are decompressed, as they come.
//!
//! This module owns which files count as compressed, and what is wrong with one that cannot be read to its end. Lanes and
//! the driver's reader call it. It keeps a small buffer: a small file that decompresses to a huge one costs no memory.

use flate2::write::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use std::io::Write;
use zstd::stream::raw::{self, InBuffer, Operation, OutBuffer};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coding {
    /// It is not.
    #[default]
    Plain,
    /// By gzip; several members may follow each other.
    Gz,
    /// By zstd; several frames may follow each other.
    Zst,
}

impl Coding {
    /// By the end of a file's name.
    pub fn of_name(name: &[u8]) -> Coding {
        match name {
            name if name.ends_with(b".gz") => Coding::Gz,
            name if name.ends_with(b".zst") => Coding::Zst,
            _ => Coding::Plain,
        }
    }

    /// Whether it is.
    pub fn is_compressed(self) -> bool {
        self != Coding::Plain
    }

    /// What decompresses it; nothing for what is not compressed.
    ///
    /// # Errors
    /// When the library cannot begin.
    pub fn decoder(self) -> Result<Option<Decompressor>, String> {
        Ok(match self {
            Coding::Plain => None,
            Coding::Gz => Some(Decompressor::Gz(Box::new(MultiGzDecoder::new(Vec::new())))),
            Coding::Zst => {
                let decoder = raw::Decoder::new();
                let decoder =
                    decoder.map_err(|error| format!("cannot be decompressed: {error}"))?;
                Some(Decompressor::Zst {
                    decoder: Box::new(decoder),
                    buffer: vec![0; BUFFER_BYTES],
                    is_whole: true,
                })
            }
        })
    }
}

const BUFFER_BYTES: usize = 256 << 10;
/// So many compressed bytes at a time: gzip makes at most about a thousand times as many of them.
const STEP_BYTES: usize = 4 << 10;

/// Decompresses a stream.
pub enum Decompressor {
    /// Of gzip.
    Gz(Box<MultiGzDecoder<Vec<u8>>>),
    /// Of zstd.
    Zst {
        /// The library's.
        decoder: Box<raw::Decoder<'static>>,
        /// What it writes to.
        buffer: Vec<u8>,
        /// Whether a frame may end here.
        is_whole: bool,
    },
}

impl Decompressor {
    /// Decompresses the next bytes of a file; `each` is given what they come to, until it says no.
    ///
    /// # Errors
    /// When they are not what the file's name says.
    pub fn push(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        match self {
            Decompressor::Gz(decoder) => {
                for step in bytes.chunks(STEP_BYTES) {
                    decoder.write_all(step).map_err(|it| broken("gzip", &it))?;
                    let out = decoder.get_mut();
                    if out.len() >= BUFFER_BYTES {
                        let goes_on = each(out);
                        out.clear();
                        if !goes_on {
                            return Ok(());
                        }
                    }
                }
                Ok(())
            }
            Decompressor::Zst {
                decoder,
                buffer,
                is_whole,
            } => {
                let mut input = InBuffer::around(bytes);
                loop {
                    let mut out = OutBuffer::around(&mut buffer[..]);
                    if input.pos() == bytes.len() && *is_whole {
                        return Ok(());
                    }
                    let left = decoder.run(&mut input, &mut out);
                    *is_whole = left.map_err(|it| broken("zstd", &it))? == 0;
                    let is_full = out.pos() == out.capacity();
                    let goes_on = each(out.as_slice());
                    if !goes_on || input.pos() == bytes.len() && !is_full {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The file has no more bytes.
    ///
    /// # Errors
    /// When some are missing.
    pub fn finish(&mut self, each: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), String> {
        match self {
            Decompressor::Gz(decoder) => {
                let ended = decoder.try_finish();
                let out = decoder.get_mut();
                if !out.is_empty() {
                    each(out);
                    out.clear();
                }
                ended.map_err(|it| broken("gzip", &it))
            }
            Decompressor::Zst { is_whole: true, .. } => Ok(()),
            Decompressor::Zst { .. } => Err(
                "is no whole zstd file: it ends too early; --no-decompress searches it as it is"
                    .to_owned(),
            ),
        }
    }
}

fn broken(coding: &str, why: &std::io::Error) -> String {
    format!("is no whole {coding} file: {why}; --no-decompress searches it as it is")
}

//! Bytes written by an earlier build are read by every later one of the same format, and refused by name by those of another.
//!
//! To add a file for a new kind, or all of them for a new format, run with `BRAMBLING_WRITE_GOLDEN=1`. Never change one.

mod samples;

use brambling_protocol::frame::{FORMAT, Frame, FrameError};
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}-{FORMAT}.frame"))
}

#[test]
fn golden_frames_are_read_and_written_as_ever() {
    for (name, frame) in samples::frames() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        if std::env::var_os("BRAMBLING_WRITE_GOLDEN").is_some() && !path(name).exists() {
            std::fs::write(path(name), &bytes).unwrap();
        }
        let golden = std::fs::read(path(name)).unwrap();
        let (read, used) = Frame::decode(&golden).unwrap();
        assert_eq!(used, golden.len(), "{name}");
        assert_eq!(read, frame, "{name}");
        assert_eq!(bytes, golden, "{name}");
    }
}

/// Of the format before one file is left: its fields are others.
#[test]
fn every_golden_file_is_read_or_refused_by_its_format() {
    let ours = format!("-{FORMAT}.frame");
    for file in std::fs::read_dir(path("any").parent().unwrap()).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        let used = Frame::decode(&bytes).map(|(_, used)| used);
        let found = FORMAT - 1;
        let expected = match file.to_str().unwrap().ends_with(&ours) {
            true => Ok(bytes.len()),
            false => Err(FrameError::Format {
                found,
                known: FORMAT,
            }),
        };
        assert_eq!(used, expected, "{}", file.display());
    }
}

//! Bytes written by an earlier build are read by every later one.
//!
//! To add a file for a new kind or format, run with `BRAMBLING_WRITE_GOLDEN=1`. Never change one.

mod samples;

use brambling_protocol::frame::{FORMAT, Frame};
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

#[test]
fn every_golden_file_of_every_format_is_read() {
    for file in std::fs::read_dir(path("any").parent().unwrap()).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        let used = Frame::decode(&bytes).map(|(_, used)| used);
        assert_eq!(used, Ok(bytes.len()), "{}", file.display());
    }
}

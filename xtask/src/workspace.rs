//! Where the workspace lies.

use std::path::{Path, PathBuf};

/// The repository's root: this crate's folder is one below it.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("xtask lies in the workspace's root")
        .to_path_buf()
}

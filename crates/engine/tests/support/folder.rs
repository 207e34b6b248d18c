//! A directory of a test's own, which is gone with it.

use std::fs;
use std::path::{Path, PathBuf};

pub struct Folder(PathBuf);

impl Folder {
    /// `name` is another one in each test.
    pub fn new(name: &str) -> Folder {
        let name = format!("brambling-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

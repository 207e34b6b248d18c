//! Which files a search goes through.
//!
//! This module owns paths, directories and the globs that choose among names; the order is that of the paths given, and of
//! names within directories. The driver calls it here, a stage on a worker calls it there. It opens no file.
//!
//! As GNU grep has it: hidden files count, and nothing is read from `.gitignore`. In directories only regular files are
//! searched, and links are not followed unless that is asked for; what is named itself is searched whatever it is.

use brambling_program::payload;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use walkdir::{DirEntry, WalkDir};

/// Which paths, and which of the files there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepPaths {
    /// As they were given; `-` is the standard input.
    pub paths: Vec<Vec<u8>>,
    /// Directories are gone through.
    pub recursive: bool,
    /// Links in them are followed.
    pub follow: bool,
    /// Only names that match one of these, if there are any.
    pub include: Vec<String>,
    /// No names that match one of these.
    pub exclude: Vec<String>,
    /// No directories whose names match one of these.
    pub exclude_dirs: Vec<String>,
}
payload!(GrepPaths);

/// A file to be searched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// As it is told.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Its length, unless it is read from its beginning to its end to find out: a pipe, the standard input, and files of
    /// the system's that say they are empty.
    pub bytes: Option<u64>,
    /// Whether it is a regular file.
    pub is_regular: bool,
    /// Why it cannot be searched.
    pub trouble: Option<String>,
}

/// The files of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepListing {
    /// In order.
    pub files: Vec<ListedFile>,
}
payload!(GrepListing);

/// A glob that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the glob {glob:?} cannot be used: {why}; a `*` stands for any text, and `\\` makes what follows plain"
)]
pub struct GlobError {
    /// The glob.
    pub glob: String,
    /// What is wrong with it.
    pub why: String,
}

impl ListedFile {
    /// The path, for the system.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    fn trouble(path: &[u8], why: String) -> ListedFile {
        ListedFile {
            path: path.to_vec(),
            trouble: Some(why),
            ..ListedFile::default()
        }
    }
}

/// The globs, ready.
struct Globs {
    include: Option<GlobSet>,
    exclude: GlobSet,
    exclude_dirs: GlobSet,
}

impl Globs {
    fn allow_file(&self, name: &OsStr) -> bool {
        let included = self.include.as_ref().is_none_or(|it| it.is_match(name));
        included && !self.exclude.is_match(name)
    }

    fn allow(&self, entry: &DirEntry) -> bool {
        if entry.depth() == 0 {
            return true;
        }
        match entry.file_type().is_dir() {
            true => !self.exclude_dirs.is_match(entry.file_name()),
            false => self.allow_file(entry.file_name()),
        }
    }
}

fn set(globs: &[String]) -> Result<GlobSet, GlobError> {
    let mut set = GlobSetBuilder::new();
    let of = |glob: &str, error: globset::Error| GlobError {
        glob: glob.to_owned(),
        why: error.kind().to_string(),
    };
    for glob in globs {
        let built = GlobBuilder::new(glob).backslash_escape(true).build();
        set.add(built.map_err(|error| of(glob, error))?);
    }
    set.build().map_err(|error| of(&globs.join(" "), error))
}

impl GrepPaths {
    /// Lists the files.
    ///
    /// # Errors
    /// A glob that is none. What is wrong with a path stands in the listing.
    pub fn list(&self) -> Result<GrepListing, GlobError> {
        let globs = Globs {
            include: match &self.include[..] {
                [] => None,
                globs => Some(set(globs)?),
            },
            exclude: set(&self.exclude)?,
            exclude_dirs: set(&self.exclude_dirs)?,
        };
        let mut files = Vec::new();
        for path in &self.paths {
            self.add(path, &globs, &mut files);
        }
        Ok(GrepListing { files })
    }

    fn add(&self, path: &[u8], globs: &Globs, files: &mut Vec<ListedFile>) {
        if path == b"-" {
            let path = path.to_vec();
            let file = ListedFile {
                path,
                ..ListedFile::default()
            };
            return files.push(file);
        }
        let found = Path::new(OsStr::from_bytes(path));
        let about = match found.metadata() {
            Ok(about) => about,
            Err(error) => return files.push(ListedFile::trouble(path, system(&error))),
        };
        if about.is_dir() {
            match self.recursive {
                true => self.walk(found, globs, files),
                false => files.push(ListedFile::trouble(path, "Is a directory".to_owned())),
            }
        } else if found.file_name().is_none_or(|name| globs.allow_file(name)) {
            let bytes = about.is_file().then_some(about.len());
            files.push(ListedFile {
                path: path.to_vec(),
                bytes: bytes.filter(|bytes| *bytes > 0),
                is_regular: about.is_file(),
                trouble: None,
            });
        }
    }

    fn walk(&self, root: &Path, globs: &Globs, files: &mut Vec<ListedFile>) {
        let walk = WalkDir::new(root).follow_links(self.follow);
        let walk = walk.sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| globs.allow(entry)) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let path = error.path().unwrap_or(root).as_os_str().as_bytes();
                    files.push(ListedFile::trouble(path, walk_trouble(&error)));
                    continue;
                }
            };
            if !entry.file_type().is_file() {
                continue;
            }
            let path = entry.path().as_os_str().as_bytes();
            files.push(match entry.metadata() {
                Ok(about) => ListedFile {
                    path: path.to_vec(),
                    bytes: Some(about.len()).filter(|bytes| *bytes > 0),
                    is_regular: true,
                    trouble: None,
                },
                Err(error) => ListedFile::trouble(path, walk_trouble(&error)),
            });
        }
    }
}

fn walk_trouble(error: &walkdir::Error) -> String {
    match (error.loop_ancestor(), error.io_error()) {
        (Some(_), _) => "warning: recursive directory loop".to_owned(),
        (None, Some(error)) => system(error),
        (None, None) => error.to_string(),
    }
}

/// What the system says, in its own words alone.
pub fn system(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

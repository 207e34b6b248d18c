//! Where a store is, as people write it.

use super::{DirectoryStore, PlacedStore, S3Store, StoreError};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a store is: `DIR`, or `s3://BUCKET/PREFIX`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreLocation {
    /// A directory.
    Directory(PathBuf),
    /// A part of a bucket.
    S3(S3Place),
}

/// A bucket, and how the keys in it begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Place {
    pub(super) bucket: String,
    /// Without a slash at its ends; may be empty.
    pub(super) prefix: String,
}

impl StoreLocation {
    /// From what was given.
    ///
    /// # Errors
    /// What to give instead.
    pub fn parse(text: &str) -> Result<StoreLocation, String> {
        match text.split_once("://") {
            None if text.is_empty() => Err("give a directory, or s3://BUCKET/PREFIX".into()),
            None => Ok(StoreLocation::Directory(PathBuf::from(text))),
            Some(("s3", place)) => S3Place::parse(place).map(StoreLocation::S3),
            Some((scheme, _)) => Err(format!(
                "there is no store for {scheme}://; give a directory, or s3://BUCKET/PREFIX"
            )),
        }
    }

    /// What was given, without a name and a password, which do not belong there.
    pub fn without_user(text: &str) -> String {
        match (text.split_once("://"), text.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, behind))) => format!("{scheme}://…@{behind}"),
            _ => text.to_owned(),
        }
    }

    /// Opens the store. One that lies elsewhere is tried out, once in a process.
    ///
    /// # Errors
    /// When nothing can be kept there, or it does not keep what a store promises.
    pub fn open(&self) -> Result<Arc<dyn PlacedStore>, StoreError> {
        Ok(match self {
            StoreLocation::Directory(root) => Arc::new(DirectoryStore::open(root)?),
            StoreLocation::S3(place) => Arc::new(S3Store::open(place)?),
        })
    }
}

impl S3Place {
    fn parse(text: &str) -> Result<S3Place, String> {
        let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
        let prefix = prefix.trim_end_matches('/');
        let of_bucket = |it: u8| it.is_ascii_alphanumeric() || b".-_".contains(&it);
        if bucket.is_empty() || !bucket.bytes().all(of_bucket) {
            // Whoever writes a password there does not find it in a log.
            return Err("this names no bucket; give s3://BUCKET/PREFIX".into());
        }
        let of_prefix = |it: u8| it.is_ascii_alphanumeric() || b"._-=+@".contains(&it);
        let is_part = |part: &str| {
            !part.is_empty() && !matches!(part, "." | "..") && part.bytes().all(of_prefix)
        };
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            return Err(
                "the prefix has parts of other characters than letters, digits and ._-=+@, or empty ones; give s3://BUCKET/PREFIX".into(),
            );
        }
        Ok(S3Place {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        match self.prefix.as_str() {
            "" => Ok(()),
            prefix => write!(f, "/{prefix}"),
        }
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLocation::Directory(root) => write!(f, "{}", root.display()),
            StoreLocation::S3(place) => write!(f, "{place}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StoreLocation;

    #[test]
    fn directories_and_buckets_are_told_apart() {
        for (text, shown) in [
            ("snapshots", "snapshots"),
            ("/mnt/x y", "/mnt/x y"),
            ("s3:/not", "s3:/not"),
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://my.bucket/a/B_1/", "s3://my.bucket/a/B_1"),
        ] {
            let location = StoreLocation::parse(text).unwrap();
            assert_eq!(location.to_string(), shown);
            let is_s3 = matches!(location, StoreLocation::S3(_));
            assert_eq!(is_s3, text.starts_with("s3://"), "{text}");
        }
    }

    #[test]
    fn others_are_refused_with_what_there_is() {
        for (text, why) in [
            ("", "give a directory, or s3://BUCKET/PREFIX"),
            (
                "gs://bucket/x",
                "there is no store for gs://; give a directory, or s3://",
            ),
            ("s3://", "names no bucket"),
            ("s3:///x", "names no bucket"),
            ("s3://key:secret@bucket/x", "names no bucket"),
            ("s3://bucket/a//b", "the prefix has parts"),
            ("s3://bucket/../b", "the prefix has parts"),
            ("s3://bucket/a b", "the prefix has parts"),
        ] {
            let refused = StoreLocation::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
            assert!(!refused.contains("secret"), "{refused}");
            assert!(!StoreLocation::without_user(text).contains("secret"));
        }
    }
}

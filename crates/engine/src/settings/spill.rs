//! Where pieces that find no room in memory are spilled to, as settings say it.

use super::parse_bytes;
use brambling_storage::{OpenError, SpillDirectory};
use std::fmt;
use std::path::PathBuf;

/// A directory to spill to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpillTo {
    /// The directory.
    pub directory: PathBuf,
    /// What may be spilled there; none: what its disk has.
    pub limit_bytes: Option<u64>,
}

impl SpillTo {
    /// From `DIRECTORY` or `DIRECTORY:SIZE`.
    ///
    /// # Errors
    /// What should be given instead.
    pub(super) fn parse(text: &str) -> Result<SpillTo, &'static str> {
        if text.contains(',') {
            return Err("give one directory: several are not used yet");
        }
        let (directory, limit_bytes) = match text.rsplit_once(':') {
            None => (text, None),
            Some((directory, size)) => match parse_bytes(size) {
                Some(bytes) => (directory, Some(bytes)),
                None => return Err(FORM),
            },
        };
        match directory.trim() {
            "" => Err(FORM),
            directory => Ok(SpillTo {
                directory: directory.into(),
                limit_bytes,
            }),
        }
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn open(&self) -> Result<SpillDirectory, OpenError> {
        SpillDirectory::open(&self.directory, self.limit_bytes)
    }

    /// What each of some processes has that share it.
    #[must_use]
    pub fn share(&self, of: u32) -> SpillTo {
        SpillTo {
            directory: self.directory.clone(),
            limit_bytes: self.limit_bytes.map(|bytes| bytes / u64::from(of.max(1))),
        }
    }
}

const FORM: &str =
    "give a directory, or a directory and what may be spilled there, such as /var/tmp:100GB";

/// As it is given.
impl fmt::Display for SpillTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.directory.display())?;
        match self.limit_bytes {
            Some(bytes) => write!(f, ":{bytes}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_or_without_a_size() {
        let parsed = |text| SpillTo::parse(text).map(|it| (it.directory, it.limit_bytes));
        assert_eq!(parsed("/var/tmp"), Ok(("/var/tmp".into(), None)));
        assert_eq!(parsed("/nvme:8GB"), Ok(("/nvme".into(), Some(8 << 30))));
        assert_eq!(
            parsed("spilled : 4096"),
            Ok(("spilled".into(), Some(4_096)))
        );
        for wrong in ["", ":8GB", "/nvme:", "/nvme:much", "/nvme:0"] {
            assert_eq!(parsed(wrong), Err(FORM), "{wrong:?}");
        }
        let several = SpillTo::parse("/dev/shm:8GB, /nvme:500GB");
        assert!(several.unwrap_err().contains("several"));
    }

    #[test]
    fn processes_that_share_it_divide_its_limit() {
        let whole = SpillTo::parse("/nvme:10GB").unwrap();
        assert_eq!(whole.share(4).limit_bytes, Some((10 << 30) / 4));
        assert_eq!(SpillTo::parse(&whole.to_string()), Ok(whole));
        assert_eq!(SpillTo::parse("/nvme").unwrap().share(4).limit_bytes, None);
    }
}

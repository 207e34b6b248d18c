//! Programs: what a snapshot's job runs, beside its snapshots, so that it can go on where nobody has its script.

use super::{Form, KeptError};
use serde::{Deserialize, Serialize};

const PROGRAM: Form = Form {
    name: "program",
    mark: *b"BRPG",
    version: 1,
};

/// A program, as it lies in a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptProgram {
    /// Its hash: that of the manifests beside it.
    pub hash: u128,
    /// Its name, for people.
    pub name: String,
    /// The version of the package that made it.
    pub version: String,
    /// What workers build it of.
    pub bytes: Vec<u8>,
}

impl KeptProgram {
    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        PROGRAM.write(self)
    }

    /// From what was kept.
    ///
    /// # Errors
    /// When it is none, was written by a newer version, or is damaged.
    pub fn decode(bytes: &[u8]) -> Result<KeptProgram, KeptError> {
        PROGRAM.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> KeptProgram {
        KeptProgram {
            hash: 0xfeed << 100,
            name: "demo".into(),
            version: "0.1.0".into(),
            bytes: b"BRPYdemo".to_vec(),
        }
    }

    /// Guards the form: written once by the first version, and read for ever.
    #[test]
    fn programs_of_the_first_version_are_read() {
        let golden = include_bytes!("golden/program-1");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kept/golden/program-1");
            std::fs::write(path, program().encode()).unwrap();
            return;
        }
        assert_eq!(KeptProgram::decode(golden), Ok(program()));
        assert_eq!(program().encode(), golden, "a new form is a new version");
    }

    #[test]
    fn a_program_that_has_changed_is_refused() {
        let bytes = program().encode();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(KeptProgram::decode(&other).is_err(), "byte {at}");
            assert!(KeptProgram::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}

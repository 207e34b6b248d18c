//! Why a program does not leave its process, or does not link in another.

use crate::BuildError;

/// Why a program does not leave its process, or does not link in another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The program is wrong by itself.
    #[error(transparent)]
    Build(Box<BuildError>),
    /// A function that holds more than its parameters.
    #[error(
        "{what} runs in its own process only: its function captures values, which cannot be sent; give them to the stage by with, and register \
         the program with links!"
    )]
    Captures {
        /// The stage, or the exchange.
        what: String,
    },
    /// A function that no sample has.
    #[error(
        "{what} runs in its own process only: its function has no name that other processes know; register the program that uses it with links!"
    )]
    Nameless {
        /// The stage, or the exchange.
        what: String,
    },
    /// A name that means nothing here.
    #[error(
        "this process has no {what} `{name}` of version {version}{}; install the same package, or the same version of it, wherever programs run",
        known(.versions)
    )]
    Unknown {
        /// Kernel, combiner or reader.
        what: &'static str,
        /// Its name.
        name: String,
        /// The version that is asked for.
        version: u32,
        /// Those that are here.
        versions: Vec<u32>,
    },
    /// A payload type that means nothing here.
    #[error(
        "this process has no payload type `{name}`, which {what} holds; install the same package, or the same version of it, wherever programs run"
    )]
    UnknownType {
        /// The dataset or exchange.
        what: String,
        /// The type.
        name: String,
    },
    /// Two functions of one name.
    #[error(
        "two functions are registered as `{name}` of version {version}; give one of the programs that links! registers another name"
    )]
    Twice {
        /// The name.
        name: String,
        /// Its version.
        version: u32,
    },
    /// A sample that cannot be built.
    #[error("the program `{name}`, which links! registers, cannot be built: {why}")]
    Sample {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Bytes that are no program.
    #[error("these bytes are no program: {reason}")]
    Malformed {
        /// What is wrong with them.
        reason: String,
    },
    /// Bytes of a later version.
    #[error(
        "the program is of format {found}, and this process reads up to {known}; install a newer version here"
    )]
    NewerFormat {
        /// Theirs.
        found: u16,
        /// The newest that is read here.
        known: u16,
    },
}

impl From<BuildError> for LinkError {
    fn from(error: BuildError) -> LinkError {
        LinkError::Build(Box::new(error))
    }
}

fn known(versions: &[u32]) -> String {
    match versions {
        [] => String::new(),
        versions => {
            let versions: Vec<String> = versions.iter().map(u32::to_string).collect();
            format!(", only of version {}", versions.join(", "))
        }
    }
}

//! Files that are read from their beginning to their end: pipes, the standard input, and files of the system's that do not
//! say how long they are.
//!
//! The driver calls it when such a file has its turn. It waits for whoever writes, so it is never called from a kernel.

use brambling_operators::grep::decode::Coding;
use brambling_operators::grep::lines::{LineSearch, PartFound, PartSearch};
use brambling_operators::grep::listing::{ListedFile, system};
use std::fs::File;
use std::io::{ErrorKind, Read};

/// What was found goes on its way at the latest after so many bytes.
const PIPE_BLOCK_BYTES: usize = 128 << 10;

/// Reads and searches a file; `each` takes what is found, and says whether to go on.
pub(super) fn read(
    number: u32,
    file: &ListedFile,
    with: &mut LineSearch,
    raw: bool,
    each: &mut dyn FnMut(PartFound) -> bool,
) {
    let mut search = PartSearch::new(number, 0..u64::MAX);
    if let Err(why) = push_all(&mut search, file, with, raw, each) {
        search.finish(with);
        search.give_up(why);
    }
    search.finish(with);
    each(search.take());
}

fn push_all(
    search: &mut PartSearch,
    file: &ListedFile,
    with: &mut LineSearch,
    raw: bool,
    each: &mut dyn FnMut(PartFound) -> bool,
) -> Result<(), String> {
    let mut input: Box<dyn Read> = match &file.path[..] {
        b"-" => Box::new(std::io::stdin().lock()),
        _ => Box::new(File::open(file.as_path()).map_err(|error| system(&error))?),
    };
    // A regular file without bytes is an empty one, whatever its name says.
    let coding = match raw || file.is_regular {
        true => Coding::Plain,
        false => Coding::of_name(&file.path),
    };
    let mut decoder = coding.decoder()?;
    let mut block = vec![0; PIPE_BLOCK_BYTES];
    loop {
        let bytes = match input.read(&mut block) {
            Ok(0) => break,
            Ok(bytes) => &block[..bytes],
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(system(&error)),
        };
        match &mut decoder {
            None => search.push(with, bytes),
            Some(decoder) => decoder.push(bytes, &mut |bytes| {
                search.push(with, bytes);
                !search.is_done()
            })?,
        }
        if search.is_done() || !each(search.take()) {
            return Ok(());
        }
    }
    match &mut decoder {
        None => Ok(()),
        Some(decoder) => decoder.finish(&mut |bytes| {
            search.push(with, bytes);
            !search.is_done()
        }),
    }
}

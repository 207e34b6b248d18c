//! What a search's listener hears: pieces put together, file by file.
//!
//! This module owns where files begin and end, what is summed up, and which files are left early. The driver calls it with
//! every piece, in order. It waits for nothing but files that the driver reads itself.

use super::collector::Collector;
use super::{FileStitch, Grep, GrepListener, GrepListing, GrepSummary, WantedOfLines, own};
use brambling_operators::grep::lines::{LineSearch, PartFound};

/// A file of which pieces come.
#[derive(Default)]
struct CurrentFile {
    file: u32,
    stitch: FileStitch,
    searched_bytes: u64,
    is_in_trouble: bool,
}

/// The listener's end of a search: puts pieces together, file by file.
pub(super) struct Telling<'a> {
    what: &'a Grep,
    pub(super) listing: &'a GrepListing,
    pub(super) listener: &'a mut dyn GrepListener,
    /// The file of which pieces come, and what has come.
    current: Option<CurrentFile>,
    /// The last file that was left early: what still comes of it is of no use.
    left: Option<u32>,
    summary: GrepSummary,
}

impl<'a> Telling<'a> {
    pub(super) fn new(
        what: &'a Grep,
        listing: &'a GrepListing,
        listener: &'a mut dyn GrepListener,
    ) -> Telling<'a> {
        Telling {
            what,
            listing,
            listener,
            current: None,
            left: None,
            summary: GrepSummary::default(),
        }
    }

    pub(super) fn piece(&mut self, found: &PartFound, collector: Option<&Collector>) {
        if self.left == Some(found.file) {
            return;
        }
        if self.current.as_ref().map(|it| it.file) != Some(found.file) {
            self.end_file();
            self.current = Some(CurrentFile {
                file: found.file,
                ..CurrentFile::default()
            });
            self.listener
                .begin(&self.listing.files[found.file as usize]);
        }
        let current = self.current.as_mut().expect("just made");
        let file = &self.listing.files[found.file as usize];
        current.searched_bytes += found.searched_bytes;
        let listener = &mut *self.listener;
        current.stitch.push(&self.what.query, found, &mut |line| {
            listener.line(file, line);
        });
        let is_enough = current.stitch.is_enough();
        if let Some(why) = &found.trouble {
            current.is_in_trouble = true;
            self.summary.troubles += 1;
            self.listener.trouble(file, why);
        }
        if let Some(collector) = collector
            && (is_enough || found.trouble.is_some())
        {
            collector.leave(found.file);
        }
        if is_enough && self.what.query.want == WantedOfLines::Any {
            // Told at once: the listener may want no other file.
            self.left = Some(found.file);
            self.end_file();
        }
    }

    fn end_file(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        let (found, bytes) = (&current.stitch, current.searched_bytes);
        if current.is_in_trouble && bytes == 0 {
            // Nothing is known of it.
            return;
        }
        self.summary.files += 1;
        self.summary.matched_files += u64::from(found.selected() > 0);
        self.summary.selected += found.selected();
        self.summary.searched_bytes += bytes;
        let file = &self.listing.files[current.file as usize];
        self.listener.end(file, found, bytes);
    }

    /// A file that is in trouble, or that this thread reads.
    pub(super) fn own(&mut self, file: u32) {
        let listed = &self.listing.files[file as usize];
        if let Some(why) = &listed.trouble {
            return self.trouble(file, why);
        }
        let with = LineSearch::new(&self.what.query);
        let mut with = with.expect("the patterns were checked before");
        own::read(file, listed, &mut with, self.what.query.raw, &mut |found| {
            self.piece(&found, None);
            let current = self.current.as_ref();
            self.listener.goes_on() && current.is_none_or(|it| !it.stitch.is_enough())
        });
    }

    pub(super) fn own_there(&mut self, file: u32) {
        let listed = &self.listing.files[file as usize];
        match &listed.trouble {
            Some(why) => self.trouble(file, why),
            None if listed.is_regular => self.piece(
                &PartFound {
                    file,
                    ..PartFound::default()
                },
                None,
            ),
            None => self.trouble(
                file,
                "is no regular file, and on a cluster only such are searched",
            ),
        }
    }

    fn trouble(&mut self, file: u32, why: &str) {
        self.end_file();
        self.summary.troubles += 1;
        self.listener
            .trouble(&self.listing.files[file as usize], why);
    }

    pub(super) fn finish(mut self) -> GrepSummary {
        self.end_file();
        self.summary
    }
}

//! The search's programs, registered so that workers link them. Samples never run.

use brambling_operators::grep::lane::{self, LaneParameters};
use brambling_operators::grep::listing::GrepPaths;
use brambling_operators::grep::units::LaneUnits;
use brambling_program::links;

links!("grep.list" 1, |p| {
    lane::list(p, GrepPaths::default());
});
links!("grep.search" 1, |p| {
    lane::search_kept(p, LaneParameters::default(), vec![LaneUnits::default()]);
});

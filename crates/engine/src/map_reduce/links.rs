//! The program of map-reduce, registered so that workers link it. It has no files, since samples never run.

use brambling_operators::map_reduce::MapReduceSteps;
use brambling_operators::map_reduce::text_files::TextFiles;
use brambling_program::links;

links!("map_reduce" 1, |p| {
    MapReduceSteps::default().build(p, TextFiles::default(), 1, 1);
});

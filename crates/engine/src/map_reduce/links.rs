//! The program of map-reduce, registered so that workers link it. It has no files, since samples never run.

use brambling_operators::map_reduce::MapReduceSteps;
use brambling_operators::map_reduce::text_files::TextFiles;
use brambling_operators::parts::CopyPlan;
use brambling_program::links;

links!("map_reduce" 1, |p| {
    sample(None, 0).build(p, TextFiles::default(), 1);
});
links!("map_reduce to parts" 1, |p| {
    sample(Some(Vec::new()), 0).build(p, TextFiles::default(), 1);
});
links!("map_reduce with copies" 1, |p| {
    sample(Some(Vec::new()), 1).build(p, TextFiles::default(), 1);
});

fn sample(output: Option<Vec<u8>>, copies: u32) -> MapReduceSteps {
    MapReduceSteps {
        output,
        parts: CopyPlan {
            parts: 2,
            copies,
            workers: 2,
        },
        ..MapReduceSteps::default()
    }
}

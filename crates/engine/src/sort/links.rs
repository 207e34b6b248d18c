//! The program of a sort, registered so that workers link it.

use brambling_operators::sort::job::{self, SortPlan};
use brambling_program::links;

links!("sort" 1, |p| {
    job::build(p, &sample());
});
links!("sort of own files with copies" 1, |p| {
    let plan = SortPlan {
        is_local: true,
        copies: 1,
        workers: 2,
        parts: 2,
        ..sample()
    };
    job::build(p, &plan);
});

fn sample() -> SortPlan {
    SortPlan {
        splits: 1,
        parts: 1,
        ..SortPlan::default()
    }
}

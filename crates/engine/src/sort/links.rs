//! The program of a sort, registered so that workers link it.

use brambling_operators::sort::job::{self, SortPlan};
use brambling_program::links;

links!("sort" 1, |p| {
    let plan = SortPlan {
        splits: 1,
        parts: 1,
        ..SortPlan::default()
    };
    job::build(p, &plan);
});

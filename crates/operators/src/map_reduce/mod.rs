//! Map-reduce over the text of files.

pub mod fold_table;
pub mod items;
pub mod pairs;

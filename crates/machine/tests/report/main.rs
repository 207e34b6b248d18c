//! Reports of ledgers made by hand: figures, advice, the page and the trace.

mod advice;
mod figures;
mod files;
mod made;
mod page;
mod trace;

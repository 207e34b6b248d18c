//! Means and variances of columns, as a program of one pass over the data.

use super::model::{Found, Model, refused};
use super::moments::Moments;
use super::samples::Samples;
use brambling_program::{Blocks, Dataset, KernelError, Program, Sum};

/// Finds `weight` (what the rows count together), `means` and `variances` by column.
///
/// # Movement
/// The samples never move. Three numbers for each column and block are reduced.
pub const MODEL: Model = Model {
    name: "StandardScaler",
    parameters: &[],
    build,
};

fn build(p: &mut Program, _: &[f64], samples: &Dataset<Samples>) -> Dataset<Found> {
    let block_moments = p.like::<Blocks<Moments>, _>("block moments", samples);
    let moments = p.temporary::<Moments>("moments", 1);
    let found = p.value("found", 1, Found::default());
    p.map("moments", samples)
        .named("ml.standard_scaler.moments", Vec::new())
        .into(&block_moments, Moments::of_block);
    p.reduce_blocks(Sum, &block_moments, &moments, Moments::clone_from);
    p.compute("tell")
        .read(&moments)
        .update(&found)
        .named("ml.standard_scaler.tell", Vec::new())
        .run(tell);
    found
}

fn tell(moments: &Moments, found: &mut Found) -> Result<(), KernelError> {
    let stats = moments.usable().map_err(refused)?;
    let variances = stats.squares.iter().map(|square| square / stats.weight);
    *found = Found::of([
        ("weight", vec![stats.weight]),
        ("means", stats.means.clone()),
        ("variances", variances.collect()),
    ]);
    Ok(())
}

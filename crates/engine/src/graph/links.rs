//! The analyses' programs, registered so that workers link them: a line for each. Their graphs are empty, since samples never run.

use crate::stopwatch::Stopwatch;
use brambling_operators::graph::edges::EdgeList;
use brambling_operators::graph::meeting::Real;
use brambling_operators::graph::pagerank::{PageRank, Precision};
use brambling_operators::graph::{clustering, propagation, reach};
use brambling_program::{Program, links};

links!("graph.pagerank" 1, pagerank::<f64>);
links!("graph.pagerank of singles" 1, pagerank::<f32>);
links!("graph.components" 1, |p| {
    reach::components(p, EdgeList::default(), 1);
});
links!("graph.bfs" 1, |p| {
    reach::hops(p, EdgeList::default(), 1, 0);
});
links!("graph.sssp" 1, |p| {
    reach::distances(p, EdgeList::default(), 1, 0);
});
links!("graph.label_propagation" 1, |p| {
    propagation::propagate(p, EdgeList::default(), 1, 1);
});
links!("graph.local_clustering" 1, |p| {
    clustering::coefficients(p, EdgeList::default(), 1);
});

fn pagerank<R: Real>(p: &mut Program) {
    let search = PageRank {
        damping: 0.0,
        tol: 0.0,
        max_iter: 1,
        personalization: None,
        precision: Precision::F64,
    };
    let watch = Stopwatch::start(p);
    search.build::<R>(p, EdgeList::default(), 1, &|p, of| {
        Stopwatch::look(p, &watch, of);
    });
}

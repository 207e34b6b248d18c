//! A reduction whose result shows how it was made: words in brackets.

use crate::cluster::{At, Cluster, piece};
use brambling_program::tree::{Folding, TreeNode};
use brambling_program::{Bindings, ExchangeId, PayloadType, Plan, Program, Turn, Value};
use brambling_worker::Surroundings;
use brambling_worker::node::NodeOptions;
use brambling_worker::piece_data::PieceBytes;
use std::sync::Arc;

pub const REDUCTION: ExchangeId = ExchangeId(0);

/// A partial result, and its tree node.
pub type Partial = (TreeNode, String);

/// Where there is one.
pub const BROADCAST: ExchangeId = ExchangeId(1);

/// Neither in another order nor grouped otherwise is it the same.
fn in_brackets(left: &mut String, right: &String) {
    *left = format!("({left}{right})");
}

pub fn reduction(sources: u32) -> Plan {
    let mut p = Program::new("text");
    let words = p.dataset::<String>("words", sources);
    let text = p.dataset::<String>("text", 1);
    p.repeat(5, |p| p.reduce_to(in_brackets, &words, &text));
    Plan::compile(Arc::new(p), &Bindings::default()).unwrap()
}

pub fn reduction_and_broadcast(sources: u32) -> Plan {
    let mut p = Program::new("text");
    let words = p.dataset::<String>("words", sources);
    p.repeat(5, |p| p.all_reduce(in_brackets, &words, &words));
    Plan::compile(Arc::new(p), &Bindings::default()).unwrap()
}

pub fn node(level: u8, index: u64) -> TreeNode {
    TreeNode { level, index }
}

/// What a source says at a turn.
pub fn word(source: u32, turn: Turn) -> String {
    format!("{}{turn}", char::from(b'a' + source as u8))
}

/// The encoding of a source's piece: its partial results.
pub fn encoding(source: u32, word: String) -> PieceBytes {
    let partials: Vec<Partial> = vec![(TreeNode::leaf(source.into()), word)];
    let mut bytes = Vec::new();
    Value::new(partials).encode(&mut bytes);
    bytes.into()
}

fn folded(partials: Vec<Partial>) -> String {
    let (nodes, mut words): (Vec<TreeNode>, Vec<String>) = partials.into_iter().unzip();
    let mut merge = |left: usize, right: usize| {
        let right = words[right].clone();
        in_brackets(&mut words[left], &right);
    };
    let mut folding = Folding::default();
    for (place, node) in nodes.into_iter().enumerate() {
        folding.push(node, place, &mut merge);
    }
    let place = folding.finish(&mut merge);
    place.map_or(String::new(), |place| words[place].clone())
}

/// What is to come of a turn in which these sources say their words.
pub fn expected(sources: impl IntoIterator<Item = u32>, turn: Turn) -> String {
    let leaf = |source: u32| (TreeNode::leaf(source.into()), word(source, turn));
    folded(sources.into_iter().map(leaf).collect())
}

/// A cluster that reduces: where sources are, and where the destination is.
pub fn reduces(
    workers: u32,
    sources: &[u32],
    destination: u32,
    change: impl Fn(&mut NodeOptions),
) -> Cluster {
    let plan = reduction(sources.len() as u32);
    let mut it = Cluster::new(plan, workers, change);
    it.places_all(REDUCTION, sources, &[destination]);
    it
}

/// Sources say their words at a turn.
pub fn say(it: &mut Cluster, sources: impl IntoIterator<Item = u32>, turn: Turn) {
    for source in sources {
        say_this(it, source, turn, word(source, turn));
    }
}

pub fn say_this(it: &mut Cluster, source: u32, turn: Turn, word: String) {
    let shard = it.source(REDUCTION, source);
    let pieces = [(0, piece(&encoding(source, word)))];
    let home = it.home(shard);
    home.scattered(shard, (REDUCTION, turn), pieces).unwrap();
}

/// Sources have nothing to say at a turn.
pub fn say_nothing(it: &mut Cluster, sources: impl IntoIterator<Item = u32>, turn: Turn) {
    for source in sources {
        let shard = it.source(REDUCTION, source);
        let home = it.home(shard);
        home.scattered(shard, (REDUCTION, turn), []).unwrap();
    }
}

pub fn is_complete(it: &mut Cluster, turn: Turn) -> bool {
    let shard = it.destination(REDUCTION, 0);
    let home = it.home(shard);
    home.around(shard).is_complete(REDUCTION, turn)
}

/// The destination gathers a turn: under which sources its pieces came, and what they make.
pub fn gathers(it: &mut Cluster, turn: Turn) -> (Vec<u32>, String) {
    assert!(is_complete(it, turn), "turn {turn} waits");
    let (shard, at): (_, At) = (it.destination(REDUCTION, 0), (REDUCTION, turn));
    let home = it.home(shard);
    let taken = home.take(shard, at).unwrap();
    home.gathered(shard, at).unwrap();
    let (mut sources, mut partials) = (Vec::new(), Vec::new());
    for (source, piece) in taken {
        sources.push(source);
        let bytes = piece.to_vec();
        let table = PayloadType::of::<Vec<Partial>>();
        let value = Value::decode(table, &mut &bytes[..]).unwrap();
        partials.extend(value.get::<Vec<Partial>>().unwrap().iter().cloned());
    }
    (sources, folded(partials))
}

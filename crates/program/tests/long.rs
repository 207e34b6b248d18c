//! Programs of many statements: what they grow to, what is taken back, and how deep blocks may stand.

use brambling_program::{
    Bindings, BuildError, DEPTH_MAX, Dataset, DatasetId, Op, Partitioner, Plan, Program,
    ProgramNode, Relation, Rows, Spec, StageKind, Sum, Use,
};
use proptest::prelude::*;
use std::sync::Arc;

type List = Rows<u64, u64>;

fn compiled(p: Program) -> Plan {
    Plan::compile(Arc::new(p), &Bindings::default()).expect("a valid program")
}

/// Everything that a plan holds of its groups, counted.
fn size(plan: &Plan) -> usize {
    let codes = plan.codes.iter();
    let of_code = codes.map(|code| code.ops.len() + code.tasks.len());
    of_code.sum::<usize>() + plan.groups.len()
}

fn add_one(p: &mut Program, x: &Dataset<u64>) {
    p.compute("add").update(x).run(|x: &mut u64| *x += 1);
}

/// Each dataset a group of its own.
fn alone(p: &mut Program, n: usize) -> Vec<Dataset<u64>> {
    (0..n).map(|at| p.dataset(format!("d{at}"), 1)).collect()
}

fn many_groups_and_loops(n: usize) -> Program {
    let mut p = Program::new("groups");
    for x in alone(&mut p, n) {
        p.repeat(2, |p| add_one(p, &x));
    }
    p
}

fn late_groups(n: usize) -> Program {
    let mut p = Program::new("late");
    let all = alone(&mut p, n);
    for _ in 0..n {
        p.repeat(2, |p| add_one(p, &all[0]));
    }
    all[1..].iter().for_each(|x| add_one(&mut p, x));
    p
}

fn branches_of_one_signal(n: usize) -> Program {
    let mut p = Program::new("branches");
    let x = p.dataset::<u64>("x", 1);
    let signal = p.signal("is some").read(&x).run(|x: &u64| *x > 0);
    for _ in 0..n {
        p.branch(signal, |p| add_one(p, &x), |_| ());
    }
    p
}

fn exchanges(n: usize) -> Program {
    let mut p = Program::new("exchanges");
    let (x, total) = (p.dataset::<u64>("x", 3), p.dataset::<u64>("total", 1));
    for _ in 0..n {
        p.reduce_to(Sum, &x, &total);
        p.broadcast(&total, &x);
    }
    p
}

fn shuffles(n: usize) -> Program {
    let mut p = Program::new("shuffles");
    let (a, b) = (p.dataset::<List>("a", 3), p.dataset::<List>("b", 3));
    for _ in 0..n {
        p.shuffle(&a, &b);
        p.shuffle(&b, &a);
    }
    p
}

fn loops_and_temporaries(n: usize) -> Program {
    let mut p = Program::new("temporaries");
    let mut x = p.dataset::<u64>("x", 2);
    for at in 0..n {
        let next = p.like::<u64, _>(format!("t{at}"), &x);
        p.repeat(1, |p| {
            let copy = p.compute("copy").read(&x).write(&next);
            copy.run(|x: &u64, next: &mut u64| *next = *x);
        });
        x = next;
    }
    p
}

/// A program of so many statements.
type Kind = fn(usize) -> Program;

#[test]
fn what_is_made_of_a_program_grows_with_its_statements() {
    let kinds: [(&str, Kind); 6] = [
        ("groups and loops", many_groups_and_loops),
        ("late groups", late_groups),
        ("branches", branches_of_one_signal),
        ("exchanges", exchanges),
        ("shuffles", shuffles),
        ("temporaries", loops_and_temporaries),
    ];
    for (name, kind) in kinds {
        let sizes = [250, 1_000].map(|n| {
            let p = kind(n);
            let told = p.spec().to_string().len() + p.spec().picture().len();
            (told, size(&compiled(p)))
        });
        let [(told, made), (told_of_four, made_of_four)] = sizes;
        // Numbers in names have one digit more.
        assert!(
            told_of_four < 5 * told,
            "{name}: {told} and {told_of_four} bytes"
        );
        assert!(
            made_of_four <= 4 * made + 16,
            "{name}: {made} and {made_of_four}"
        );
    }
}

/// A hundred thousand statements of each kind are built, told and compiled: what is quadratic would take minutes.
#[test]
fn a_hundred_thousand_statements_are_compiled() {
    for kind in [
        many_groups_and_loops,
        late_groups,
        branches_of_one_signal,
        exchanges,
        shuffles,
        loops_and_temporaries,
    ] {
        let p = kind(50_000);
        assert!(p.spec().to_string().lines().count() > 50_000);
        assert!(p.spec().picture().lines().count() > 50_000);
        assert!(size(&compiled(p)) > 100_000);
    }
}

#[test]
fn a_stage_of_many_datasets_and_a_group_of_more_than_16_bits_count() {
    let mut p = Program::new("wide");
    let all = alone(&mut p, 70_000);
    for pair in all.windows(2) {
        let stage = p.compute("add").read(&pair[0]).update(&pair[1]);
        stage.run(|x: &u64, y: &mut u64| *y += *x);
    }
    for x in &all {
        p.repeat(1, |p| add_one(p, x));
    }
    let plan = compiled(p);
    assert_eq!(plan.groups.len(), 1);
    let code = &plan.codes[0];
    assert_eq!(code.tasks[69_998].cells[..], [69_998, 69_999]);
    assert_eq!((code.blocks, code.counters), (70_001, 70_000));
    let last = code.tasks.last().unwrap();
    assert_eq!((last.block, &last.cells[..]), (70_000, &[69_999][..]));
}

/// A group waits for the end of the last loop before what it does next, and for none that it does not come behind.
#[test]
fn a_group_waits_once_for_the_loops_before_it() {
    let mut p = Program::new("ends");
    let all = alone(&mut p, 3);
    add_one(&mut p, &all[2]);
    for _ in 0..2 {
        p.repeat(2, |p| add_one(p, &all[0]));
    }
    p.repeat(7, |_| ());
    add_one(&mut p, &all[1]);
    p.repeat(2, |p| add_one(p, &all[1]));
    add_one(&mut p, &all[2]);
    let plan = compiled(p);
    let ends = |group: usize| -> Vec<Op> {
        let ops = plan.codes[group].ops.iter().copied();
        let is_end = |op: &Op| matches!(op, Op::Task { .. } | Op::Announce(_) | Op::AwaitEnd(_));
        ops.filter(is_end).collect()
    };
    let task = |index, block| Op::Task { index, block };
    assert_eq!(
        ends(0),
        [
            task(0, 1),
            Op::Announce(0),
            Op::AwaitEnd(0),
            task(1, 2),
            Op::Announce(1),
            Op::AwaitEnd(3)
        ]
    );
    assert_eq!(
        ends(1),
        [
            Op::AwaitEnd(1),
            task(0, 0),
            task(1, 1),
            Op::Announce(3),
            Op::AwaitEnd(3)
        ]
    );
    assert_eq!(ends(2), [task(0, 0), Op::AwaitEnd(3), task(1, 0)]);
    assert_eq!(plan.loops, 4);
}

// ---- how deep

fn nested(p: &mut Program, x: &Dataset<u64>, depth: usize) {
    for at in 0..depth {
        match at % 3 {
            0 => p.begin_repeat(1),
            1 => {
                let signal = p.signal("true").read(x).run(|_: &u64| true);
                p.begin_branch(signal);
            }
            _ => {
                let signal = p.signal("false").read(x).run(|_: &u64| false);
                let otherwise = p.begin_branch(signal);
                p.end();
                p.reopen(otherwise);
            }
        }
    }
    add_one(p, x);
    (0..depth).for_each(|_| p.end());
}

#[test]
fn blocks_stand_as_deep_in_each_other_as_the_limit_says() {
    for depth in [DEPTH_MAX - 1, DEPTH_MAX] {
        let mut p = Program::new("deep");
        let x = p.dataset::<u64>("x", 1);
        nested(&mut p, &x, depth);
        assert!(p.spec().picture().contains("add"));
        assert_eq!(Spec::decode(&p.spec().encode()).as_ref(), Ok(p.spec()));
        assert_eq!(compiled(p).groups.len(), 1);
    }
    for depth in [DEPTH_MAX + 1, 30_000] {
        let mut p = Program::new("deeper");
        let x = p.dataset::<u64>("x", 1);
        nested(&mut p, &x, depth);
        let error = p.validate().expect_err("too deep");
        assert_eq!(
            error,
            BuildError::TooDeep {
                depth: DEPTH_MAX + 1
            }
        );
        let text = error.to_string();
        assert!(
            text.contains("101") && text.contains("100") && text.contains("kernels"),
            "{text}"
        );
        // Whatever walks it does not walk deeper.
        assert!(p.spec().picture().len() + p.spec().to_string().len() > 0);
    }
}

#[test]
fn bytes_of_a_deeper_program_are_refused() {
    let mut p = Program::new("deep");
    let x = p.dataset::<u64>("x", 1);
    nested(&mut p, &x, DEPTH_MAX);
    let mut spec = p.spec().clone();
    let inner = spec.blocks.len();
    spec.blocks.push(Vec::new());
    // The deepest block is the one in which the addition stands.
    let stage = spec.stages.iter().find(|stage| stage.name == "add");
    let deepest = stage.unwrap().block;
    spec.blocks[deepest.index()].push(ProgramNode::Repeat {
        turns: 1,
        body: brambling_program::BlockId(inner as u32),
    });
    let error = Spec::decode(&spec.encode()).unwrap_err().to_string();
    assert!(error.contains("deeper in each other than 100"), "{error}");
}

// ---- what is taken back

/// A statement, from numbers that say which.
#[derive(Clone, Copy, Debug)]
struct Statement {
    kind: u8,
    a: usize,
    b: usize,
}

struct Building {
    p: Program,
    numbers: Vec<Dataset<u64>>,
    lists: Vec<Dataset<List>>,
    signals: Vec<brambling_program::Signal>,
    /// Loops and branches that are open.
    open: usize,
}

impl Building {
    fn new() -> Building {
        let mut p = Program::new("growing");
        let numbers = [1, 1, 3, 3].map(|count| p.dataset(format!("n{count}"), count));
        let lists = [2, 2, 3].map(|count| p.temporary(format!("l{count}"), count));
        Building {
            p,
            numbers: numbers.into(),
            lists: lists.into(),
            signals: Vec::new(),
            open: 0,
        }
    }

    fn add(&mut self, Statement { kind, a, b }: Statement) {
        let p = &mut self.p;
        let (x, y) = (
            self.numbers[a % self.numbers.len()],
            self.numbers[b % self.numbers.len()],
        );
        let (from, to) = (
            self.lists[a % self.lists.len()],
            self.lists[b % self.lists.len()],
        );
        match kind {
            0 | 1 => {
                let stage = p.compute("add").read(&x).update(&y);
                stage.run(|x: &u64, y: &mut u64| *y += *x);
            }
            2 => p.reduce_to(Sum, &x, &y),
            3 => p.broadcast(&x, &y),
            4 | 5 => p.shuffle(&from, &to),
            6 => {
                let fill = p.compute("fill").write(&to);
                fill.run(|rows: &mut List| rows.clear());
            }
            7 => self
                .signals
                .push(p.signal("is some").read(&x).run(|x: &u64| *x > 0)),
            8 => {
                p.begin_repeat(b as u64);
                self.open += 1;
            }
            9 => {
                if let Some(signal) = self.signals.get(a) {
                    p.begin_branch(*signal);
                    self.open += 1;
                }
            }
            10 => self.numbers.push(p.dataset("more", (b % 3) as u32)),
            11 => {
                let source = |_, _| List::new();
                self.lists
                    .push(p.load("loaded", 2, Partitioner::Blocks, source));
            }
            _ => self.lists.push(p.temporary("rows", 2)),
        }
    }

    fn end(&mut self) {
        self.p.end();
        self.open -= 1;
    }

    /// Forgets handles beyond so many.
    fn forget(&mut self, [numbers, lists, signals, open]: [usize; 4]) {
        self.numbers.truncate(numbers);
        self.lists.truncate(lists);
        self.signals.truncate(signals);
        self.open = open;
    }

    fn counts(&self) -> [usize; 4] {
        let Building {
            numbers,
            lists,
            signals,
            open,
            ..
        } = self;
        [numbers.len(), lists.len(), signals.len(), *open]
    }
}

/// Which relation a shuffle has that does not move rows which lie by key already: said of the whole program.
fn relation_of(spec: &Spec, from: DatasetId, to: DatasetId) -> Relation {
    let is_shuffle = |name: &str| name.starts_with("shuffle ");
    let writes = |uses: &[(DatasetId, Use)]| {
        let mut writes = uses.iter();
        writes.any(|&(it, how)| it == from && how != Use::Read)
    };
    let mut writers = spec.stages.iter().filter(|stage| writes(&stage.uses));
    let by_shuffles = writers.all(|stage| match stage.kind {
        StageKind::Gather(id) => is_shuffle(&spec.exchanges[id.index()].name),
        _ => false,
    });
    let [read, written] = [from, to].map(|it| &spec.datasets[it.index()]);
    match by_shuffles && !read.loaded && read.count == written.count {
        true => Relation::Offsets {
            offsets: vec![0],
            wrap: false,
        },
        false => Relation::AllToAll,
    }
}

fn shuffles_are_as_they_should_be(spec: &Spec) {
    for stage in &spec.stages {
        let StageKind::Scatter(id) = stage.kind else {
            continue;
        };
        let exchange = &spec.exchanges[id.index()];
        if !exchange.name.starts_with("shuffle ") {
            continue;
        }
        let gather = spec
            .stages
            .iter()
            .find(|it| it.kind == StageKind::Gather(id));
        let to = gather.expect("a shuffle has both ends").uses[0].0;
        assert_eq!(exchange.relation, relation_of(spec, stage.uses[0].0, to));
    }
}

proptest! {
    /// Statement by statement, what is wrong is found at once and taken back: what is left is the program of the others alone, and right as
    /// a whole.
    #[test]
    fn a_program_is_what_its_good_statements_make(
        statements in prop::collection::vec((0u8..14, 0usize..9, 0usize..9), 0..120),
    ) {
        let mut growing = Building::new();
        let mut good = Building::new();
        let mut refused = 0;
        for (kind, a, b) in statements {
            let statement = Statement { kind, a, b };
            if kind == 13 {
                if growing.open > 0 {
                    growing.end();
                    good.end();
                }
                continue;
            }
            let (mark, counts) = (growing.p.mark(), growing.counts());
            growing.add(statement);
            // As a whole: what is open is closed in a copy.
            let mut whole = growing.p.clone();
            (0..growing.open).for_each(|_| whole.end());
            let checked = growing.p.check_since(&mark);
            prop_assert_eq!(&checked, &whole.validate(), "{:?}", statement);
            if checked.is_err() {
                refused += 1;
                growing.p.take_back(&mark);
                growing.forget(counts);
            } else {
                good.add(statement);
            }
            prop_assert_eq!(growing.p.spec(), good.p.spec());
            shuffles_are_as_they_should_be(growing.p.spec());
        }
        prop_assert!(growing.p.validate().is_ok(), "{} were refused", refused);
    }
}

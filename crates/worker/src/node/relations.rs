//! Who sends to whom in a program's exchanges, as inboxes ask it.

use super::NodeError;
use brambling_exchange::{CombiningOptions, CombiningTree, SourceRelation, Sources};
use brambling_program::{ExchangeId, GroupId, Links, Plan, Relation as Declared, ShardId, Turn};

/// The ends of one exchange.
struct Ends {
    links: Links,
    source: GroupId,
    destination: GroupId,
    /// Where pieces are merged on their way.
    tree: Option<CombiningTree>,
}

/// All exchanges of a program; none for one that no stage uses.
pub struct Relations {
    all: Vec<Option<Ends>>,
    /// By group: shards ask when they come and go, and a program may have many exchanges.
    of_groups: Vec<OfGroup>,
}

/// The exchanges of a group.
#[derive(Clone, Default)]
struct OfGroup {
    /// That lead to it.
    arriving: Vec<ExchangeId>,
    /// Whose pieces its shards merge on their way.
    merged: Vec<ExchangeId>,
    /// In which its first shard alone sends.
    from_one: Vec<ExchangeId>,
}

impl Relations {
    /// Those of a program, merged on their way where `combining` says so.
    pub fn new(plan: &Plan, combining: CombiningOptions) -> Relations {
        let declared = plan.program.spec().exchanges.iter();
        let ends = declared.zip(&plan.exchanges).zip(0..);
        let ends = ends.map(|((declared, exchange), id)| {
            let exchange = exchange.as_ref()?;
            let links = exchange.links.clone();
            let may_combine = plan.program.combiner(ExchangeId(id)).is_some();
            let is_to_one = matches!(declared.relation, Declared::AllToOne);
            let tree = combining.tree(links.source_count());
            Some(Ends {
                links,
                source: exchange.source,
                destination: exchange.destination,
                tree: tree.filter(|_| may_combine && is_to_one),
            })
        });
        let all: Vec<Option<Ends>> = ends.collect();
        let mut of_groups = vec![OfGroup::default(); plan.groups.len()];
        for (ends, id) in all.iter().zip(0..) {
            let Some(ends) = ends else { continue };
            let id = ExchangeId(id);
            of_groups[ends.destination.index()].arriving.push(id);
            let source = &mut of_groups[ends.source.index()];
            if ends.tree.is_some() {
                source.merged.push(id);
            }
            if ends.links.is_dense() && ends.links.source_count() == 1 {
                source.from_one.push(id);
            }
        }
        Relations { all, of_groups }
    }

    fn ends(&self, exchange: ExchangeId) -> &Ends {
        let ends = self.all.get(exchange.index()).and_then(Option::as_ref);
        ends.expect("an exchange of this program")
    }

    /// The exchanges with their numbers of destinations.
    pub(crate) fn destinations(&self) -> Vec<(ExchangeId, u32)> {
        let each = self.all.iter().zip(0..);
        each.filter_map(|(ends, id)| {
            Some((ExchangeId(id), ends.as_ref()?.links.destination_count()))
        })
        .collect()
    }

    /// The exchanges that lead to a group.
    pub fn to_group(&self, group: GroupId) -> &[ExchangeId] {
        &self.of_groups[group.index()].arriving
    }

    /// Whether an exchange is one of the program's, and leads to a group.
    pub(crate) fn leads_to(&self, exchange: ExchangeId, group: GroupId) -> bool {
        let ends = self.all.get(exchange.index()).and_then(Option::as_ref);
        ends.is_some_and(|ends| ends.destination == group)
    }

    /// # Errors
    /// What an exchange is asked by its name takes it for one of the program's: when it is none that leads to this group.
    pub(crate) fn expect(&self, exchange: ExchangeId, group: GroupId) -> Result<(), NodeError> {
        match self.leads_to(exchange, group) {
            true => Ok(()),
            false => Err(NodeError::UnknownExchange { exchange, group }),
        }
    }

    /// Whether it leads through a group, whose shards merge pieces on their way.
    pub(crate) fn leads_through(&self, exchange: ExchangeId, group: GroupId) -> bool {
        let ends = self.all.get(exchange.index()).and_then(Option::as_ref);
        ends.is_some_and(|ends| ends.tree.is_some() && ends.source == group)
    }

    /// The exchanges whose pieces shards of a group merge on their way.
    pub(crate) fn merged_by(&self, group: GroupId) -> &[ExchangeId] {
        &self.of_groups[group.index()].merged
    }

    /// Where pieces of an exchange are merged on their way, and the group whose shards do it.
    pub fn combining(&self, exchange: ExchangeId) -> Option<(CombiningTree, GroupId)> {
        let ends = self.ends(exchange);
        ends.tree.map(|tree| (tree, ends.source))
    }

    /// The group that receives.
    pub fn destination_group(&self, exchange: ExchangeId) -> GroupId {
        self.ends(exchange).destination
    }

    /// The shard that alone sends, as in a broadcast.
    pub(crate) fn only_source(&self, exchange: ExchangeId) -> Option<ShardId> {
        let ends = self.ends(exchange);
        let group = ends.source;
        let is_alone = self.is_dense(exchange) && ends.links.source_count() == 1;
        is_alone.then_some(ShardId { group, index: 0 })
    }

    /// The exchanges in which a shard alone sends.
    pub(crate) fn with_only_source(&self, shard: ShardId) -> Vec<ExchangeId> {
        match shard.index {
            0 => self.of_groups[shard.group.index()].from_one.clone(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn is_dense(&self, exchange: ExchangeId) -> bool {
        self.ends(exchange).links.is_dense()
    }

    /// The destinations of a source at a turn, ascending.
    pub fn related(
        &self,
        exchange: ExchangeId,
        turn: Turn,
        source: u32,
    ) -> impl Iterator<Item = u32> + '_ {
        let links = &self.ends(exchange).links;
        (0..links.fan_out(turn, source)).map(move |place| links.destination(turn, source, place).0)
    }
}

impl SourceRelation for Relations {
    fn sources(&self, exchange: ExchangeId, turn: Turn, destination: ShardId) -> Sources<'_> {
        sources(&self.ends(exchange).links, turn, destination)
    }
}

/// The sources of a destination at a turn, by the program alone.
pub(crate) fn sources(links: &Links, turn: Turn, destination: ShardId) -> Sources<'_> {
    match links.at(turn).sources(destination.index) {
        None => Sources::Dense(links.source_count().into()),
        Some(list) => Sources::Sparse(list),
    }
}

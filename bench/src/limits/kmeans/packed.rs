//! Centres in the order in which a loop reads them.

use super::{Centre, FEATURES};

/// A row's score for a centre is half the centre's square less the product of both: it differs from half
/// the squared distance by what all centres have in common.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// Centres of a group, whose scores stay in registers while a row's values pass by.
    pub(super) group: usize,
    /// As they were given.
    pub(super) centres: Vec<Centre>,
    /// Negated values by group, feature and place within the group; zeros where the last group is not full.
    pub(super) negated: Vec<f64>,
    /// Half of each centre's square; infinite where there is no centre.
    pub(super) halves: Vec<f64>,
}

impl Packed {
    /// In groups that leave the fewest places empty; of equal ones the first.
    pub(super) fn new(groups: &[usize], centres: &[Centre]) -> Packed {
        assert!(!centres.is_empty(), "no centre");
        let places = |group: &usize| centres.len().next_multiple_of(*group);
        let group = groups.iter().copied().min_by_key(places);
        let group = group.expect("a loop has a group");
        let places = places(&group);
        let mut packed = Packed {
            group,
            centres: centres.to_vec(),
            negated: vec![0.0; places * FEATURES],
            halves: vec![f64::INFINITY; places],
        };
        for (index, centre) in centres.iter().enumerate() {
            let first = index / group * group * FEATURES + index % group;
            for (feature, value) in centre.iter().enumerate() {
                packed.negated[first + feature * group] = -value;
            }
            packed.halves[index] = half_square(centre);
        }
        packed
    }

    /// The groups with their halves.
    #[inline(always)]
    pub(super) fn groups<const GROUP: usize>(
        &self,
    ) -> impl Iterator<Item = (&[[f64; GROUP]; FEATURES], &[f64; GROUP])> {
        debug_assert_eq!(self.group, GROUP);
        let (rows, _) = self.negated.as_chunks::<GROUP>();
        let (groups, _) = rows.as_chunks::<FEATURES>();
        let (halves, _) = self.halves.as_chunks::<GROUP>();
        groups.iter().zip(halves)
    }
}

pub(super) fn half_square(centre: &Centre) -> f64 {
    0.5 * centre.iter().map(|value| value * value).sum::<f64>()
}

//! Numbers of sub-coflows: how the nodes of a job's graph are told apart (Stream, Algorithm 1).

/// The number of a sub-coflow whose parents offer these: each parent its own and 1 more. Parents that
/// offer the same make room for each other.
///
/// # Panics
/// Without parents: the first sub-coflows of a job get their numbers from whoever starts it.
///
/// # Examples
/// ```
/// use brambling_exchange::coflow::sub_coflow_id;
///
/// assert_eq!(sub_coflow_id(&[2]), 2);
/// // Two parents numbered 2: the sub-coflow C 8,4 of the paper's Figure 4.
/// assert_eq!(sub_coflow_id(&[3, 3]), 4);
/// assert_eq!(sub_coflow_id(&[3, 5]), 5);
/// ```
pub fn sub_coflow_id(offered: &[u32]) -> u32 {
    let most = *offered.iter().max().expect("a child has a parent");
    match offered.iter().all(|it| *it == most) {
        true => most + offered.len() as u32 - 1,
        false => most,
    }
}

//! What kernels have loaded on workers: packages that differ between two of them may compute other bits, and nobody could tell which are right.

use crate::cluster::{ClusterError, PackagesDiffer};
use brambling_protocol::WorkerId;
use std::collections::BTreeMap;

/// What was said of each package, and who said so first.
#[derive(Default)]
pub(super) struct Packages(BTreeMap<String, (WorkerId, String)>);

impl Packages {
    /// A worker says what it has loaded. A later word of the same worker counts instead of its earlier one: what was missing may be there now.
    ///
    /// # Errors
    /// The first that is another one somewhere else.
    pub(super) fn compare(
        &mut self,
        worker: WorkerId,
        packages: &[(&str, &str)],
    ) -> Result<(), ClusterError> {
        for &(package, version) in packages {
            match self.0.get_mut(package) {
                Some((first, known)) if *first == worker => *known = version.to_owned(),
                Some((first, known)) if known != version => {
                    return Err(ClusterError::PackagesDiffer(Box::new(PackagesDiffer {
                        package: package.to_owned(),
                        worker: *first,
                        version: known.clone(),
                        other: worker,
                        other_version: version.to_owned(),
                    })));
                }
                Some(_) => {}
                None => {
                    let said = (worker, version.to_owned());
                    self.0.insert(package.to_owned(), said);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two workers said in turn, and what came of it.
    fn check(said: &[(u32, &[(&str, &str)])], differs: Option<&str>) {
        let mut packages = Packages::default();
        let mut compared = said
            .iter()
            .map(|(worker, it)| packages.compare(WorkerId(*worker), it));
        let first = compared
            .find_map(Result::err)
            .map(|error| error.to_string());
        let told = first
            .as_deref()
            .and_then(|text| text.split_once(';'))
            .map(|(text, _)| text);
        assert_eq!(told, differs);
    }

    #[test]
    fn what_differs_is_told_with_both() {
        check(
            &[
                (1, &[("a", "1"), ("b", "2")]),
                (2, &[("b", "2"), ("c", "3")]),
            ],
            None,
        );
        check(
            &[
                (1, &[("a", "1")]),
                (2, &[("a", "1")]),
                (3, &[("b", "1"), ("a", "2")]),
            ],
            Some("the workers have loaded different packages: `a` 1 on w1, and `a` 2 on w3"),
        );
    }

    #[test]
    fn who_says_more_later_does_not_differ_from_itself() {
        check(
            &[
                (1, &[("a", "not installed")]),
                (1, &[("a", "1")]),
                (2, &[("a", "1")]),
            ],
            None,
        );
    }
}

//! What a program's partition counts are bound to.

use crate::{BuildError, Count, Spec};

/// Values of the program's symbols.
#[derive(Clone, Debug, Default)]
pub struct Bindings(Vec<(String, u32)>);

impl Bindings {
    /// The same with one more symbol bound.
    #[must_use]
    pub fn bind(mut self, symbol: impl Into<String>, count: u32) -> Self {
        self.0.push((symbol.into(), count));
        self
    }

    pub(super) fn value(
        &self,
        spec: &Spec,
        dataset: &str,
        count: Count,
    ) -> Result<u32, BuildError> {
        let bound = match count {
            Count::Fixed(count) => count,
            Count::Symbol(symbol) => {
                let symbol = &spec.symbols[symbol as usize];
                // The last binding of a symbol counts, so a caller can replace one.
                let found = self.0.iter().rev().find(|(name, _)| name == symbol);
                found
                    .ok_or_else(|| BuildError::Unbound {
                        symbol: symbol.clone(),
                    })?
                    .1
            }
        };
        if bound == 0 {
            Err(BuildError::ZeroPartitions {
                dataset: dataset.to_owned(),
            })
        } else {
            Ok(bound)
        }
    }
}

//! Boundaries between classes, each so many times the one before.

/// Where classes end, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    boundaries: Vec<f64>,
}

impl Thresholds {
    /// Of so many classes: the first ends at `first` bytes, each next one at `factor` times as many.
    pub fn new(classes: u8, first: f64, factor: f64) -> Thresholds {
        // math: a power by whole numbers; where a class ends decides nobody's result.
        let boundary = |place: i32| first * factor.powi(place);
        Thresholds {
            boundaries: (0..i32::from(classes) - 1).map(boundary).collect(),
        }
    }

    /// Where a class ends; nothing for the last one.
    pub fn end_of(&self, class: u8) -> Option<f64> {
        self.boundaries.get(usize::from(class)).copied()
    }

    /// The class of so many bytes, with each boundary as many times as far as `stretch` says. What lies on a boundary
    /// is beyond it.
    pub fn class_of(&self, bytes: f64, stretch: f64) -> u8 {
        let passed = self.boundaries.iter().filter(|it| bytes >= **it * stretch);
        passed.count() as u8
    }
}

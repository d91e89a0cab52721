//! Sets of classes: which of them fit a card or a node is asked far more often than anything else.

use std::iter;

/// A bit a class.
pub(super) type Classes = u128;

/// Classes by the amount of something that they need.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// Each amount that one of them needs, in order, with all classes that need no more.
    steps: Vec<(u32, Classes)>,
}

// === impl Steps ===

impl Steps {
    /// Steps of all classes, one after the other, each with the amount that it needs; those without one are never met.
    pub(super) fn new(needs: impl Iterator<Item = Option<u32>>) -> Self {
        let mut steps: Vec<(u32, Classes)> =
            needs.enumerate().filter_map(|(class, need)| Some((need?, 1 << class))).collect();
        steps.sort_unstable();
        let mut met = 0;
        for (_, classes) in &mut steps {
            met |= *classes;
            *classes = met;
        }
        Self { steps }
    }

    /// The classes for which an amount will do.
    #[inline]
    pub(super) fn met_by(&self, amount: u32) -> Classes {
        match self.steps.partition_point(|(need, _)| *need <= amount) {
            0 => 0,
            above => self.steps[above - 1].1,
        }
    }
}

/// The positions of the classes of a set, in order.
#[inline]
pub(super) fn each(mut classes: Classes) -> impl Iterator<Item = usize> {
    iter::from_fn(move || {
        let first = (classes != 0).then(|| classes.trailing_zeros() as usize)?;
        classes &= classes - 1;
        Some(first)
    })
}

/// Whether a class is one of a set.
#[inline]
pub(super) fn has(classes: Classes, class: usize) -> bool {
    classes >> class & 1 == 1
}

//! What a container requests, once its words are read.

use divvy_api::ResourceNames;

use crate::pod::Amounts;

/// Part of each of so many GPUs; neither memory nor cores: whole ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) cards: u64,
    pub(crate) memory: Option<Size>,
    /// Percent of the compute of each, 0 to 100.
    pub(crate) cores: u64,
}

/// Memory of each GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Mib(u64),
    Percent(u64),
}

// === impl Part ===

impl Part {
    /// So many whole GPUs.
    pub(crate) fn whole(cards: u64) -> Self {
        Self { cards, memory: None, cores: 0 }
    }

    /// Whether no other container uses its GPUs.
    pub(crate) fn is_alone(self) -> bool {
        self.cores == 100 || (self.memory.is_none() && self.cores == 0)
    }

    /// Limits of a container, per GPU, under these names.
    pub(crate) fn limits(self, names: &ResourceNames) -> Amounts {
        let unit = names.memory_unit.as_mib().max(1);
        let memory = self.memory.map(|memory| match memory {
            Size::Mib(mib) => (&names.memory, mib.div_ceil(unit)),
            Size::Percent(percent) => (&names.memory_percentage, percent),
        });
        let cores = (self.cores > 0).then_some((&names.cores, self.cores));
        let amounts = [Some((&names.count, self.cards)), memory, cores].into_iter().flatten();
        amounts.map(|(name, amount)| (name.to_string(), amount.to_string())).collect()
    }
}

//! Outlook of one node. The loss by a pod is found by a look at the cards that it takes.

use divvy_api::Share;
use smallvec::SmallVec;

use super::classes::{Classes, each, has};
use super::{Class, Forecast, MOST_SEVERAL, NEARLY};
use crate::nodes::free_capacity::FreeCapacity;

/// Use of a node's free capacity to the expected requests.
#[derive(Clone, Debug, Default)]
pub struct NodeForecast {
    free_capacity: FreeCapacity,
    /// Free capacity of all cards, in thousandths of cards.
    size: u32,
    /// Free capacity of use to the expected requests, in thousandths of cards: the mean over the common classes.
    pub usable: f64,
    /// Requests of each kind of several cards that the node could take, with a part of one where cards are missing.
    pub multi_gpu_slots: [f64; MOST_SEVERAL],
    classes: Box<[ClassFit]>,
    /// By card, the classes that fit it.
    fitting: Box<[Classes]>,
}

/// Loss of a node's outlook to a pod, and what is left over.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    /// In thousandths of cards.
    pub usable: f64,
    /// By kind of several cards.
    pub multi_gpu_slots: [f64; MOST_SEVERAL],
    /// Free capacity of the cards beside the pod, in thousandths.
    pub cards_left: u32,
    /// Thousandths of CPU cores; `None` if that isn't known.
    pub cpu_left: Option<u32>,
    /// Capacity that the pod takes, in thousandths of cards, and the number of the hardware; of all cards that of the first.
    pub taken: (u16, u32),
}

/// A class on the node.
#[derive(Clone, Copy, Debug, Default)]
struct ClassFit {
    /// Free capacity of the cards that it fits.
    size: u32,
    /// Number of these cards.
    fitting: u32,
}

/// A card that a pod takes something of.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    size_before: u32,
    size_after: u32,
    /// Classes that fitted before.
    fitted: Classes,
    /// Classes that fitted before and fit still.
    fits: Classes,
}

// === impl Forecast ===

impl Forecast {
    /// Works out the outlook of a node with this free capacity.
    pub fn node_forecast(&self, free_capacity: FreeCapacity) -> NodeForecast {
        let fitting: Box<[Classes]> = free_capacity.cards.iter().map(|left| self.fitting(*left)).collect();
        let mut classes = vec![ClassFit::default(); self.classes.len()];
        let mut able = vec![0; self.classes.len()];
        for (left, fitting) in free_capacity.cards.iter().zip(&fitting) {
            for class in each(*fitting) {
                classes[class].size += left.size;
                classes[class].fitting += 1;
            }
            each(self.able(*left)).for_each(|class| able[class] += 1);
        }
        let with_cpu = self.with_cpu(free_capacity.cpu_milli);
        let usable = |(class, part): (usize, &f64)| part * f64::from(self.usable_to(class, classes[class], with_cpu));
        let usable = self.parts.iter().enumerate().map(usable).sum();
        let mut multi_gpu_slots = [0.0; MOST_SEVERAL];
        for (slots, several) in multi_gpu_slots.iter_mut().zip(&self.several) {
            if able[several.class] >= self.classes[several.class].cards {
                *slots = self.slots_for(several.class, classes[several.class], free_capacity.cpu_milli);
            }
        }
        NodeForecast {
            size: free_capacity.size(),
            free_capacity,
            usable,
            multi_gpu_slots,
            classes: classes.into(),
            fitting,
        }
    }

    /// Works out the loss if a pod takes so much CPU and these shares, of one card each.
    pub fn loss(&self, node: &NodeForecast, cpu_milli: u32, takes: &[(usize, Share)]) -> Loss {
        let cpu = node.free_capacity.cpu_milli;
        let cpu_left = cpu.map(|free| free.saturating_sub(cpu_milli));
        let changes: SmallVec<[Change; 1]> = takes.iter().filter_map(|take| self.change(node, take)).collect();
        let mut loss = Loss { cards_left: node.size, cpu_left, ..Loss::default() };
        let with_cpu = self.with_cpu(cpu);
        let with_cpu_left = self.with_cpu(cpu_left);
        let mut touched = with_cpu & !with_cpu_left;
        let hardware =
            takes.first().and_then(|(card, _)| node.free_capacity.cards.get(*card)).map(|left| left.hardware);
        loss.taken = (hardware.unwrap_or(0), changes.iter().map(|change| change.size_before - change.size_after).sum());
        for change in &changes {
            loss.cards_left -= change.size_before - change.size_after;
            touched |= change.fitted;
        }
        for class in each(touched).take_while(|class| *class < self.parts.len()) {
            let before = self.usable_to(class, node.classes[class], with_cpu);
            let after = self.usable_to(class, node.classes[class].after(class, &changes), with_cpu_left);
            loss.usable += self.parts[class] * f64::from(before - after);
        }
        for ((lost, several), before) in loss.multi_gpu_slots.iter_mut().zip(&self.several).zip(&node.multi_gpu_slots) {
            let class = several.class;
            let enough = before.max(1.0) * f64::from(self.classes[class].cpu_milli);
            let lacks_cpu = cpu_left.is_some_and(|left| f64::from(left) < enough);
            if *before > 0.0 && (lacks_cpu || has(touched, class)) {
                *lost = before - self.slots_for(class, node.classes[class].after(class, &changes), cpu_left);
            }
        }
        loss
    }

    fn change(&self, node: &NodeForecast, take: &(usize, Share)) -> Option<Change> {
        let (card, before, after) = node.free_capacity.change(take)?;
        let fitted = node.fitting[card];
        Some(Change { size_before: before.size, size_after: after.size, fitted, fits: fitted & self.fitting(after) })
    }

    #[inline]
    fn usable_to(&self, class: usize, here: ClassFit, with_cpu: Classes) -> u32 {
        let fits = here.fitting >= self.classes[class].cards && has(with_cpu, class);
        if fits { here.size } else { 0 }
    }

    /// Slots for a class on a node that has cards enough.
    fn slots_for(&self, class: usize, here: ClassFit, cpu: Option<u32>) -> f64 {
        let Class { cards, cpu_milli } = self.classes[class];
        if cpu.is_some_and(|free| free < cpu_milli) {
            return 0.0;
        }
        let by_cpu = cpu.and_then(|free| free.checked_div(cpu_milli)).unwrap_or(u32::MAX);
        match (here.fitting / cards).min(by_cpu) {
            0 => NEARLY.powi((cards - here.fitting).cast_signed()),
            slots => f64::from(slots),
        }
    }
}

// === impl NodeForecast ===

impl NodeForecast {
    /// Free capacity of each card, in thousandths of one, with the number of its hardware.
    pub fn free_by_hardware(&self) -> impl Iterator<Item = (u16, u32)> {
        self.free_capacity.cards.iter().map(|left| (left.hardware, left.size))
    }
}

// === impl ClassFit ===

impl ClassFit {
    /// The class once cards have changed, of which less is left: what didn't fit fits no better now.
    #[inline]
    fn after(mut self, class: usize, changes: &[Change]) -> Self {
        for change in changes.iter().filter(|change| has(change.fitted, class)) {
            if has(change.fits, class) {
                self.size -= change.size_before - change.size_after;
            } else {
                self.size -= change.size_before;
                self.fitting -= 1;
            }
        }
        self
    }
}

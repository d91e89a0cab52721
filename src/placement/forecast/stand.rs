//! A node as a forecast sees it. What a pod spoils there is found by a look at the cards that it takes.

use divvy_contract::Share;

use super::{Class, Forecast, MOST_SEVERAL, NEARLY, Part};
use crate::remains::{Left, Remains};

/// What a node is worth to the requests that are expected.
#[derive(Clone, Debug, Default)]
pub struct Stand {
    remains: Remains,
    /// What is free of the node and of use to the mix, in thousandths of cards: the mean over the common classes.
    pub usable: f64,
    /// How many requests of each kind of several cards it could take, with a part of one where cards are missing.
    pub hosts: [f64; MOST_SEVERAL],
    classes: Box<[Here]>,
}

/// What is lost of that to a pod, and what is left over.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    /// In thousandths of cards.
    pub usable: f64,
    /// By kind of several cards.
    pub hosts: [f64; MOST_SEVERAL],
    /// What of the cards is left over, in thousandths.
    pub cards_left: u32,
    /// Thousandths of CPU cores; `None` if that isn't known.
    pub cpu_left: Option<u32>,
}

/// A class on the node.
#[derive(Clone, Copy, Debug, Default)]
struct Here {
    /// What is free of the cards that it fits.
    size: u32,
    /// How many these are.
    fitting: u32,
    /// Which ones, a bit each. Cards beyond the 64th count for nobody.
    on: u64,
    /// It would fit if nobody else were there.
    may_fit: bool,
}

// === impl Forecast ===

impl Forecast {
    /// Looks at a node that has so much left.
    pub fn look_at(&self, remains: Remains) -> Stand {
        let classes: Box<[Here]> = (0..self.classes.len()).map(|class| self.here(class, &remains)).collect();
        let usable = |Part { class, part }: &Part| {
            let class_here = self.usable_to(*class, &classes[*class], remains.cpu_milli);
            part * f64::from(class_here)
        };
        let usable = self.common.iter().map(usable).sum();
        let mut hosts = [0.0; MOST_SEVERAL];
        for (hosts, several) in hosts.iter_mut().zip(&self.several) {
            *hosts = self.hosts_for(several.class, &classes[several.class], remains.cpu_milli);
        }
        Stand { remains, usable, hosts, classes }
    }

    /// What is lost if a pod takes so much CPU and these shares, of one card each.
    pub fn loss(&self, node: &Stand, cpu_milli: u32, takes: &[(usize, Share)]) -> Loss {
        let Stand { remains, classes, .. } = node;
        let cpu_left = remains.cpu_milli.map(|free| free.saturating_sub(cpu_milli));
        let changes: Vec<(usize, Left, Left)> = takes.iter().filter_map(|take| remains.change(take)).collect();
        let mut loss = Loss { cards_left: remains.size(), cpu_left, ..Loss::default() };
        for (_, before, after) in &changes {
            loss.cards_left -= before.size - after.size;
        }
        let after = |class: usize| self.after(class, classes[class], &changes);
        for Part { class, part } in &self.common {
            let before = self.usable_to(*class, &classes[*class], remains.cpu_milli);
            let after = if before == 0 { 0 } else { self.usable_to(*class, &after(*class), cpu_left) };
            loss.usable += part * f64::from(before - after);
        }
        for ((lost, several), before) in loss.hosts.iter_mut().zip(&self.several).zip(&node.hosts) {
            if *before > 0.0 {
                *lost = before - self.hosts_for(several.class, &after(several.class), cpu_left);
            }
        }
        loss
    }

    fn here(&self, class: usize, remains: &Remains) -> Here {
        let (mut here, mut able) = (Here::default(), 0);
        for (at, left) in remains.cards.iter().enumerate().take(u64::BITS as usize) {
            let need = self.need(*left, class);
            able += u32::from(need.memory < u32::MAX);
            if need.is_met(*left) {
                here.size += left.size;
                here.fitting += 1;
                here.on |= 1 << at;
            }
        }
        Here { may_fit: able >= self.classes[class].cards, ..here }
    }

    /// The class once cards have changed, of which less is left.
    #[inline]
    fn after(&self, class: usize, mut here: Here, changes: &[(usize, Left, Left)]) -> Here {
        for (at, before, after) in changes {
            if *at >= u64::BITS as usize || here.on >> at & 1 == 0 {
                continue; // what didn't fit fits no better now
            }
            if self.need(*after, class).is_met(*after) {
                here.size -= before.size - after.size;
            } else {
                here.size -= before.size;
                here.fitting -= 1;
            }
        }
        here
    }

    #[inline]
    fn usable_to(&self, class: usize, here: &Here, cpu: Option<u32>) -> u32 {
        let Class { cards, cpu_milli } = self.classes[class];
        let fits = here.fitting >= cards && cpu.is_none_or(|free| free >= cpu_milli);
        if fits { here.size } else { 0 }
    }

    fn hosts_for(&self, class: usize, here: &Here, cpu: Option<u32>) -> f64 {
        let Class { cards, cpu_milli } = self.classes[class];
        if !here.may_fit || cpu.is_some_and(|free| free < cpu_milli) {
            return 0.0;
        }
        let by_cpu = cpu.and_then(|free| free.checked_div(cpu_milli)).unwrap_or(u32::MAX);
        match (here.fitting / cards).min(by_cpu) {
            0 => NEARLY.powi((cards - here.fitting).cast_signed()),
            hosts => f64::from(hosts),
        }
    }
}

// === impl Stand ===

impl Stand {
    /// What the node has left.
    pub fn remains(&self) -> &Remains {
        &self.remains
    }
}

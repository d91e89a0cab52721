//! Links between the cards of a node.

mod known;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The best path between two cards, worst first: the classes of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Link {
    /// Across sockets (`SYS`).
    #[default]
    System,
    /// Same NUMA node, different host bridges (`NODE`).
    Node,
    /// Same host bridge (`PHB`).
    HostBridge,
    /// Several PCIe switches (`PXB`).
    MultiSwitch,
    /// One PCIe switch (`PIX`).
    SingleSwitch,
    /// This many NVLinks, direct or through NVSwitch (`NV#`).
    NvLink(u32),
}

/// GPUs of which every two are linked at least so well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkedCards {
    /// Class of `nvidia-smi topo -m`.
    pub link: Link,
    /// Positions in `cards`.
    pub cards: Vec<u32>,
}

/// Not a class of `nvidia-smi topo -m`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a link: expected SYS, NODE, PHB, PXB, PIX or NV and a number")]
pub struct UnknownLink(String);

/// Links of every pair of a node's cards, by card position.
///
/// Made once per node; what a comparison of sets of cards needs of the table is kept with it.
#[derive(Clone, Debug, Default)]
pub struct Links {
    cards: usize,
    /// Row-major, `cards` × `cards`.
    table: Vec<Link>,
    /// For each card the first one that it could change places with unnoticed.
    twins: Vec<usize>,
    /// Each class that occurs, best first, with the pairs linked at least so well.
    levels: Vec<Level>,
}

/// Cards linked by one class or better.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    rank: u64,
    near: Vec<CardSet>,
}

/// A set of card positions, a bit each.
pub type CardSet = u32;

/// Cards beyond these are left out of [`Links::value`]: nodes with more have MIG instances, which aren't linked.
pub const LINKED_CARDS: usize = CardSet::BITS as usize;

/// Sizes of card sets that jobs ask for.
const SET_SIZES: [u32; 3] = [2, 4, 8];

// === impl Link ===

impl Link {
    /// Above all classes that exist; more NVLinks than this make no difference.
    pub const BEST_RANK: u64 = 64;

    /// 0 for the worst; comparable between nodes.
    pub fn rank(self) -> u64 {
        match self {
            Self::System => 0,
            Self::Node => 1,
            Self::HostBridge => 2,
            Self::MultiSwitch => 3,
            Self::SingleSwitch => 4,
            Self::NvLink(links) => (5 + u64::from(links)).min(Self::BEST_RANK),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "SYS",
            Self::Node => "NODE",
            Self::HostBridge => "PHB",
            Self::MultiSwitch => "PXB",
            Self::SingleSwitch => "PIX",
            Self::NvLink(links) => return write!(f, "NV{links}"),
        })
    }
}

impl FromStr for Link {
    type Err = UnknownLink;

    fn from_str(text: &str) -> Result<Self, UnknownLink> {
        let number = text.strip_prefix("NV").filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        if let Some(links) = number.and_then(|number| number.parse().ok()) {
            return Ok(Self::NvLink(links));
        }
        [Self::System, Self::Node, Self::HostBridge, Self::MultiSwitch, Self::SingleSwitch]
            .into_iter()
            .find(|link| link.to_string() == text)
            .ok_or_else(|| UnknownLink(text.to_owned()))
    }
}

impl TryFrom<String> for Link {
    type Error = UnknownLink;

    fn try_from(text: String) -> Result<Self, UnknownLink> {
        text.parse()
    }
}

impl From<Link> for String {
    fn from(link: Link) -> Self {
        link.to_string()
    }
}

// === impl Links ===

impl Links {
    /// The links of `cards` cards, asked for once a pair, the lower position first.
    pub fn new(cards: usize, mut link: impl FnMut(usize, usize) -> Link) -> Self {
        let mut table = vec![Link::System; cards * cards];
        for a in 0..cards {
            for b in a + 1..cards {
                let link = link(a, b);
                table[a * cards + b] = link;
                table[b * cards + a] = link;
            }
        }
        let mut links = Self { cards, table, twins: Vec::new(), levels: Vec::new() };
        links.twins = (0..cards).map(|card| links.first_twin(card)).collect();
        links.levels = links.levels();
        links
    }

    /// The links of `cards` cards by groups, as a `GpuNode` has them; positions that don't exist are passed over.
    pub fn from_groups(cards: usize, groups: &[LinkedCards]) -> Self {
        let mut best = vec![Link::System; cards * cards];
        for LinkedCards { link, cards: group } in groups {
            let group: Vec<usize> = group.iter().map(|card| *card as usize).filter(|card| *card < cards).collect();
            for (a, b) in group.iter().flat_map(|a| group.iter().map(move |b| (*a, *b))) {
                best[a * cards + b] = best[a * cards + b].max(*link);
            }
        }
        Self::new(cards, |a, b| best[a * cards + b])
    }

    /// The links by groups, those of the best class first: eight cards behind an NVSwitch are one group.
    pub fn groups(&self) -> Vec<LinkedCards> {
        let pairs = (0..self.cards).flat_map(|a| (a + 1..self.cards).map(move |b| (a, b)));
        let mut pairs: Vec<(Link, usize, usize)> = pairs.map(|(a, b)| (self.get(a, b), a, b)).collect();
        pairs.retain(|(link, ..)| *link != Link::System);
        pairs.sort_by(|(one, ..), (other, ..)| other.cmp(one));
        let mut groups: Vec<(Link, Vec<usize>)> = Vec::new();
        for (link, a, b) in pairs {
            let is_known =
                |(class, group): &(Link, Vec<usize>)| *class == link && group.contains(&a) && group.contains(&b);
            if !groups.iter().any(is_known) {
                groups.push((link, self.group_around(a, b, link)));
            }
        }
        let position = |card: usize| u32::try_from(card).expect("a table of 2^32 cards fits into no memory");
        groups
            .into_iter()
            .map(|(link, cards)| LinkedCards { link, cards: cards.into_iter().map(position).collect() })
            .collect()
    }

    /// Two cards that are linked so well, and others with which every two still are.
    fn group_around(&self, a: usize, b: usize, link: Link) -> Vec<usize> {
        let mut group = vec![a, b];
        for other in (0..self.cards).filter(|other| *other != a && *other != b) {
            if group.iter().all(|card| self.get(*card, other) >= link) {
                group.push(other);
            }
        }
        group.sort_unstable();
        group
    }

    /// Number of cards.
    pub fn cards(&self) -> usize {
        self.cards
    }

    /// The link of two cards; [`Link::System`] where nothing is known.
    pub fn get(&self, a: usize, b: usize) -> Link {
        if a >= self.cards || b >= self.cards { Link::System } else { self.table[a * self.cards + b] }
    }

    /// The worst link within a set of distinct cards, at whose pace collectives run; `None` for fewer than two cards.
    pub fn bottleneck(&self, cards: &[usize]) -> Option<Link> {
        let pairs = cards.iter().enumerate().flat_map(|(at, a)| cards[at + 1..].iter().map(move |b| (*a, *b)));
        pairs.map(|(a, b)| self.get(a, b)).min()
    }

    /// Whether two cards have the same links to every other card.
    pub fn are_twins(&self, a: usize, b: usize) -> bool {
        self.twins.get(a) == self.twins.get(b)
    }

    /// The rank of the best worst link that this set can have once `missing` of the others have joined it; `None` if they
    /// are too few.
    pub fn best_with(&self, set: CardSet, missing: u32, others: CardSet) -> Option<u64> {
        self.levels.iter().find(|level| level.can_complete(set, missing, others)).map(|level| level.rank)
    }

    /// Whether some cards are better linked than others.
    pub fn vary(&self) -> bool {
        self.levels.len() > 1
    }

    /// What a set of free cards is worth to jobs of 2, 4 and 8 cards: the best worst-link that each can have there. Then,
    /// in the lower half of the number, the links that are left.
    pub fn value(&self, free: CardSet) -> u64 {
        let best =
            |size| self.levels.iter().find(|level| level.has_clique(free, size)).map_or(0, |level| 1 + level.rank);
        let sets: u64 = SET_SIZES.into_iter().map(best).sum();
        let worse = self.levels.iter().skip(1).map(|level| level.rank).chain([0]);
        let links = self.levels.iter().zip(worse).map(|(level, worse)| (level.rank - worse) * level.ends(free)).sum();
        sets << 32 | Ord::min(links, u64::from(u32::MAX))
    }

    fn first_twin(&self, card: usize) -> usize {
        let others = |twin: usize| (0..self.cards).filter(move |other| *other != card && *other != twin);
        let alike = |twin: usize| others(twin).all(|other| self.get(card, other) == self.get(twin, other));
        (0..card).find(|twin| alike(*twin)).unwrap_or(card)
    }

    fn levels(&self) -> Vec<Level> {
        let linked = self.cards.min(LINKED_CARDS);
        let pairs = (0..linked).flat_map(|a| (0..a).map(move |b| (a, b)));
        let mut classes: Vec<Link> = pairs.map(|(a, b)| self.get(a, b)).collect();
        classes.sort_unstable_by(|a, b| b.cmp(a));
        classes.dedup();
        let near = |class: Link, a: usize| {
            (0..linked).filter(|b| *b != a && self.get(a, *b) >= class).fold(0, |near, b| near | 1 << b)
        };
        let level = |class: Link| Level { rank: class.rank(), near: (0..linked).map(|a| near(class, a)).collect() };
        classes.into_iter().map(level).collect()
    }
}

/// All else follows from the table.
impl PartialEq for Links {
    fn eq(&self, other: &Self) -> bool {
        self.cards == other.cards && self.table == other.table
    }
}

impl Eq for Links {}

impl Hash for Links {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.table.hash(state);
    }
}

// === impl Level ===

impl Level {
    /// Whether `size` of these cards are linked so well in every pair.
    fn has_clique(&self, mut cards: CardSet, size: u32) -> bool {
        if size == 0 {
            return true;
        }
        while cards.count_ones() >= size {
            let card = cards.trailing_zeros();
            cards &= cards - 1;
            if self.has_clique(cards & self.near(card as usize), size - 1) {
                return true;
            }
        }
        false
    }

    /// Whether `missing` of the others can join this set so that every pair is linked so well.
    fn can_complete(&self, set: CardSet, missing: u32, others: CardSet) -> bool {
        let mut open = others & !set;
        let mut rest = set;
        while rest != 0 {
            let card = rest.trailing_zeros();
            rest &= rest - 1;
            if rest & !self.near(card as usize) != 0 {
                return false;
            }
            open &= self.near(card as usize);
        }
        self.has_clique(open, missing)
    }

    /// Links of this class or better within a set, counted at both ends.
    fn ends(&self, cards: CardSet) -> u64 {
        let within = |card: usize| if cards >> card & 1 == 1 { (cards & self.near(card)).count_ones() } else { 0 };
        (0..self.near.len()).map(|card| u64::from(within(card))).sum()
    }

    fn near(&self, card: usize) -> CardSet {
        self.near.get(card).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;

//! Machines whose links are known from their manuals.

use super::{Link, Links};

impl Links {
    /// Every pair through NVSwitch with this many links (HGX A100: 12, H100: 18).
    pub fn nvswitch(cards: usize, links: u32) -> Self {
        Self::new(cards, |_, _| Link::NvLink(links))
    }

    /// DGX-1 with V100: eight cards in a hybrid cube mesh, one or two links between neighbours, none across a diagonal
    /// (the matrix that `nvidia-smi topo -m` prints there).
    pub fn dgx1() -> Self {
        const MESH: [(usize, usize, u32); 16] = [
            (0, 1, 1),
            (0, 2, 1),
            (0, 3, 2),
            (0, 4, 2),
            (1, 2, 2),
            (1, 3, 1),
            (1, 5, 2),
            (2, 3, 2),
            (2, 6, 1),
            (3, 7, 1),
            (4, 5, 1),
            (4, 6, 1),
            (4, 7, 2),
            (5, 6, 2),
            (5, 7, 1),
            (6, 7, 2),
        ];
        let mesh = |a, b| MESH.iter().find(|(from, to, _)| (*from, *to) == (a, b)).map(|(.., links)| *links);
        Self::new(8, |a, b| mesh(a, b).map_or(Link::System, Link::NvLink))
    }

    /// PCIe alone: two sockets with half of the cards each, two cards on a switch, two switches on a host bridge.
    pub fn pcie(cards: usize) -> Self {
        let socket = cards.div_ceil(2).max(1);
        Self::new(cards, |a, b| match (a, b) {
            (a, b) if a / socket != b / socket => Link::System,
            (a, b) if a % socket / 2 == b % socket / 2 => Link::SingleSwitch,
            (a, b) if a % socket / 4 == b % socket / 4 => Link::HostBridge,
            _ => Link::Node,
        })
    }

    /// Groups of four with this many NVLinks in every pair, nothing between groups.
    pub fn quads(cards: usize, links: u32) -> Self {
        Self::new(cards, |a, b| if a / 4 == b / 4 { Link::NvLink(links) } else { Link::System })
    }
}

//! Machines that people have.

use super::{CardScenario, CardState, FabricScenario, LinkScenario, PciLevel, Scenario, SensorScenario};

const GIB: u64 = 1 << 30;

// === impl Scenario ===

impl Scenario {
    /// `count` cards of one model with `memory_total` bytes each, in pairs behind a PCIe switch, half of them on each of
    /// two sockets. Card `n` is called [`Scenario::uuid`]`(n)`.
    pub fn uniform(count: u32, model: &str, memory_total: u64) -> Self {
        let cards = (0..count).map(|n| card(n, count, model, memory_total)).collect();
        let pairs = (0..count).flat_map(|b| (0..b).map(move |a| (a, b)));
        let links = pairs.filter_map(|(a, b)| pci_link(a, b, count)).collect();
        Self { cards, links, ..Self::default() }
    }

    /// Eight H100 behind NVSwitches.
    pub fn hgx_h100() -> Self {
        Self { nvswitch_links: 18, ..Self::uniform(8, "NVIDIA H100 80GB HBM3", 80 * GIB) }
    }

    /// Eight L40S, which have PCIe alone.
    pub fn pcie_l40s() -> Self {
        Self::uniform(8, "NVIDIA L40S", 45 * GIB)
    }

    /// Eight V100 as two fully linked quads with one NVLink between the cards that stand opposite each other.
    pub fn cube_mesh_v100() -> Self {
        let mut scenario = Self::uniform(8, "Tesla V100-SXM2-32GB", 32 * GIB);
        for (a, b) in (0..8u32).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let nvlinks = match (a / 4 == b / 4, b - a == 4) {
                (true, _) => 2,
                (false, true) => 1,
                (false, false) => continue,
            };
            scenario.link_mut(&Self::uuid(a), &Self::uuid(b)).nvlinks = nvlinks;
        }
        scenario
    }

    /// One node of a GB200 NVL72: four GPUs of a domain and a clique that other nodes are in too.
    pub fn gb200_nvl72(domain: u8, clique: u32) -> Self {
        let mut scenario = Self { nvswitch_links: 18, ..Self::uniform(4, "NVIDIA GB200", 189 * GIB) };
        let fabric = FabricScenario { cluster: [domain; 16], clique, registered: true };
        scenario.cards.iter_mut().for_each(|card| card.fabric = Some(fabric));
        scenario
    }

    /// A DGX Spark: one GB10, which shares 120 GiB with the processor.
    pub fn dgx_spark() -> Self {
        let mut scenario = Self::uniform(1, "NVIDIA GB10", 120 * GIB);
        let gpu = &mut scenario.cards[0];
        (gpu.unified_memory, gpu.numa, gpu.ecc_uncorrected) = (true, None, None);
        "0000000F:01:00.0".clone_into(&mut gpu.pci_bus_id);
        scenario
    }

    /// The UUID of card `number` in the scenarios of this module.
    pub fn uuid(number: u32) -> String {
        format!("GPU-{number:08x}-fa4e-4a11-8000-{number:012x}")
    }

    /// The link between two cards, made where there is none yet.
    pub fn link_mut(&mut self, a: &str, b: &str) -> &mut LinkScenario {
        let joins = |link: &LinkScenario| link.joins(a, b);
        let position = self.links.iter().position(joins).unwrap_or_else(|| {
            self.links.push(LinkScenario::new(a, b, PciLevel::System));
            self.links.len() - 1
        });
        &mut self.links[position]
    }
}

// === impl LinkScenario ===

impl LinkScenario {
    fn new(a: &str, b: &str, pci: PciLevel) -> Self {
        Self { cards: (a.to_owned(), b.to_owned()), pci, nvlinks: 0 }
    }

    pub(crate) fn joins(&self, a: &str, b: &str) -> bool {
        let (one, other) = &self.cards;
        (one == a && other == b) || (one == b && other == a)
    }
}

fn card(number: u32, count: u32, model: &str, memory_total: u64) -> CardScenario {
    CardScenario {
        uuid: Scenario::uuid(number),
        model: model.to_owned(),
        memory_total,
        memory_reserved: 0,
        memory_used: 0,
        unified_memory: false,
        pci_bus_id: format!("00000000:{:02X}:00.0", 0x17 + 8 * number),
        minor: number,
        numa: Some(socket(number, count)),
        compute_capability: super::hopper(),
        utilization: 0,
        ecc_uncorrected: Some(0),
        ecc_corrected: 0,
        sensors: SensorScenario::idle(),
        fabric: None,
        mig: None,
        processes: Vec::new(),
        clients: Vec::new(),
        state: CardState::Present,
    }
}

fn socket(number: u32, count: u32) -> u32 {
    u32::from(number >= count.div_ceil(2))
}

fn pci_link(a: u32, b: u32, count: u32) -> Option<LinkScenario> {
    let pci = match (a / 2 == b / 2, socket(a, count) == socket(b, count)) {
        (true, true) => PciLevel::Single,
        (false, true) => PciLevel::Node,
        (_, false) => return None,
    };
    Some(LinkScenario::new(&Scenario::uuid(a), &Scenario::uuid(b), pci))
}

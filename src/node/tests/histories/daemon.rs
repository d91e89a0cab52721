//! The daemon without its sockets: what it decides with, and what its plugin service does between the calls.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use divvy_api::request::Defaults;
use divvy_api::{Memory, ResourceName, ResourceNames, SlotId};
use divvy_node::allocation::{AllocationSettings, Allocator, Choice, Moment, Refusal};
use divvy_node::config::{DeviceListStrategy, Strategy};
use divvy_node::container::isolation::Accounting;
use divvy_node::container::{ContainerOptions, Containers};
use divvy_node::identity::{Subject, Unresolved};
use divvy_node::inventory::{CardHealth, CardInfo, Inventory, MigInstance};
use divvy_node::kubelet::client::PodList;
use divvy_node::kubelet::pods::PodView;
use divvy_node::ledger::Ledger;
use divvy_node::ledger::reconcile::Assigned;
use divvy_placement::{Link, Links, Policy};
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use proptest::sample::Index;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::shapes::{CARDS, NODE, card, instance};

/// Few, so that they run out.
pub(crate) const SLOTS: u32 = 4;

/// What survives the process.
pub(crate) struct Disk {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) volume_mounts: bool,
    pub(crate) memory_scale: u32,
}

/// The process.
pub(crate) struct Daemon(pub(crate) Allocator);

/// What the kubelet shows to those who ask it.
pub(crate) struct Shown {
    pub(crate) list: PodList,
    pub(crate) settled: bool,
    /// PodResources.
    pub(crate) assigned: Vec<Assigned>,
    /// The API server's pods of this node, while the list is refused.
    pub(crate) bound: Option<Vec<Arc<PodView>>>,
}

/// A machine's cards: three of one size and a small one, on two sockets, and two instances of another.
pub(crate) fn cards() -> Vec<CardInfo> {
    let memory = |number| Memory::mib(if number == 3 { 600 } else { 1000 });
    let info = |number| CardInfo {
        id: card(number),
        model: "H100".to_owned(),
        memory: memory(number),
        pci_bus_id: String::new(),
        minor: Some(number),
        numa: Some(number / 2),
        mig: None,
        health: CardHealth::Healthy,
        memory_used: None,
        utilization: None,
        processes: None,
    };
    let mig = |ci| MigInstance {
        profile: "1g.10gb".parse().unwrap(),
        parent: "GPU-cut".parse().unwrap(),
        gi: 1,
        ci,
        by_profile: true,
    };
    let instance = |ci| CardInfo { id: instance(ci), memory: Memory::mib(400), mig: Some(mig(ci)), ..info(0) };
    (0..CARDS).map(info).chain((0..2).map(instance)).collect()
}

// === impl Disk ===

impl Disk {
    fn journal(&self) -> PathBuf {
        self.directory.path().join("state/journal")
    }

    /// Directories of containers, by nonce.
    pub(crate) fn containers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path().join("run/containers"));
        entries.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Takes bytes from the journal's last record, all of it at most, as a death while it was written does.
    pub(crate) fn tear(&self, cut: Index) {
        let bytes = fs::read(self.journal()).unwrap();
        // A record begins with a newline and ends with one.
        let begin = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
        fs::write(self.journal(), &bytes[..begin + cut.index(bytes.len() - begin)]).unwrap();
    }

    /// Starts the process.
    pub(crate) fn open(&self) -> Daemon {
        let (ledger, recovery) = Ledger::open(&self.directory.path().join("state")).unwrap();
        assert_eq!(recovery.damaged, [], "a torn record damages no other");
        let settings = AllocationSettings {
            node_name: NODE.to_owned(),
            names: ResourceNames::default(),
            defaults: Defaults::default(),
            slots_per_card: SLOTS,
            memory_scale: self.memory_scale,
            cores_scale: 100,
            policy: Policy::default(),
        };
        Daemon(Allocator::new(settings, ledger, Containers::new(self.options(), Box::new(Accounting))))
    }

    fn options(&self) -> ContainerOptions {
        let path = |name: &str| self.directory.path().join(name);
        let strategy = if self.volume_mounts { Strategy::VolumeMounts } else { Strategy::Envvar };
        ContainerOptions {
            run_dir: path("run"),
            device_list_strategy: DeviceListStrategy::These([strategy].into()),
            cdi_dir: path("cdi"),
            cdi_annotation_prefix: "cdi.k8s.io/".to_owned(),
            nvidia_cdi_hook_path: path("hook"),
            driver_root: Path::new("/").to_owned(),
            driver_root_ctr_path: Path::new("/").to_owned(),
            dev_root: Path::new("/").to_owned(),
            procfs: "/proc".into(),
        }
    }
}

// === impl Daemon ===

impl Daemon {
    pub(crate) fn set_cards(&mut self, cards: Vec<CardInfo>) {
        let links = Links::new(cards.len(), |_, _| Link::System);
        self.0.set_inventory(Arc::new(Inventory { cards, links, ..Inventory::default() }));
    }

    /// What it does before it registers.
    pub(crate) fn recover(&mut self, shown: &Shown) -> Result<(), Refusal> {
        self.hear(shown, Some(&shown.assigned))?;
        self.0.remove_stale_directories();
        Ok(())
    }

    pub(crate) fn look(&mut self, shown: &Shown) -> Result<(), Refusal> {
        self.hear(shown, None)
    }

    /// A list that took its time.
    pub(crate) fn look_late(&mut self, shown: &Shown, asked: Moment) -> Result<(), Refusal> {
        self.settle(shown, asked, None)
    }

    pub(crate) fn propose(
        &mut self,
        resource: &ResourceName,
        shown: &Shown,
        choice: &Choice,
    ) -> Result<Vec<SlotId>, Refusal> {
        self.look(shown)?;
        self.0.propose(resource, &self.among(resource, shown, choice.size), choice)
    }

    pub(crate) fn allocate(
        &mut self,
        resource: &ResourceName,
        shown: &Shown,
        slots: &[SlotId],
    ) -> Result<ContainerAllocateResponse, Refusal> {
        if let Some(answer) = self.0.allocate_proposed(slots) {
            return answer;
        }
        self.look(shown)?;
        match self.0.allocate(resource, &self.among(resource, shown, slots.len()), slots) {
            Err(Refusal::Identity(nobody @ Unresolved::Nobody { .. })) if shown.bound.is_none() => {
                self.allocate_again(resource, shown, slots, nobody)
            }
            answer => answer,
        }
    }

    /// The pods among which the one is that gets `wanted` devices.
    fn among(&self, resource: &ResourceName, shown: &Shown, wanted: usize) -> Vec<Arc<PodView>> {
        let Some(bound) = &shown.bound else { return shown.list.pods.clone() };
        let candidates = self.0.candidates(resource, bound.clone(), wanted).into_iter();
        candidates.filter(|(pod, container)| shown.lacks(pod, container)).map(|(pod, _)| pod).collect()
    }

    fn allocate_again(
        &mut self,
        resource: &ResourceName,
        shown: &Shown,
        slots: &[SlotId],
        nobody: Unresolved,
    ) -> Result<ContainerAllocateResponse, Refusal> {
        let suspects = self.0.suspects(&shown.list.pods, slots);
        let known = |pod: &PodView| -> Vec<Assigned> {
            shown.assigned.iter().filter(|assigned| assigned.pod == pod.name).cloned().collect()
        };
        let forgotten = suspects.iter().filter(|subject| self.0.is_forgotten(subject, &known(subject.pod)));
        let forgotten: Vec<Subject<'_>> = forgotten.copied().collect();
        if forgotten.is_empty() {
            return Err(nobody.into());
        }
        self.0.allocate_again(resource, &forgotten, slots)
    }

    fn hear(&mut self, shown: &Shown, assigned: Option<&[Assigned]>) -> Result<(), Refusal> {
        let asked = self.0.ask();
        self.settle(shown, asked, assigned)
    }

    fn settle(&mut self, shown: &Shown, asked: Moment, assigned: Option<&[Assigned]>) -> Result<(), Refusal> {
        if let Some(assigned) = assigned {
            self.0.keep_records(assigned.to_vec());
        }
        match &shown.bound {
            None => self.0.reconcile(&shown.list, asked, shown.settled, &HashMap::new())?,
            Some(bound) => {
                let gone = self.0.missing(bound).into_iter().filter(|_| shown.settled).collect();
                self.0.reconcile_bound(bound, asked, &gone)?
            }
        };
        let over = self.0.take_over();
        self.0.delivery().remove_all(&over);
        Ok(())
    }
}

// === impl Shown ===

impl Shown {
    /// Whether PodResources' `Get` finds the pod, and shows no devices of the container.
    fn lacks(&self, pod: &PodView, container: &str) -> bool {
        let is_known = self.list.pods.iter().any(|listed| listed.name == pod.name && !listed.has_ended());
        let mut records = self.assigned.iter().filter(|record| record.pod == pod.name);
        is_known && !records.any(|record| record.container == container)
    }

    /// In the order of a Go map.
    pub(crate) fn shuffle(mut self, rng: &mut StdRng) -> Self {
        self.list.pods.shuffle(rng);
        self
    }
}

//! Shares: what one container holds on one card.

use std::fmt;

use divvy_region::Tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card_id::CardId;
use crate::pod::PodSum;
use crate::quantity::{Cores, Memory};

/// Part of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Memory that the container may allocate, in MiB on the wire.
    #[serde(rename = "memoryMi")]
    pub memory: Memory,
    /// Part of the memory for which host memory is booked instead of the GPU's, in MiB on the wire; nothing unless the pod
    /// asks for oversubscription.
    #[serde(rename = "hostMemoryMi", default, skip_serializing_if = "Memory::is_zero")]
    pub host: Memory,
    /// Guaranteed compute; 0 competes for time that is guaranteed to nobody or unused.
    pub cores: Cores,
    /// Whether no other container may hold a share of this GPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
}

// === impl Share ===

impl Share {
    /// Part of the memory that is booked of the GPU.
    #[must_use]
    pub fn on_card(&self) -> Memory {
        self.memory.saturating_sub(self.host)
    }

    /// Tier of this share of a card in a container of tier `otherwise`: a MIG instance held alone is enforced by hardware.
    #[must_use]
    pub fn tier_on(&self, card: &CardId, otherwise: Tier) -> Tier {
        if self.exclusive && card.is_instance() { Tier::Mig } else { otherwise }
    }
}

impl PodSum for Share {
    fn plus(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            host: self.host.saturating_add(other.host),
            cores: self.cores.saturating_add(other.cores),
            exclusive: self.exclusive || other.exclusive,
        }
    }

    /// The GPU's memory and the host's are parts of their own: what needs more memory may need less of either.
    fn max(self, other: Self) -> Self {
        let host = self.host.max(other.host);
        Self {
            memory: self.on_card().max(other.on_card()).saturating_add(host),
            host,
            cores: self.cores.max(other.cores),
            exclusive: self.exclusive || other.exclusive,
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} memory", self.memory)?;
        if !self.host.is_zero() {
            write!(f, " ({} of it host memory)", self.host)?;
        }
        write!(f, ", {} cores", self.cores)?;
        if self.exclusive { f.write_str(", exclusive") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pod::{ContainerKind, peak};
    use crate::request::{GpuRequest, MemoryAmount, Sharing};

    fn divided(mib: u64, cores: u32, percent: u32) -> Share {
        let request =
            GpuRequest { cards: 1, memory: MemoryAmount::Absolute(Memory::mib(mib)), cores: Cores::new(cores) };
        request.share_of(Memory::mib(1 << 20), Sharing::Oversubscribed(percent))
    }

    #[test]
    fn oversubscribed_share_is_divided_by_the_scale() {
        let parts = |mib, percent| {
            let share = divided(mib, 0, percent);
            (share.on_card().as_mib(), share.host.as_mib())
        };
        assert_eq!(
            [parts(12 << 10, 150), parts(1000, 150), parts(1000, 200)],
            [(8 << 10, 4 << 10), (667, 333), (500, 500)]
        );
        assert_eq!(
            [parts(1, 1000), parts(2, 101), parts(50, 101)],
            [(0, 1), (1, 1), (49, 1)],
            "known by its part in host memory"
        );
        assert_eq!(divided(1000, 100, 150).host, Memory::ZERO, "a whole GPU");
        assert_eq!(parts(u64::MAX, 150).0, 12_297_829_382_473_034_410);
    }

    /// The init container has 7 of the card and 3 of the host, the others 9 and 3: more of the card with less memory each.
    #[test]
    fn peak_covers_card_and_host_memory_of_every_phase() {
        let four = divided(4, 0, 101);
        let phases = [
            (ContainerKind::Init, divided(10, 0, 150)),
            (ContainerKind::App, four),
            (ContainerKind::App, four),
            (ContainerKind::App, four),
        ];
        let sum = peak(phases);
        assert_eq!((sum.on_card().as_mib(), sum.host.as_mib(), sum.memory.as_mib()), (9, 3, 12));
    }

    #[test]
    fn share_without_host_memory_is_written_as_before() {
        let share = divided(1500, 0, 150);
        let text = serde_json::to_string(&share).expect("JSON");
        assert_eq!(text, r#"{"memoryMi":1500,"hostMemoryMi":500,"cores":0}"#);
        assert_eq!(serde_json::from_str::<Share>(&text).expect("a share"), share);
        let plain = Share { host: Memory::ZERO, ..share };
        assert_eq!(serde_json::to_string(&plain).expect("JSON"), r#"{"memoryMi":1500,"cores":0}"#);
        assert_eq!(share.to_string(), "1500Mi memory (500Mi of it host memory), 0 cores");
    }

    proptest! {
        #[test]
        fn parts_of_a_pod_add_up(shares in prop::collection::vec((1u64..1000, 101u32..1000, any::<bool>()), 1..6)) {
            let shares: Vec<_> = shares.into_iter().map(|(mib, percent, is_init)| {
                let kind = if is_init { ContainerKind::Init } else { ContainerKind::App };
                (kind, divided(mib, 0, percent))
            }).collect();
            let of = |part: fn(&Share) -> Memory| {
                let apps: Memory = shares.iter().filter(|(kind, _)| *kind == ContainerKind::App).map(|(_, share)| part(share)).sum();
                let init = shares.iter().filter(|(kind, _)| *kind == ContainerKind::Init).map(|(_, share)| part(share)).max();
                apps.max(init.unwrap_or_default())
            };
            // Init containers first, as the kubelet admits them.
            let mut ordered = shares.clone();
            ordered.sort_by_key(|(kind, _)| *kind == ContainerKind::App);
            let sum = peak(ordered);
            prop_assert_eq!((sum.on_card(), sum.host), (of(Share::on_card), of(|share| share.host)));
        }
    }
}

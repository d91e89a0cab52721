//! Limits file: the text of [`divvy_region::limits`] as values of the API.

use std::fmt;
use std::str::FromStr;

use divvy_api::annotation::{Compute, Priority};
use divvy_api::{CardId, Cores, Memory, Share, Tier};
use divvy_region::{clock, limits};

pub(super) use divvy_region::limits::is_field;

/// Shares of one container, and how they are enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How the shares are enforced.
    pub tier: Tier,
    /// Policy for compute that other containers leave idle.
    pub compute: Compute,
    /// The most compute that it has in all, where it may use that.
    pub compute_limit: Option<Cores>,
    /// Priority among containers for idle compute.
    pub priority: Option<Priority>,
    /// `metadata.uid` of the pod.
    pub pod_uid: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// At least one card, each once.
    pub cards: Vec<(CardId, Share)>,
}

/// Explanation of the tier, written as a comment into the file.
fn meaning(tier: Tier, cards: &[(CardId, Share)]) -> &'static str {
    match tier {
        Tier::Mig => "enforced by the hardware: whole MIG instances, allocated to no other container",
        _ if cards.iter().all(|(_, share)| share.exclusive) => "whole GPUs, allocated to no other container",
        Tier::Accounting => "recorded in the node's ledger, not enforced",
        Tier::Shim => "enforced by libdivvy.so inside the container, which can detect more than it can prevent",
        Tier::Mps => {
            "memory and a cap on compute enforced by CUDA's multi-process service, and memory by libdivvy.so too"
        }
    }
}

// === impl Limits ===

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tier, compute, compute_limit, priority, pod_uid, namespace, pod, container, cards } = self;
        let compute = match compute {
            Compute::Cap => clock::Compute::Cap,
            Compute::Burst => clock::Compute::Burst,
        };
        let tier_name = tier.to_string();
        let file_cards = cards.iter().map(|(card, share)| limits::Card {
            uuid: card.as_str(),
            memory_mib: share.memory.as_mib(),
            host_mib: share.host.as_mib(),
            cores: share.cores.units(),
            exclusive: share.exclusive,
        });
        let file = limits::Limits {
            tier: &tier_name,
            compute,
            compute_limit: compute_limit.map(Cores::units),
            priority: rank(*priority),
            pod_uid,
            namespace,
            pod,
            container,
            cards: file_cards,
        };
        file.write(f, meaning(*tier, cards))
    }
}

impl FromStr for Limits {
    type Err = String;

    /// Reads a limits file; the reader of one that isn't valid must let the container use no GPU.
    fn from_str(text: &str) -> Result<Self, String> {
        let file = limits::Limits::read(text).map_err(|malformed| malformed.to_string())?;
        let compute = match file.compute {
            clock::Compute::Cap => Compute::Cap,
            clock::Compute::Burst => Compute::Burst,
        };
        let priority = match file.priority {
            clock::Priority::High => Some(Priority::High),
            clock::Priority::Normal => None,
            clock::Priority::Low => Some(Priority::Low),
        };
        Ok(Self {
            tier: known("tier", file.tier)?,
            compute,
            compute_limit: file.compute_limit.map(Cores::new),
            priority,
            pod_uid: file.pod_uid.to_owned(),
            namespace: file.namespace.to_owned(),
            pod: file.pod.to_owned(),
            container: file.container.to_owned(),
            cards: file.cards.map(share).collect::<Result<_, _>>()?,
        })
    }
}

/// Priority as the library knows it.
pub(super) fn rank(priority: Option<Priority>) -> clock::Priority {
    match priority {
        Some(Priority::High) => clock::Priority::High,
        None => clock::Priority::Normal,
        Some(Priority::Low) => clock::Priority::Low,
    }
}

fn share(card: limits::Card<'_>) -> Result<(CardId, Share), String> {
    let (memory, host) = (Memory::mib(card.memory_mib), Memory::mib(card.host_mib));
    let share = Share { memory, host, cores: Cores::new(card.cores), exclusive: card.exclusive };
    Ok((known("card", card.uuid)?, share))
}

fn known<T: FromStr>(field: &'static str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_unknown| format!("{field} {value:?} is not known to this build"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_limits() -> impl Strategy<Value = Limits> {
        // As many MiB as have bytes of 64 bits.
        let amounts = (0..=u64::MAX >> 20, any::<prop::sample::Index>(), any::<bool>());
        let share =
            (amounts, any::<u32>(), any::<bool>()).prop_map(|((memory, host, is_split), cores, exclusive)| Share {
                memory: Memory::mib(memory),
                host: Memory::mib(if is_split {
                    host.index(1 + usize::try_from(memory).expect("64 bits")) as u64
                } else {
                    0
                }),
                cores: Cores::new(cores),
                exclusive,
            });
        let card = "(GPU|MIG)-[a-f0-9]{8}".prop_map(|id| id.parse().expect("a UUID"));
        let cards = prop::collection::btree_map(card, share, 1..5).prop_map(|cards| cards.into_iter().collect());
        let tier = prop::sample::select(vec![Tier::Accounting, Tier::Shim, Tier::Mps, Tier::Mig]);
        let compute = prop::sample::select(vec![Compute::Cap, Compute::Burst]);
        let compute_limit = prop::option::of((1_u32..=100).prop_map(Cores::new));
        let priority = prop::sample::select(vec![None, Some(Priority::High), Some(Priority::Low)]);
        let field = || "[A-Za-z0-9_.-]{1,40}";
        (tier, compute, compute_limit, priority, field(), field(), field(), field(), cards).prop_map(
            |(tier, compute, compute_limit, priority, pod_uid, namespace, pod, container, cards)| Limits {
                tier,
                compute,
                compute_limit,
                priority,
                pod_uid,
                namespace,
                pod,
                container,
                cards,
            },
        )
    }

    const SMALL: &str = "divvy-limits v1\ntier accounting\ncompute cap\npod u ns p\ncontainer c\ncard GPU-a memory-mib 1 cores 0 exclusive 0\nend\n";

    #[test]
    fn comments_are_passed_over() {
        let plain: Limits = SMALL.parse().expect("valid");
        let (head, tail) = SMALL.split_at(SMALL.find("end").expect("an end"));
        assert_eq!((head.replace('\n', "\n# for people\n") + tail).parse(), Ok(plain));
    }

    #[test]
    fn noncanonical_limits_are_refused() {
        let spellings = [
            ("v1", "v2"),
            ("tier accounting", "tier none"),
            ("tier accounting\n", ""),
            ("compute cap", "compute none"),
            ("compute cap\n", ""),
            ("compute cap", "compute cap normal"),
            ("compute cap", "compute cap "),
            ("compute cap", "compute cap high low"),
            ("pod u ns p", "pod u ns"),
            ("pod u ns p", "pod u ns p q"),
            ("container c", "container  c"),
            ("container c", "container"),
            ("GPU-a", "0"),
            ("memory-mib 1", "memory-mib 17592186044416"),
            ("memory-mib 1", "memory-mib 01"),
            ("memory-mib 1", "memory-mib +1"),
            ("memory-mib 1", "memory-mib -1"),
            ("cores 0", "cores 4294967296"),
            ("exclusive 0", "exclusive 2"),
            ("exclusive 0", "exclusive 0 "),
            ("exclusive 0\n", "exclusive 0\r\n"),
            ("card GPU-a memory-mib 1 cores 0 exclusive 0\n", ""),
            ("end\n", "end\nend\n"),
            ("end\n", "end\n# more\n"),
        ];
        for (from, to) in spellings {
            let changed = SMALL.replacen(from, to, 1);
            assert_ne!(changed, SMALL, "{from:?} is in the text");
            assert!(changed.parse::<Limits>().is_err(), "{to:?} for {from:?}");
        }
        let card = "card GPU-a memory-mib 1 cores 0 exclusive 0\n";
        let twice = SMALL.replace(card, &[card, card].concat()).parse::<Limits>().expect_err("two shares of one card");
        assert_eq!(twice, "line 7 is \"card GPU-a memory-mib 1 cores 0 exclusive 0\", expected \"another card\"");
        let missing = SMALL.replace("container c\n", "").parse::<Limits>().expect_err("no container");
        assert_eq!(missing, "line 5 is \"card GPU-a memory-mib 1 cores 0 exclusive 0\", expected \"container <name>\"");
    }

    proptest! {
        #[test]
        fn limits_round_trip(limits in any_limits()) {
            prop_assert_eq!(limits.to_string().parse(), Ok(limits));
        }

        #[test]
        fn truncated_limits_are_refused(limits in any_limits(), cut in any::<prop::sample::Index>()) {
            let text = limits.to_string();
            let cut = &text[..cut.index(text.len())];
            prop_assert!(cut.parse::<Limits>().is_err(), "{cut:?}");
        }

        #[test]
        fn parsing_any_limits_never_panics(text in "(divvy-limits v1\n)?((tier|compute|pod|container|card|end|#)?[ -~\n]{0,20}){0,8}") {
            prop_assert!(text.parse::<Limits>().is_err());
        }
    }
}

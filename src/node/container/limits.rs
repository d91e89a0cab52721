//! Limits files: those of [`divvy_region::limits`] in values of the API.

use std::collections::HashSet;

use divvy_api::{CardId, Cores, Memory, Share};
use divvy_node_core::ports::{AllocatedContainer, SetupError};
use divvy_region::limits::{self, CardLimits, is_field};

/// What a limits file says.
pub type Limits = limits::Limits<String, Vec<(CardId, Share)>>;

/// The limits file of a container.
pub(super) fn write(container: &AllocatedContainer<'_>) -> Result<String, SetupError> {
    let AllocatedContainer { pod, name, shares, terms, .. } = container;
    if shares.is_empty() {
        return Err(SetupError(format!("container \"{name}\" has no GPU allocated")));
    }
    let mut seen = HashSet::new();
    if let Some((card, _)) = shares.iter().find(|(card, _)| !seen.insert(card)) {
        return Err(SetupError(format!("{card} is listed twice")));
    }
    let file = limits::Limits {
        terms: *terms,
        pod_uid: field("pod UID", &pod.uid)?,
        namespace: field("namespace", &pod.namespace)?,
        pod: field("pod name", &pod.name)?,
        container: field("container name", name)?,
        cards: shares.iter().map(card),
    };
    let mut text = String::new();
    file.write(&mut text).expect("a string takes any text");
    Ok(text)
}

/// Reads a limits file; what this build doesn't know in it makes it unreadable.
pub fn read(text: &str) -> Result<Limits, String> {
    let file = limits::Limits::read(text).map_err(|malformed| malformed.to_string())?;
    Ok(Limits {
        terms: file.terms,
        pod_uid: file.pod_uid.to_owned(),
        namespace: file.namespace.to_owned(),
        pod: file.pod.to_owned(),
        container: file.container.to_owned(),
        cards: file.cards.map(share).collect::<Result<_, _>>()?,
    })
}

fn field<'a>(name: &str, value: &'a str) -> Result<&'a str, SetupError> {
    is_field(value).then_some(value).ok_or_else(|| {
        SetupError(format!(
            "{name} {value:?} can't be written to the limits file: expected 1 to 253 letters, digits, '-', '_' and '.'"
        ))
    })
}

fn card((id, share): &(CardId, Share)) -> CardLimits<'_> {
    CardLimits {
        uuid: id.as_str(),
        memory_mib: share.memory.as_mib(),
        host_mib: share.host.as_mib(),
        cores: share.cores.units(),
        exclusive: share.exclusive,
    }
}

fn share(card: CardLimits<'_>) -> Result<(CardId, Share), String> {
    let id = card.uuid.parse().map_err(|_uuid| format!("card {:?} is not known to this build", card.uuid))?;
    let memory = Memory::mib(card.memory_mib);
    let host = Memory::mib(card.host_mib);
    Ok((id, Share { memory, host, cores: Cores::new(card.cores), exclusive: card.exclusive }))
}

#[cfg(test)]
mod tests {
    use divvy_api::{Compute, ComputeLimit, Priority, Terms, Tier};
    use divvy_node_core::ledger::Nonce;
    use divvy_node_core::pod::PodRef;
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
        let tier = prop::sample::select(Tier::ALL);
        let compute = prop::sample::select(Compute::ALL);
        let compute_limit = (0_u32..=100).prop_map(ComputeLimit::new);
        let priority = prop::option::of(prop::sample::select(Priority::ALL));
        let terms = (tier, compute, compute_limit, priority);
        let terms =
            terms.prop_map(|(tier, compute, compute_limit, priority)| Terms { tier, compute, compute_limit, priority });
        let field = || "[A-Za-z0-9_.-]{1,40}";
        (terms, field(), field(), field(), field(), cards).prop_map(
            |(terms, pod_uid, namespace, pod, container, cards)| Limits {
                terms,
                pod_uid,
                namespace,
                pod,
                container,
                cards,
            },
        )
    }

    fn written(Limits { terms, pod_uid, namespace, pod, container, cards }: &Limits) -> String {
        let pod = PodRef { uid: pod_uid.clone(), namespace: namespace.clone(), name: pod.clone() };
        let nonce = Nonce::random();
        write(&AllocatedContainer { pod: &pod, name: container, nonce, shares: cards.clone(), terms: *terms })
            .expect("legal fields")
    }

    const SMALL: &str = "divvy-limits v1\ntier accounting\ncompute cap\npod u ns p\ncontainer c\ncard GPU-a memory-mib 1 cores 0 exclusive 0\nend\n";

    #[test]
    fn comments_are_passed_over() {
        let plain = read(SMALL).expect("valid");
        let (head, tail) = SMALL.split_at(SMALL.find("end").expect("an end"));
        assert_eq!(read(&(head.replace('\n', "\n# for people\n") + tail)), Ok(plain));
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
            assert!(read(&changed).is_err(), "{to:?} for {from:?}");
        }
        let card = "card GPU-a memory-mib 1 cores 0 exclusive 0\n";
        let twice = read(&SMALL.replace(card, &[card, card].concat())).expect_err("two shares of one card");
        assert_eq!(twice, "line 7 is \"card GPU-a memory-mib 1 cores 0 exclusive 0\", expected \"another card\"");
        let missing = read(&SMALL.replace("container c\n", "")).expect_err("no container");
        assert_eq!(missing, "line 5 is \"card GPU-a memory-mib 1 cores 0 exclusive 0\", expected \"container <name>\"");
    }

    proptest! {
        #[test]
        fn limits_round_trip(limits in any_limits()) {
            prop_assert_eq!(read(&written(&limits)), Ok(limits));
        }

        #[test]
        fn truncated_limits_are_refused(limits in any_limits(), cut in any::<prop::sample::Index>()) {
            let text = written(&limits);
            let cut = &text[..cut.index(text.len())];
            prop_assert!(read(cut).is_err(), "{cut:?}");
        }

        #[test]
        fn parsing_any_limits_never_panics(text in "(divvy-limits v1\n)?((tier|compute|pod|container|card|end|#)?[ -~\n]{0,20}){0,8}") {
            prop_assert!(read(&text).is_err());
        }
    }
}

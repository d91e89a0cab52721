//! What was learned of requests, as it outlives the processes that learned it: JSON in a ConfigMap.

use std::collections::{HashMap, HashSet};

use divvy_placement::{Expected, Kind};
use serde::{Deserialize, Serialize};

/// A mix, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// Grows whenever a leader writes it down.
    pub revision: u64,
    /// Pods that were counted.
    pub pods: u64,
    /// What they asked for, the most frequent first. Each kind comes once.
    pub requests: Vec<Expected>,
}

/// The ConfigMap, in Divvy's namespace.
pub const CONFIG_MAP: &str = "divvy-mix";
/// Its key.
pub const KEY: &str = "mix.json";
/// Of the JSON; what is changed comes with another one.
const VERSION: &str = "v1";

/// Pods before anything is expected: fewer would be an accident.
pub(crate) const FEWEST_PODS: u64 = 50;
/// What JSON holds exactly in every language.
const MOST_PODS: u64 = 1 << 53;
/// Kinds that are kept; many clusters have fewer.
pub(crate) const MOST_KINDS: usize = 256;
/// Bytes of a kind, of which models that its author names are the most. All kinds fit into a ConfigMap by far.
const LARGEST_KIND: usize = 1 << 10;
/// Bytes of all of it.
const LARGEST: usize = MOST_KINDS * (LARGEST_KIND + 1) + 100;
/// Part of all requests that have become others.
const NOTICEABLE: f64 = 0.01;

// === impl Learned ===

impl Learned {
    /// The text that is kept. Kinds with endless lists of models are left out: nobody asks for them twice.
    pub fn encode(&self) -> String {
        #[derive(Serialize)]
        struct Versioned<'a> {
            version: &'static str,
            #[serde(flatten)]
            learned: &'a Learned,
        }
        let mut learned = self.clone();
        learned.requests.retain(|request| json(request).len() <= LARGEST_KIND);
        json(&Versioned { version: VERSION, learned: &learned })
    }

    /// Reads what was kept. Anybody may have written it.
    pub fn decode(text: &str) -> Result<Self, String> {
        if text.len() > LARGEST {
            return Err(format!("{} bytes, expected {LARGEST} at most", text.len()));
        }
        let said = |error: serde_json::Error| error.to_string();
        let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).map_err(said)?;
        match fields.remove("version") {
            Some(version) if version == VERSION => {}
            Some(version) => return Err(format!("version {version} is not known here, expected {VERSION}")),
            None => return Err("field \"version\" is missing".to_owned()),
        }
        let learned: Self = serde_json::from_value(fields.into()).map_err(said)?;
        learned.check().map(|()| learned)
    }

    fn check(&self) -> Result<(), String> {
        let Self { pods, requests, .. } = self;
        if !(FEWEST_PODS..=MOST_PODS).contains(pods) {
            return Err(format!("{pods} pods, expected {FEWEST_PODS} to {MOST_PODS}"));
        }
        if requests.len() > MOST_KINDS {
            return Err(format!("{} requests, expected {MOST_KINDS} at most", requests.len()));
        }
        let mut seen = HashSet::new();
        for (at, Expected { kind, .. }) in requests.iter().enumerate() {
            kind.request.check().map_err(|why| format!("requests[{at}]: {why}"))?;
            if !seen.insert(kind) {
                return Err(format!("requests[{at}]: this kind comes twice"));
            }
        }
        Ok(())
    }

    /// Whether nodes would be ranked by this as they aren't by what is kept, or it would outweigh later pods for longer.
    pub fn is_news_to(&self, kept: &Self) -> bool {
        self.pods > kept.pods + kept.pods / 10 || distance(&self.requests, &kept.requests) >= NOTICEABLE
    }
}

/// The part of all requests that would have to be others for one mix to become the other.
fn distance(one: &[Expected], other: &[Expected]) -> f64 {
    let mut parts: HashMap<&Kind, f64> = HashMap::new();
    for (requests, sign) in [(one, 1.0), (other, -1.0)] {
        let all: f64 = requests.iter().map(|request| f64::from(request.weight)).sum();
        for Expected { kind, weight } in requests {
            *parts.entry(kind).or_default() += sign * f64::from(*weight) / all.max(1.0);
        }
    }
    parts.values().map(|part| part.abs()).sum::<f64>() / 2.0
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("lists, numbers and texts always serialise")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use divvy_api::{Cores, GpuRequest, Memory, MemoryAmount};
    use proptest::prelude::*;

    use super::*;
    use crate::demand::SchedulingConfig;
    use crate::fixture::{AGES, node, pod};
    use crate::{Index, ReservationTimeouts};

    fn request(gib: u64, weight: u32) -> Expected {
        let request =
            GpuRequest { cards: 1, memory: MemoryAmount::Absolute(Memory::mib(gib << 10)), cores: Cores::ZERO };
        let kind = Kind {
            request,
            profile: None,
            instances: false,
            models: Vec::new(),
            avoid_models: Vec::new(),
            cpu_milli: 500,
        };
        Expected { kind, weight }
    }

    fn learned(pods: u64, weights: &[(u64, u32)]) -> Learned {
        let requests = weights.iter().map(|(gib, weight)| request(*gib, *weight)).collect();
        Learned { revision: 7, pods, requests }
    }

    #[test]
    fn what_is_kept_is_read_as_it_was_written() {
        let mut whole = learned(60, &[(8, 750_000)]);
        whole.requests[0].kind.models = vec!["L4".to_owned()];
        whole.requests.push(Expected {
            kind: Kind { profile: Some("1g.10gb".parse().expect("a profile")), ..request(9, 1).kind },
            weight: 250_000,
        });
        let text = whole.encode();
        insta::assert_snapshot!(text, @r#"{"version":"v1","revision":7,"pods":60,"requests":[{"request":{"cards":1,"memory":"8Gi","cores":0},"models":["L4"],"cpuMilli":500,"weight":750000},{"request":{"cards":1,"memory":"9Gi","cores":0},"profile":"1g.10gb","cpuMilli":500,"weight":250000}]}"#);
        assert_eq!(Learned::decode(&text), Ok(whole));
    }

    #[test]
    fn what_is_wrong_with_it_is_said() {
        let good: serde_json::Value = serde_json::from_str(&learned(60, &[(8, 1), (9, 1)]).encode()).expect("JSON");
        let refused = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut bad = good.clone();
            change(&mut bad);
            Learned::decode(&bad.to_string()).expect_err("refused")
        };
        let cases = [
            refused(&|bad| *bad = "x".into()),
            refused(&|bad| drop(bad.as_object_mut().map(|fields| fields.remove("version")))),
            refused(&|bad| bad["version"] = "v2".into()),
            refused(&|bad| bad["revision"] = (-1).into()),
            refused(&|bad| bad["pods"] = 49.into()),
            refused(&|bad| bad["pods"] = u64::MAX.into()),
            refused(&|bad| bad["more"] = 1.into()),
            refused(&|bad| bad["requests"][1]["request"]["cards"] = 0.into()),
            refused(&|bad| bad["requests"][1]["request"]["cores"] = 101.into()),
            refused(&|bad| bad["requests"][1] = bad["requests"][0].clone()),
            refused(&|bad| bad["requests"] = (0..257).map(|_| bad["requests"][0].clone()).collect()),
            refused(&|bad| bad["requests"][0]["models"] = "x".repeat(LARGEST).into()),
            Learned::decode("{").expect_err("refused"),
        ];
        insta::assert_snapshot!(cases.join("\n"), @r#"
        invalid type: string "x", expected a map at line 1 column 3
        field "version" is missing
        version "v2" is not known here, expected v1
        invalid value: integer `-1`, expected u64
        49 pods, expected 50 to 9007199254740992
        18446744073709551615 pods, expected 50 to 9007199254740992
        unknown field `more`, expected one of `revision`, `pods`, `requests`
        requests[1]: 0 cards, allowed are 1 to 1024
        requests[1]: 101 cores, allowed are 0 to 100
        requests[1]: this kind comes twice
        257 requests, expected 256 at most
        262714 bytes, expected 262500 at most
        EOF while parsing an object at line 1 column 1
        "#);
    }

    #[test]
    fn all_that_is_written_can_be_read() {
        let models = |number: usize| (0..number).map(|model| format!("model-{model}")).collect();
        let kind = |number: usize| {
            let kind = Kind { models: models(number % 90), cpu_milli: 1, ..request(number as u64 + 1, 1).kind };
            Expected { kind, weight: 1 }
        };
        let mut large = Learned { requests: (0..MOST_KINDS).map(kind).collect(), ..learned(60, &[]) };
        let read = Learned::decode(&large.encode()).expect("readable");
        assert!((100..MOST_KINDS).contains(&read.requests.len()), "the longest are left out");
        large.requests.retain(|request| read.requests.contains(request));
        assert_eq!(large, read);
    }

    #[test]
    fn news_is_what_nodes_would_be_ranked_differently_by() {
        let kept = learned(1000, &[(8, 500_000), (16, 500_000)]);
        assert!(!learned(1100, &[(16, 500), (8, 500)]).is_news_to(&kept), "as many of the same");
        assert!(!learned(1001, &[(8, 508), (16, 492)]).is_news_to(&kept));
        assert!(learned(1001, &[(8, 511), (16, 489)]).is_news_to(&kept));
        assert!(learned(1001, &[(8, 50), (16, 49), (24, 1)]).is_news_to(&kept));
        assert!(learned(1101, &[(8, 1), (16, 1)]).is_news_to(&kept), "it has a longer memory");
        assert!(learned(60, &[(8, 1)]).is_news_to(&Learned { pods: 60, ..Learned::default() }));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_can_be_read_can_be_gone_on_from(
            pods in prop_oneof![FEWEST_PODS..5000, Just(MOST_PODS)],
            revision: u64,
            requests in prop::collection::vec(
                (prop_oneof![1..4u32, 1..=1024u32], prop_oneof![1..100_000u64, 1..=1u64 << 30], 0..=100u32, any::<u32>(), any::<u32>()),
                0..8,
            ),
        ) {
            let requests = requests.into_iter().map(|(cards, mib, cores, weight, cpu_milli)| {
                let asked = GpuRequest { cards, memory: MemoryAmount::Absolute(Memory::mib(mib)), cores: Cores::new(cores) };
                Expected { kind: Kind { request: asked, cpu_milli, ..request(1, 1).kind }, weight }
            });
            let learned = Learned { revision, pods, requests: requests.collect() };
            let Ok(learned) = Learned::decode(&learned.encode()) else { return Ok(()) };
            let index = Index::new(SchedulingConfig::default(), ReservationTimeouts::default());
            ["n1", "n2"].iter().zip(1..).for_each(|(name, cards)| index.apply_gpu_node(name, &node(name, cards)));
            index.restore(learned);
            let asked = pod("asked", 1, 8, 0);
            assert_eq!(index.explain(&asked, AGES).fitting, 2);
            (0..60).for_each(|number| index.apply_pod(&pod(&format!("p{number}"), 1, 8, 0), Instant::now()));
            let again = index.learned().expect("many pods");
            assert_eq!((again.revision, again.pods), (revision, pods + 60));
            assert_eq!(Learned::decode(&again.encode()).is_ok(), pods < MOST_PODS);
        }
    }
}

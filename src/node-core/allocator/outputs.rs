//! Variables and annotations of other systems, for programs that were written for them: copies, which limit nothing.

use std::collections::BTreeMap;

use divvy_api::annotation::{DialectAnnotation, DialectOutput};
use divvy_api::quantity::parse_count;
use divvy_api::{Memory, Share, Tier};

/// Share of one of a container's cards.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Position of the card on its node.
    pub index: usize,
    /// All memory of the card.
    pub memory: Memory,
    /// Part of it.
    pub share: Share,
}

/// Resource of gpushare whose number of units its programs look for.
const GPU_MEM: &str = "aliyun.com/gpu-mem";

/// Variables that programs of the container find, if its pod was written for another system and asks for them.
pub(super) fn variables(
    record: &DialectAnnotation,
    container: &str,
    given: &[Given],
    tier: Tier,
) -> Vec<(String, String)> {
    let of = |output: &DialectOutput| match output {
        DialectOutput::LimitVariables => limits(given),
        DialectOutput::Gpushare => gpushare(record, container, given, tier).unwrap_or_default(),
    };
    record.outputs.iter().flat_map(of).collect()
}

/// As HAMi's device plugin writes them (`pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go`), without its cache file.
fn limits(given: &[Given]) -> Vec<(String, String)> {
    let memory = given
        .iter()
        .enumerate()
        .map(|(at, given)| (format!("CUDA_DEVICE_MEMORY_LIMIT_{at}"), format!("{}m", given.share.memory.as_mib())));
    let cores = given.first().map(|first| ("CUDA_DEVICE_SM_LIMIT".to_owned(), first.share.cores.to_string()));
    memory.chain(cores).collect()
}

/// As gpushare's device plugin writes them (`pkg/gpu/nvidia/allocate.go`), with one difference: its programs take the part
/// `CONTAINER / DEV` of the memory that they see. Under a limit they see their share alone, and DEV is that too, as the true
/// value would give them a share of their share.
fn gpushare(record: &DialectAnnotation, container: &str, given: &[Given], tier: Tier) -> Option<Vec<(String, String)>> {
    let own = units(record.containers.get(container)?)?;
    let first = given.first()?;
    let all = if tier == Tier::Accounting { units_of_card(first, own) } else { own };
    let texts = [("IDX", first.index as u64), ("POD", units_of_pod(record)), ("CONTAINER", own), ("DEV", all)];
    Some(texts.map(|(name, number)| (format!("ALIYUN_COM_GPU_MEM_{name}"), number.to_string())).into())
}

/// Annotations of a pod as gpushare's extender and device plugin leave them, with true amounts: its command line and others add
/// them up. Empty unless the pod's record asks for them. `given`: the first share of each container that has any, in order.
pub fn annotations(record: &DialectAnnotation, given: &[(&str, Given)], assumed_ns: i128) -> BTreeMap<String, String> {
    let of_container = |(container, given): &(&str, Given)| Some((units(record.containers.get(*container)?)?, *given));
    let first = given.iter().find_map(of_container).filter(|_| record.outputs.contains(&DialectOutput::Gpushare));
    let Some((own, first)) = first else { return BTreeMap::new() };
    let texts = [
        ("IDX", first.index.to_string()),
        ("POD", units_of_pod(record).to_string()),
        ("DEV", units_of_card(&first, own).to_string()),
        ("ASSIGNED", "true".to_owned()),
        ("ASSUME_TIME", assumed_ns.to_string()),
    ];
    texts.map(|(name, text)| (format!("ALIYUN_COM_GPU_MEM_{name}"), text)).into()
}

/// Units that a container was written with; none if that is no positive number.
fn units(limits: &BTreeMap<String, String>) -> Option<u64> {
    parse_count(limits.get(GPU_MEM)?).ok().filter(|units| *units > 0)
}

fn units_of_pod(record: &DialectAnnotation) -> u64 {
    record.containers.values().filter_map(units).fold(0, u64::saturating_add)
}

/// Units of a card of which a container has so many.
fn units_of_card(given: &Given, own: u64) -> u64 {
    given.memory.as_mib() / (given.share.memory.as_mib() / own).max(1)
}

#[cfg(test)]
mod tests {
    use divvy_api::Cores;

    use super::*;

    fn given(index: usize, mib: u64) -> Given {
        let share = Share { memory: Memory::mib(mib), cores: Cores::new(30), ..Share::default() };
        Given { index, memory: Memory::mib(15 * 1024), share }
    }

    fn record(outputs: Vec<DialectOutput>) -> DialectAnnotation {
        let limits = |units: &str| [(GPU_MEM.to_owned(), units.to_owned())].into();
        let containers = [("a".to_owned(), limits("3")), ("b".to_owned(), limits("2"))].into();
        DialectAnnotation { containers, outputs, ..DialectAnnotation::default() }
    }

    fn text(record: &DialectAnnotation, container: &str, given: &[Given], tier: Tier) -> String {
        let variables = variables(record, container, given, tier);
        variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn limits_are_told_card_by_card() {
        let told =
            text(&record(vec![DialectOutput::LimitVariables]), "a", &[given(3, 3000), given(5, 3000)], Tier::Shim);
        assert_eq!(told, "CUDA_DEVICE_MEMORY_LIMIT_0=3000m CUDA_DEVICE_MEMORY_LIMIT_1=3000m CUDA_DEVICE_SM_LIMIT=30");
        assert_eq!(text(&record(Vec::new()), "a", &[given(0, 3000)], Tier::Shim), "", "nobody asks");
    }

    #[test]
    fn gpushare_programs_take_no_share_of_a_share() {
        let record = record(vec![DialectOutput::Gpushare]);
        let told = |tier| text(&record, "a", &[given(1, 3 * 1024)], tier);
        let names = "ALIYUN_COM_GPU_MEM_IDX=1 ALIYUN_COM_GPU_MEM_POD=5 ALIYUN_COM_GPU_MEM_CONTAINER=3";
        assert_eq!(told(Tier::Shim), format!("{names} ALIYUN_COM_GPU_MEM_DEV=3"));
        assert_eq!(told(Tier::Accounting), format!("{names} ALIYUN_COM_GPU_MEM_DEV=15"));
        assert_eq!(text(&record, "other", &[given(0, 1)], Tier::Shim), "", "a container that isn't in the record");
    }

    #[test]
    fn gpushare_annotations_have_true_amounts() {
        let record = record(vec![DialectOutput::Gpushare]);
        let given = [("sidecar", given(0, 1)), ("a", given(1, 3 * 1024))];
        let text = |record: &DialectAnnotation| {
            let all = annotations(record, &given, 1_700_000_000_000_000_000);
            all.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            text(&record),
            "ALIYUN_COM_GPU_MEM_ASSIGNED=true ALIYUN_COM_GPU_MEM_ASSUME_TIME=1700000000000000000 \
             ALIYUN_COM_GPU_MEM_DEV=15 ALIYUN_COM_GPU_MEM_IDX=1 ALIYUN_COM_GPU_MEM_POD=5"
        );
        assert_eq!(text(&DialectAnnotation { outputs: Vec::new(), ..record }), "", "nobody asks");
    }

    #[test]
    fn odd_records_tell_nothing() {
        let mut odd = record(vec![DialectOutput::Gpushare]);
        odd.containers.insert("a".to_owned(), [(GPU_MEM.to_owned(), "many".to_owned())].into());
        assert_eq!(text(&odd, "a", &[given(0, 1)], Tier::Shim), "");
        odd.containers.insert("a".to_owned(), [(GPU_MEM.to_owned(), u64::MAX.to_string())].into());
        assert!(text(&odd, "a", &[given(0, 1)], Tier::Accounting).contains("GPU_MEM_POD=18446744073709551615"));
        assert_eq!(text(&odd, "a", &[], Tier::Shim), "");
    }
}

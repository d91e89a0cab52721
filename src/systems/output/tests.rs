use divvy_api::Cores;

use super::*;

/// Resource of gpushare.
const GPU_MEM: &str = "aliyun.com/gpu-mem";

fn share(index: usize, mib: u64) -> AllocatedShare {
    let share = Share { memory: Memory::mib(mib), cores: Cores::new(30), ..Share::default() };
    AllocatedShare { index, memory: Memory::mib(15 * 1024), share }
}

fn record(outputs: &[&str]) -> DialectAnnotation {
    let limits = |units: &str| [(GPU_MEM.to_owned(), units.to_owned())].into();
    let containers = [("a".to_owned(), limits("3")), ("b".to_owned(), limits("2"))].into();
    let outputs = outputs.iter().map(ToString::to_string).collect();
    DialectAnnotation { containers, outputs, ..DialectAnnotation::default() }
}

fn text(record: &DialectAnnotation, container: &str, shares: &[AllocatedShare], tier: Tier) -> String {
    let variables = variables(&Allocation { record, container, shares, tier });
    variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn limits_are_told_card_by_card() {
    let told = text(&record(&["limit-variables"]), "a", &[share(3, 3000), share(5, 3000)], Tier::Shim);
    assert_eq!(told, "CUDA_DEVICE_MEMORY_LIMIT_0=3000m CUDA_DEVICE_MEMORY_LIMIT_1=3000m CUDA_DEVICE_SM_LIMIT=30");
    assert_eq!(text(&record(&[]), "a", &[share(0, 3000)], Tier::Shim), "", "nobody asks");
    assert_eq!(text(&record(&["later"]), "a", &[share(0, 3000)], Tier::Shim), "", "a newer webhook's");
}

#[test]
fn gpushare_programs_take_no_share_of_a_share() {
    let record = record(&["gpushare"]);
    let told = |tier| text(&record, "a", &[share(1, 3 * 1024)], tier);
    let names = "ALIYUN_COM_GPU_MEM_IDX=1 ALIYUN_COM_GPU_MEM_POD=5 ALIYUN_COM_GPU_MEM_CONTAINER=3";
    assert_eq!(told(Tier::Shim), format!("{names} ALIYUN_COM_GPU_MEM_DEV=3"));
    assert_eq!(told(Tier::Accounting), format!("{names} ALIYUN_COM_GPU_MEM_DEV=15"));
    assert_eq!(text(&record, "other", &[share(0, 1)], Tier::Shim), "", "a container that isn't in the record");
}

#[test]
fn gpushare_annotations_have_true_amounts() {
    let record = record(&["gpushare"]);
    let shares = [("sidecar", share(0, 1)), ("a", share(1, 3 * 1024))];
    let text = |record: &DialectAnnotation| {
        let all = annotations(record, &shares, 1_700_000_000_000_000_000);
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
    let mut odd = record(&["gpushare"]);
    odd.containers.insert("a".to_owned(), [(GPU_MEM.to_owned(), "many".to_owned())].into());
    assert_eq!(text(&odd, "a", &[share(0, 1)], Tier::Shim), "");
    odd.containers.insert("a".to_owned(), [(GPU_MEM.to_owned(), u64::MAX.to_string())].into());
    assert!(text(&odd, "a", &[share(0, 1)], Tier::Accounting).contains("GPU_MEM_POD=18446744073709551615"));
    assert_eq!(text(&odd, "a", &[], Tier::Shim), "");
}

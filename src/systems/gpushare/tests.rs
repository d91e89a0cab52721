use crate::tests::*;

#[test]
fn gpushare() {
    let mem = "aliyun.com/gpu-mem";
    assert_eq!(one("gpushare", &[(mem, "3")]), "gpu 1, gpumem 3072; card-policy: binpack");
    assert_eq!(one("{name: gpushare, unit: Mi}", &[(mem, "300")]), "gpu 1, gpumem 300; card-policy: binpack");
    let two = pod(&[&[(mem, "3")], &[(mem, "3")]]);
    assert_eq!(
        says("[gpushare]", &two),
        "gpu 1, gpumem 3072 | gpu 1, gpumem 3072; card-policy: binpack; same-card: true"
    );
    let spread = annotated(pod(&[&[(mem, "3")]]), &[(key::CARD_POLICY, "spread")]);
    assert_eq!(says("[gpushare]", &spread), "gpu 1, gpumem 3072");
    assert_eq!(
        one("gpushare", &[(mem, "4"), ("aliyun.com/gpu-core.percentage", "25")]),
        "gpu 1, gpucores 25, gpumem 4096; card-policy: binpack"
    );
    let mut ack = pod(&[&[(mem, "8")]]);
    ack.labels.insert("aliyun.com/gpu-count".to_owned(), "2".to_owned());
    assert_eq!(says("[gpushare]", &ack), "gpu 2, gpumem 4096; card-policy: binpack");
    ack.labels.insert("aliyun.com/gpu-count".to_owned(), "3".to_owned());
    assert!(says("[gpushare]", &ack).ends_with("8192Mi can't be divided by 3 GPUs: set a multiple of 3"));
    ack.labels.insert("aliyun.com/gpu-count".to_owned(), "many".to_owned());
    assert_eq!(
        says("[gpushare]", &ack),
        "refused: label aliyun.com/gpu-count: many: is not a number of GPUs: expected 1 to 1024"
    );
    let copied =
        annotated(pod(&[&[(mem, "3")]]), &[("ALIYUN_COM_GPU_MEM_IDX", "0"), ("ALIYUN_COM_GPU_MEM_ASSIGNED", "true")]);
    let translation = translated_in("[gpushare]", &copied, false).expect("admitted").expect("translated");
    assert_eq!(translation.annotations["ALIYUN_COM_GPU_MEM_IDX"], None, "of the pod that this was copied from");
    assert_eq!(translation.record.containers["c0"], amounts(&[(mem, "3")]));
}

#[test]
fn requests_follow_limits() {
    let mut alone = pod(&[&[("aliyun.com/gpu-mem", "3")]]);
    alone.containers[0].limits.clear();
    assert!(
        says("[gpushare]", &alone)
            .ends_with("requests[aliyun.com/gpu-mem]: 3: is a request without a limit: set the limit")
    );
    let mut other = pod(&[&[("aliyun.com/gpu-mem", "3")]]);
    other.containers[0].requests = amounts(&[("aliyun.com/gpu-mem", "2")]);
    assert!(says("[gpushare]", &other).contains("3: isn't the request, which is 2"));
    other.containers[0].requests = amounts(&[("aliyun.com/gpu-mem", "3000m")]);
    assert!(says("[gpushare]", &other).starts_with("gpu 1"), "the same quantity");
}

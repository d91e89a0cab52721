use crate::Pod;
use crate::tests::*;

/// With 2 TFLOPS to the percent.
const DIALECT: &str = "[{name: tensor-fusion, tflops: 200}]";

fn labelled(mut pod: Pod, enabled: &str) -> Pod {
    pod.labels.insert("tensor-fusion.ai/enabled".to_owned(), enabled.to_owned());
    pod
}

/// A pod of so many containers with its label and these annotations, whose domain is left out.
fn asking(containers: usize, annotations: &[(&str, &str)]) -> Pod {
    let mut asking = pod(&vec![&[][..]; containers]);
    let keys = annotations.iter().map(|(key, value)| (format!("tensor-fusion.ai/{key}"), (*value).to_owned()));
    asking.annotations.extend(keys);
    labelled(asking, "true")
}

/// What becomes of a pod of one container.
fn tensor_fusion(annotations: &[(&str, &str)]) -> String {
    says(DIALECT, &asking(1, annotations))
}

#[test]
fn parts_by_annotation() {
    let printed = [("tflops-request", "10"), ("tflops-limit", "20"), ("vram-request", "4Gi"), ("vram-limit", "4Gi")];
    assert_eq!(tensor_fusion(&printed), "gpu 1, gpucores 5, gpumem 4096; compute-limit: 10");
    assert_eq!(tensor_fusion(&[("vram-limit", "1Gi")]), "gpu 1, gpumem 1024", "a limit is the request");
    let bytes = tensor_fusion(&[("vram-request", "1000000")]);
    assert!(bytes.ends_with("1000000: is less than 1Mi: a number without a suffix is in bytes"), "{bytes}");
    assert_eq!(tensor_fusion(&[("vram-request", "16000Mi"), ("gpu-count", "4")]), "gpu 4, gpumem 16000");
    let percent = [("compute-percent-request", "30"), ("compute-percent-limit", "30")];
    assert_eq!(tensor_fusion(&percent), "gpu 1, gpucores 30, gpumem-percentage 30");
    assert_eq!(
        tensor_fusion(&[("tflops-request", "71200m")]),
        "gpu 1, gpucores 36, gpumem-percentage 36",
        "rounded up"
    );
    assert_eq!(tensor_fusion(&[("compute-percent-limit", "100"), ("vram-limit", "")]), "gpu 1");
    assert!(
        tensor_fusion(&[("compute-percent-limit", "100"), ("vram-limit", "8Gi")]).contains("; ! all compute of each")
    );
    assert_eq!(tensor_fusion(&[("vram-request", "4Gi"), ("vram-limit", "0")]), "gpu 1, gpumem 4096");
}

#[test]
fn whole_gpus_of_a_model() {
    let whole = [("dedicated-gpu", "true"), ("gpu-model", "H100"), ("vendor", "NVIDIA"), ("is-local-gpu", "true")];
    assert_eq!(tensor_fusion(&whole), "gpu 1; card-model: H100");
    assert_eq!(tensor_fusion(&[("isolation", "shared"), ("gpu-count", "2")]), "gpu 2");
    let amount = "! annotation tensor-fusion.ai/vram-limit: has no effect: whole GPUs are asked for";
    assert_eq!(tensor_fusion(&[("isolation", "shared"), ("vram-limit", "x")]), format!("gpu 1; {amount}"));
    assert_eq!(tensor_fusion(&[("isolation", "soft"), ("vram-request", "1Gi")]), "gpu 1, gpumem 1024");
    let listed = tensor_fusion(&[("vram-request", "1Gi"), ("gpu-model", "A100_SXM")]);
    assert!(
        listed.ends_with("A100_SXM: is a name of TensorFusion's own: write divvy.dev/card-model in its place"),
        "{listed}"
    );
}

#[test]
fn containers_are_named() {
    let of_two = |annotations: &[(&str, &str)]| says(DIALECT, &asking(2, annotations));
    let named = |names: &str| of_two(&[("vram-request", "1Gi"), ("inject-container", names)]);
    assert_eq!(named("c1"), "- | gpu 1, gpumem 1024");
    assert!(named("c0, c1").contains("names several containers, which have one part together"));
    assert!(named("c2").ends_with("c2: is no container of the pod"));
    assert!(of_two(&[("vram-request", "1Gi")]).contains("names no container, and the pod has several"));
    let mut both = asking(1, &[("vram-request", "1Gi")]);
    both.containers[0].limits = amounts(&[("nvidia.com/gpu", "1")]);
    let limit = "spec.containers[0].resources.limits[nvidia.com/gpu]";
    assert!(says(DIALECT, &both).contains(&format!("annotation tensor-fusion.ai/vram-request and {limit} both say")));
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let refusals = [
        (("workload-profile", "small"), "names an object that Divvy doesn't read"),
        (("gpu-indices", "0,1"), "numbers the GPUs of a node"),
        (("container-gpu-count", r#"{"c0":1}"#), "is by container"),
        (("isolation", "partitioned"), "is an instance of MIG"),
        (("isolation", "none"), "is unknown"),
        (("vendor", "AMD"), "Divvy has GPUs of NVIDIA"),
        (("gpu-count", "0"), "is not a number of GPUs"),
        (("tflops-request", "300"), "is more than the 200 TFLOPS of a GPU"),
        (("tflops-request", "many"), "is not a number of TFLOPS"),
        (("compute-percent-request", "101"), "is not a percentage of a GPU"),
        (("vram-limit", "1Mi"), "is less than annotation tensor-fusion.ai/vram-request requests"),
    ];
    for ((key, value), problem) in refusals {
        let said = tensor_fusion(&[("vram-request", "1Gi"), (key, value)]);
        assert!(said.starts_with(&format!("refused: annotation tensor-fusion.ai/{key}: {value}: ")), "{said}");
        assert!(said.contains(problem), "{said}");
    }
    let both = [("tflops-request", "10"), ("compute-percent-request", "10")];
    assert!(tensor_fusion(&both).contains("both say the same thing"));
    let unset = says("[tensor-fusion]", &asking(1, &[("tflops-request", "10")]));
    assert!(unset.contains("set tflops of the dialect tensor-fusion to that of the cluster's GPUs"), "{unset}");
}

#[test]
fn what_is_not_kept_is_told() {
    let annotations = [
        ("vram-request", "4Gi"),
        ("vram-limit", "8Gi"),
        ("is-local-gpu", "false"),
        ("isolation", "hard"),
        ("gpupool", "default-pool"),
        ("autoscale", "true"),
        ("gpu-ids", "gpu-1"),
        ("index", "3"),
    ];
    let pod = asking(1, &annotations);
    let translation = translated_in(DIALECT, &pod, false).expect("admitted").expect("translated");
    let removed = translation.annotations.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key);
    assert_eq!(removed.count(), annotations.len());
    let told = ["is-local-gpu", "isolation", "vram-limit", "gpupool", "autoscale"];
    assert_eq!(translation.warnings.len(), told.len(), "{:?}", translation.warnings);
    for key in told {
        let is_told = |warning: &String| warning.starts_with(&format!("annotation tensor-fusion.ai/{key}: "));
        assert!(translation.warnings.iter().any(is_told), "{key}");
    }
    let idle = asking(1, &[("compute-percent-request", "10"), ("compute-percent-limit", "50")]);
    let idle = said(DIALECT, &idle, false);
    assert!(idle.contains("! annotation tensor-fusion.ai/compute-percent-limit: not kept: the namespace"), "{idle}");
}

#[test]
fn label_decides() {
    let request = ("tensor-fusion.ai/vram-request", "1Gi");
    let unlabelled = says(DIALECT, &annotated(pod(&[&[]]), &[request]));
    assert!(
        unlabelled.starts_with("-; ! annotations tensor-fusion.ai/…: removed: they have no effect without"),
        "{unlabelled}"
    );
    let off = says(DIALECT, &labelled(annotated(pod(&[&[]]), &[request]), "false"));
    assert!(off.starts_with("-; ! label tensor-fusion.ai/enabled: false: the pod is not translated"), "{off}");
    let whole = labelled(annotated(pod(&[&[("nvidia.com/gpu", "1")]]), &[("tensor-fusion.ai/gpupool", "a")]), "true");
    assert!(says(DIALECT, &whole).starts_with("-; ! annotation tensor-fusion.ai/gpupool: has no effect"));
}

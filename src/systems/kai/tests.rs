use crate::tests::*;

#[test]
fn kai_asks_by_annotation() {
    let kai = |annotations: &[(&str, &str)]| says("[kai]", &annotated(pod(&[&[], &[]]), annotations));
    assert_eq!(kai(&[("gpu-fraction", "0.5")]), "gpu 1, gpumem-percentage 50 | -");
    assert_eq!(kai(&[("gpu-fraction", "0.333"), ("gpu-fraction-num-devices", "2")]), "gpu 2, gpumem-percentage 33 | -");
    assert_eq!(kai(&[("gpu-memory", "4000"), ("gpu-fraction-container-name", "c1")]), "- | gpu 1, gpumem 4000");
    for fraction in ["1", "1.0", "0", "0.0", "0.001", "-0.5", "half", ".", ""] {
        assert!(kai(&[("gpu-fraction", fraction)]).starts_with("refused: annotation gpu-fraction: "), "{fraction}");
    }
    assert!(kai(&[("gpu-fraction", "0.5"), ("gpu-memory", "1")]).contains("both say the same thing"));
    assert!(kai(&[("gpu-memory", "4Gi")]).contains("is not a number of MiB"));
    assert!(kai(&[("gpu-fraction-num-devices", "2")]).contains("needs gpu-fraction or gpu-memory"));
    assert!(
        kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-container-name", "x")]).contains("x: is no container of the pod")
    );
    let both = annotated(pod(&[&[("nvidia.com/gpu", "1")]]), &[("gpu-fraction", "0.5")]);
    assert!(
        says("[kai]", &both)
            .contains("annotation gpu-fraction and spec.containers[0].resources.limits[nvidia.com/gpu] both say")
    );
}

#[test]
fn kai_limits_beyond_the_request_are_told_to_have_no_effect() {
    let annotations = [
        ("gpu-memory", "4000"),
        ("gpu-memory.limit", "8Gi"),
        ("nvidia.com/container.c0.gpu-memory.limit", "8Gi"),
        ("nvidia.com/container.c0.gpu-memory.request", "4000Mi"),
        ("nvidia.com/container.c0.other", "left"),
    ];
    let pod = annotated(pod(&[&[]]), &annotations);
    assert_eq!(
        says("[kai]", &pod),
        "gpu 1, gpumem 4000; ! annotation gpu-memory.limit: has no effect: a pod has no more memory than it requests; \
         ! annotation nvidia.com/container.c0.gpu-memory.limit: has no effect: a pod has no more memory than it requests"
    );
    let translation = translated_in("[kai]", &pod, false).expect("admitted").expect("translated");
    let removed = translation.annotations.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.as_str());
    assert_eq!(removed.collect::<Vec<_>>(), annotations.map(|(key, _)| key)[..4]);
}

/// A container's own annotation of KAI.
fn own(end: &str) -> String {
    format!("nvidia.com/container.c1.{end}")
}

/// What becomes of a pod of two containers with these annotations, where `own.` stands for those of the second one.
fn kai_says(annotations: &[(&str, &str)]) -> String {
    let keys: Vec<String> =
        annotations.iter().map(|(key, _)| key.strip_prefix("own.").map_or_else(|| (*key).to_owned(), own)).collect();
    let annotations: Vec<(&str, &str)> =
        keys.iter().zip(annotations).map(|(key, (_, value))| (&**key, *value)).collect();
    says("[kai]", &annotated(pod(&[&[], &[]]), &annotations))
}

#[test]
fn kai_memory_of_a_container_is_its_request() {
    let (request, limit) = ("own.gpu-memory.request", "own.gpu-memory.limit");
    for (text, mib) in [
        ("512Mi", "512"),
        ("1Gi", "1024"),
        ("7680Mi", "7680"),
        ("4096M", "3907"),
        ("1048577", "2"),
        (" 1.5Gi ", "1536"),
    ] {
        assert_eq!(kai_says(&[(request, text)]), format!("- | gpu 1, gpumem {mib}"));
        assert_eq!(kai_says(&[(limit, text)]), format!("- | gpu 1, gpumem {mib}"), "it is the request too");
        assert_eq!(kai_says(&[(request, text), (limit, text)]), format!("- | gpu 1, gpumem {mib}"));
    }
    assert_eq!(
        kai_says(&[(request, "4Gi"), (limit, "8Gi")]),
        "- | gpu 1, gpumem 4096; ! annotation nvidia.com/container.c1.gpu-memory.limit: has no effect: a pod has no more memory than it requests"
    );
    assert_eq!(kai_says(&[(request, "1Gi"), ("gpu-fraction-num-devices", "2")]), "- | gpu 2, gpumem 1024");
    assert_eq!(kai_says(&[(request, "1Gi"), ("gpu-fraction-container-name", "c1")]), "- | gpu 1, gpumem 1024");
    let earlier = "nvidia.cdi.k8s.io/c1.gpu-memory.request";
    assert_eq!(kai_says(&[(earlier, "1Gi")]), "- | gpu 1, gpumem 1024");
    assert_eq!(kai_says(&[(earlier, "1Gi"), (request, "1024Mi")]), "- | gpu 1, gpumem 1024");
    let mut init = annotated(pod(&[&[], &[]]), &[("nvidia.com/container.c0.gpu-memory.request", "1Gi")]);
    init.containers[0].is_app = false;
    assert_eq!(says("[kai]", &init), "gpu 1, gpumem 1024 | -");
    assert_eq!(says("[nano-gpu]", &init), "as it is", "switched off");
}

#[test]
fn kai_memory_of_a_container_that_is_wrong_is_refused() {
    let (request, limit) = ("own.gpu-memory.request", "own.gpu-memory.limit");
    let of = |key: &str, text: &str, problem: &str| {
        let said = kai_says(&[(key, text)]);
        let key = key.strip_prefix("own.").map_or_else(|| key.to_owned(), own);
        assert_eq!(said, format!("refused: annotation {key}: {text}: {problem}"));
    };
    for key in [request, limit] {
        of(key, "4096", "is less than 1Mi: a number without a suffix is in bytes");
        of(key, "1048575", "is less than 1Mi: a number without a suffix is in bytes");
        of(key, "0", "is less than 1Mi: a number without a suffix is in bytes");
        of(key, "half", "is not an amount of memory: expected a quantity such as 8Gi");
        of(key, "-1Gi", "is not an amount of memory: expected a quantity such as 8Gi");
        of(key, "5Ti", "is more memory than any GPU has");
    }
    let unknown = "is unknown: expected nvidia.com/container.c1.gpu-memory.request or …limit";
    of("own.gpu-memory.requests", "1Gi", unknown);
    of("nvidia.com/container.c7.gpu-memory.request", "1Gi", "c7 is no container of the pod");
    let nobody = "names no container: expected nvidia.com/container.CONTAINER.gpu-memory.request";
    of("nvidia.com/container.gpu-memory.request", "1Gi", nobody);
    assert_eq!(
        kai_says(&[(request, "8Gi"), (limit, "4Gi")]),
        "refused: annotation nvidia.com/container.c1.gpu-memory.limit: 4Gi: is less than annotation nvidia.com/container.c1.gpu-memory.request requests: leave one of them out"
    );
    let other = "nvidia.com/container.c0.gpu-memory.request";
    assert!(kai_says(&[(other, "1Gi"), (limit, "1Gi")]).starts_with(&format!(
        "refused: annotation {}: 1Gi: is of another container than annotation {other}, and one can have",
        own("gpu-memory.limit")
    )));
}

#[test]
fn kai_memory_of_a_container_is_written_once() {
    let request = "own.gpu-memory.request";
    let twice = |first: &str, second: &str, said: &str| {
        let both = "both say the same thing, or its opposite: remove one of them";
        assert_eq!(said, format!("refused: annotation {first} and {second} {both}"));
    };
    let key = &format!("annotation {}", own("gpu-memory.request"));
    twice("gpu-fraction", key, &kai_says(&[("gpu-fraction", "0.5"), (request, "1Gi")]));
    let named = ("gpu-fraction-container-name", "c1");
    assert_eq!(kai_says(&[("gpu-memory", "1024"), (request, "1Gi"), named]), "- | gpu 1, gpumem 1024");
    twice("gpu-memory", key, &kai_says(&[("gpu-memory", "1000"), (request, "1Gi"), named]));
    twice("gpu-memory", key, &kai_says(&[("gpu-memory", "1024"), (request, "1Gi")]));
    let other = ("gpu-fraction-container-name", "c0");
    twice("gpu-fraction-container-name", key, &kai_says(&[(request, "1Gi"), other]));
    let earlier = "nvidia.cdi.k8s.io/c1.gpu-memory.request";
    twice(earlier, key, &kai_says(&[(earlier, "2Gi"), (request, "1Gi")]));
    let mut whole = annotated(pod(&[&[], &[("nvidia.com/gpu", "1")]]), &[(&own("gpu-memory.request"), "1Gi")]);
    let limit = "spec.containers[1].resources.limits[nvidia.com/gpu]";
    twice(&own("gpu-memory.request"), limit, &says("[kai]", &whole));
    whole.containers[1].limits = amounts(&[("nano-gpu.io/gpu-core", "20")]);
    assert!(says("[kai, nano-gpu]", &whole).contains("a pod is translated from one system"));
}

#[test]
fn kai_words_beside_a_containers_memory() {
    let beside = |key: &str, text: &str| kai_says(&[("own.gpu-memory.request", "1Gi"), (key, text)]);
    for key in ["own.gpu-compute.mode", "kai.scheduler/gpu-compute-sharing-mode"] {
        let written = key.strip_prefix("own.").map_or_else(|| key.to_owned(), own);
        assert_eq!(beside(key, "time-slicing"), "- | gpu 1, gpumem 1024");
        assert_eq!(
            beside(key, "sm-sharing"),
            format!(
                "- | gpu 1, gpumem 1024; ! annotation {written}: has no effect: how pods share compute is up to the isolation tier of the node"
            )
        );
        for text in ["mps", ""] {
            let problem = "is unknown: expected time-slicing or sm-sharing";
            assert_eq!(beside(key, text), format!("refused: annotation {written}: {text}: {problem}"));
        }
    }
    let portion = "kai.scheduler/container.c1.gpu-memory.portion.limit";
    assert_eq!(
        kai_says(&[("gpu-fraction", "0.5"), (portion, "0.9")]),
        format!(
            "gpu 1, gpumem-percentage 50 | -; ! annotation {portion}: has no effect: a pod has no more memory than it requests"
        )
    );
    // Whose they are without a request.
    assert_eq!(kai_says(&[("own.gpu-compute.mode", "sm-sharing"), (portion, "0.9")]), "as it is");
}

#[test]
fn kai_annotations_of_a_bound_pod_are_removed() {
    let (chosen, request, cdi) = (own("gpus.devices"), own("gpu-memory.request"), "nvidia.cdi.k8s.io/container.c1");
    let alone = annotated(pod(&[&[], &[]]), &[(cdi, "management.nvidia.com/gpu=all"), (&chosen, "GPU-0")]);
    assert_eq!(says("[kai]", &alone), "as it is", "it requests nothing");
    let copied = annotated(alone, &[(&request, "1Gi")]);
    assert_eq!(says("[kai]", &copied), "- | gpu 1, gpumem 1024", "silently");
    let translation = translated_in("[kai]", &copied, false).expect("admitted").expect("translated");
    assert_eq!(translation.annotations, [(request.clone(), None), (chosen.clone(), None)].into(), "CDI's stays");
    let fraction = [("gpu-fraction", "0.5"), ("gpu-fraction-container-name", "c1")];
    let fraction = annotated(copied, &fraction);
    assert_eq!(says("[kai]", &fraction), "- | gpu 1, gpumem-percentage 50", "of which the request is the binder's");
    let translation = translated_in("[kai]", &fraction, false).expect("admitted").expect("translated");
    assert!(translation.annotations.contains_key(&request) && translation.annotations.contains_key(&chosen));
}

#[test]
fn kai_traps() {
    let kai = |annotations: &[(&str, &str)]| says("[kai]", &annotated(pod(&[&[], &[]]), annotations));
    assert_eq!(
        kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-container-name", "c1")]),
        "- | gpu 1, gpumem-percentage 50"
    );
    assert_eq!(kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "2")]), "gpu 2, gpumem-percentage 50 | -");
    let refused =
        |text: &str, problem: &str| assert!(text.starts_with("refused: ") && text.contains(problem), "{text}");
    refused(&kai(&[("gpu-fraction-container-name", "c1")]), "needs gpu-fraction or gpu-memory");
    refused(&kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-num-devices", "0")]), "is not a number of GPUs");
    refused(&kai(&[("gpu-fraction", "1")]), "is not a part of a GPU");
    refused(&kai(&[("gpu-memory", "0")]), "is not a number of MiB");
    refused(&kai(&[("gpu-memory", "4Gi")]), "is not a number of MiB");
    refused(&kai(&[("gpu-fraction", "0.5"), ("gpu-fraction-container-name", "c9")]), "is no container of the pod");
}

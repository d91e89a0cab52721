use super::*;

fn job(template: Value) -> Value {
    json!({ "metadata": { "name": "train" }, "spec": { "template": template } })
}

/// Two GPUs of 8 GiB each, as somebody writes it; the API server fills requests in for pods alone.
fn shared() -> Value {
    let limits = json!({ "nvidia.com/gpu": "2", "nvidia.com/gpumem": "8Gi", "nvidia.com/gpucores": "30" });
    pod(json!([{ "name": "main", "resources": { "limits": limits } }, { "name": "log" }]))
}

fn ask_job(operation: &str, job: &Value, old: Value) -> Reply {
    ask(Endpoint::Jobs, &Settings::default(), &question(operation, "Job", job.clone(), old))
}

fn completed() -> Value {
    let job = job(shared());
    apply(&job, &ask_job("CREATE", &job, Value::Null).patch)
}

#[test]
fn template_of_a_new_job_is_completed_as_its_pods_are() {
    insta::assert_snapshot!(ask_job("CREATE", &job(shared()), Value::Null).operations(), @r#"
    add /spec/template/spec/containers/0/resources/limits/nvidia.com~1gpucores "60"
    add /spec/template/spec/containers/0/resources/limits/nvidia.com~1gpumem "16384"
    add /spec/template/spec/containers/0/resources/requests {"nvidia.com/gpu":"2","nvidia.com/gpucores":"60","nvidia.com/gpumem":"16384"}
    add /spec/template/spec/containers/1/env [{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}]
    add /spec/template/metadata/annotations {"divvy.dev/request":"{\"version\":\"v1\",\"containers\":{\"main\":{\"cards\":2,\"memory\":\"8Gi\",\"cores\":30}}}"}
    "#);
    // Its pods come as they are to be.
    let template = &completed()["spec"]["template"];
    assert!(mutate_new(template).patch.is_empty() && validate_new(template).allowed);
    let pod = apply(&shared(), &mutate_new(&shared()).patch);
    assert_eq!(template["metadata"]["annotations"], pod["metadata"]["annotations"]);
    assert_eq!(template["spec"]["containers"], pod["spec"]["containers"]);
}

#[test]
fn template_without_metadata_gets_some() {
    let mut template = shared();
    template.as_object_mut().unwrap().remove("metadata");
    let job = job(template);
    let completed = apply(&job, &ask_job("CREATE", &job, Value::Null).patch);
    assert!(completed["spec"]["template"]["metadata"]["annotations"]["divvy.dev/request"].is_string());
}

#[test]
fn job_whose_pods_would_be_refused_is_refused_when_it_is_new() {
    let wrong = job(pod(json!([container("main", json!({ "nvidia.com/gpumem": "8G" }))])));
    insta::assert_snapshot!(ask_job("CREATE", &wrong, Value::Null).refusal(), @r#"422 Invalid: spec.containers[0].resources.limits[nvidia.com/gpumem]: "8G" is ambiguous: did you mean "8Gi"?"#);
    for old in [wrong.clone(), completed()] {
        assert!(ask_job("UPDATE", &wrong, old).operations().is_empty());
    }
}

#[test]
fn job_that_is_applied_again_keeps_its_template() {
    let stored = completed();
    // kubectl keeps what the manifest doesn't name, and so the annotation.
    let mut applied = stored.clone();
    let written = shared()["spec"]["containers"][0]["resources"]["limits"].take();
    applied["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = written;
    // kubectl replace doesn't.
    for again in [stored.clone(), applied, job(shared())] {
        let reply = ask_job("UPDATE", &again, stored.clone());
        assert_eq!(apply(&again, &reply.patch), stored);
    }
}

#[test]
fn job_from_before_its_namespace_was_labelled_is_left() {
    let old = job(shared());
    let mut resumed = old.clone();
    resumed["spec"]["suspend"] = false.into();
    assert!(ask_job("UPDATE", &resumed, old).operations().is_empty());
}

#[test]
fn job_without_gpus_is_left() {
    let other = job(pod(json!([{ "name": "main" }])));
    assert!(ask_job("CREATE", &other, Value::Null).operations().is_empty());
    assert!(ask_job("CREATE", &json!({ "spec": null }), Value::Null).operations().is_empty());
}

#[test]
fn queued_job_that_is_not_completed_is_warned_about() {
    let advise = |kind: &str, mut job: Value| {
        job["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "team-a" });
        ask(Endpoint::Templates, &Settings::default(), &question("CREATE", kind, job, Value::Null)).warnings.join("\n")
    };
    insta::assert_snapshot!(advise("Job", job(shared())), @"label kueue.x-k8s.io/queue-name: Kueue counts the template as it is written, not what its pods request once they are admitted: label the namespace divvy.dev/complete-jobs=true, and create the Job again");
    assert_eq!(advise("Job", completed()), "");
    // Kueue counts these by their pods.
    assert_eq!(advise("Deployment", job(shared())), "");
}

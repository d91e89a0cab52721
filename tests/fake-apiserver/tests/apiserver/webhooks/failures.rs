//! Webhooks that don't answer as they should.

use super::*;

#[tokio::test]
async fn unreachable_webhook_follows_the_failure_policy() {
    let bench = Bench::new().await;
    let server = webhook(|_| allowed()).await;
    register(&bench, "Validating", "a", &server, &[entry("v", &server)]);
    let message = async |bench: &Bench| {
        let (code, status) = bench.post(MAPS, &config_map("a", &json!({}))).await;
        assert_eq!((code.as_u16(), &status["reason"]), (500, &json!("InternalError")), "{status}");
        status["message"].as_str().unwrap().to_owned()
    };
    let start = "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: Post \
                 \"https://hooks.default.svc:443/v?timeout=10s\": ";
    bench.server.resolve("default", "hooks", &[]);
    assert_eq!(message(&bench).await, format!("{start}no endpoints available for service \"hooks\""));
    let address = server.address;
    bench.server.resolve("default", "hooks", &[address]);
    drop(server);
    let refused = message(&bench).await;
    assert!(refused.starts_with(start) && refused.to_lowercase().contains("connection refused"), "{refused}");

    let ignore = json!([{ "op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore" }]);
    let configuration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/a";
    bench.patch("json-patch+json", configuration, &ignore).await;
    assert_eq!(bench.post(MAPS, &config_map("a", &json!({}))).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn only_who_has_a_certificate_of_the_bundle_is_believed() {
    let bench = Bench::new().await;
    let (server, other) = (webhook(|_| allowed()).await, webhook(|_| allowed()).await);
    let mut hook = entry("v", &server);
    hook["clientConfig"]["caBundle"] = entry("v", &other)["clientConfig"]["caBundle"].clone();
    register(&bench, "Mutating", "a", &server, &[hook]);
    let (code, status) = bench.post(MAPS, &config_map("a", &json!({}))).await;
    assert_eq!(code, 500);
    assert!(status["message"].as_str().unwrap().contains("invalid peer certificate"), "{status}");
    assert!(server.requests().is_empty());
    // The other one comes in under another name.
    let elsewhere = json!([{ "op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "others" }]);
    let configuration = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/a";
    bench.patch("json-patch+json", configuration, &elsewhere).await;
    bench.server.resolve("default", "others", &[other.address]);
    let (_, status) = bench.post(MAPS, &config_map("a", &json!({}))).await;
    assert!(status["message"].as_str().unwrap().contains("not valid for name"), "{status}");
    // A new bundle counts at once, and a URL is as good as a service.
    let right =
        json!({ "url": format!("https://{}/v", other.address), "caBundle": BASE64_STANDARD.encode(&other.authority) });
    let found = json!([{ "op": "replace", "path": "/webhooks/0/clientConfig", "value": right }]);
    bench.patch("json-patch+json", configuration, &found).await;
    assert_eq!(bench.post(MAPS, &config_map("a", &json!({}))).await.0, StatusCode::CREATED);
    assert_eq!(other.requests().len(), 1);
}

#[tokio::test]
async fn nonsense_is_a_failed_call() {
    let bench = Bench::new().await;
    let server = JsonServer::start(&[HOST], |_, review| {
        let request = &review["request"];
        let answer = |version: &str, response: Value| json!({ "kind": "AdmissionReview", "apiVersion": version, "response": response });
        let (v1, uid) = ("admission.k8s.io/v1", request["uid"].clone());
        match request["object"]["metadata"]["name"].as_str().unwrap() {
            "broken" => (500, json!({})),
            "empty" => (200, json!({})),
            "other" => (200, answer(v1, json!({ "uid": "x", "allowed": true }))),
            "old" => (200, answer("admission.k8s.io/v1beta1", json!({ "uid": uid, "allowed": true }))),
            "untyped" => (200, answer(v1, json!({ "uid": uid, "allowed": true, "patch": "W10=" }))),
            "unfit" => {
                let patch = BASE64_STANDARD.encode(json!([{ "op": "remove", "path": "/nothing" }]).to_string());
                let response = json!({ "uid": uid, "allowed": true, "patch": patch, "patchType": "JSONPatch" });
                (200, answer(v1, response))
            }
            _ => (200, answer(v1, json!({ "uid": uid, "allowed": true, "patch": "W10=", "patchType": "JSONPatch" }))),
        }
    })
    .await;
    register(&bench, "Mutating", "a", &server, &[entry("v", &server)]);
    for (name, why) in [
        ("broken", "the server responded with the status code 500"),
        ("empty", "webhook response was absent"),
        ("other", "expected response.uid="),
        ("old", "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1beta1"),
        ("untyped", "webhook returned response.patch but not response.patchType"),
        ("unfit", "/nothing"),
    ] {
        let (code, status) = bench.post(MAPS, &config_map(name, &json!({}))).await;
        assert_eq!(code, 500);
        assert!(status["message"].as_str().unwrap().contains(why), "{name}: {status}");
    }
    assert_eq!(bench.post(MAPS, &config_map("fine", &json!({}))).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn nobody_waits_longer_than_the_webhooks_timeout() {
    let bench = Bench::new().await;
    // Whoever connects is accepted by the kernel, and never answered.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = webhook(|_| allowed()).await;
    let mut hook = entry("v", &server);
    hook["timeoutSeconds"] = 1.into();
    register(&bench, "Validating", "a", &server, &[hook]);
    bench.server.resolve("default", "hooks", &[mute.local_addr().unwrap()]);
    let (code, status) = bench.post(MAPS, &config_map("a", &json!({}))).await;
    let why = "failed to call webhook: Post \"https://hooks.default.svc:443/v?timeout=1s\": context deadline exceeded";
    assert_eq!(code, 500);
    assert!(status["message"].as_str().unwrap().ends_with(why), "{status}");
}

#[tokio::test]
async fn a_dry_run_is_reviewed_and_not_kept() {
    let bench = Bench::new().await;
    let server = webhook(|_| allowed()).await;
    register(&bench, "Validating", "a", &server, &[entry("v", &server)]);
    let dry = format!("{MAPS}?dryRun=All");
    assert_eq!(bench.post(&dry, &config_map("a", &json!({}))).await.0, StatusCode::CREATED);
    let request = &server.requests()[0].1["request"];
    assert_eq!((&request["dryRun"], &request["options"]["dryRun"]), (&json!(true), &json!(["All"])));
    assert_eq!(bench.server.get("ConfigMap", "default", "a"), None);
}

#[tokio::test]
async fn a_configuration_that_no_server_would_take_is_refused() {
    let bench = Bench::new().await;
    let server = webhook(|_| allowed()).await;
    let good = entry("v", &server);
    let configuration = |webhooks: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "a" }, "webhooks": webhooks,
        })
    };
    let with = |field: &str, value: Value| {
        let mut changed = good.clone();
        changed[field] = value;
        json!([changed])
    };
    let condition = |expression: &str| json!([{ "name": "c", "expression": expression }]);
    for (webhooks, why) in [
        (with("name", json!("v")), "webhooks[0].name: Invalid value: \"v\": should be a domain"),
        (with("sideEffects", Value::Null), "webhooks[0].sideEffects: Required value: must specify one of None"),
        (with("admissionReviewVersions", json!([])), "webhooks[0].admissionReviewVersions: Required value"),
        (with("timeoutSeconds", json!(31)), "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be"),
        (with("clientConfig", json!({})), "webhooks[0].clientConfig: Required value: exactly one of url or service"),
        (with("matchConditions", condition("object.")), "webhooks[0].matchConditions[0].expression: Invalid value"),
        (json!([good, good]), "webhooks[1].name: Duplicate value: \"v.example.com\""),
    ] {
        let refused = bench.server.create(&configuration(webhooks)).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    bench.server.create(&configuration(with("matchConditions", condition("has(object.data)")))).unwrap();
}

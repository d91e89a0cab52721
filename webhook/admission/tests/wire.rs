use super::*;

fn post(body: &str) -> Reply {
    reply(&review(body.as_bytes(), Endpoint::Mutate, &Settings::default(), &nothing_known).body)
}

#[test]
fn malformed_review_is_refused_naming_the_field() {
    let changed = |field: &str, value: Value| {
        let mut question = question("CREATE", "Pod", pod(json!([{ "name": "a" }])), Value::Null);
        *question.pointer_mut(field).expect("a field") = value;
        question.to_string()
    };
    let bodies = [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "{} {}".to_owned(),
        json!({ "kind": "Pod" }).to_string(),
        changed("/apiVersion", "admission.k8s.io/v1beta1".into()),
        changed("/request", Value::Null),
        changed("/request/uid", 7.into()),
        changed("/request/operation", "PATCH".into()),
        changed("/request/kind/kind", "Node".into()),
        changed("/request/object", Value::Null),
        changed("/request/object", "pod".into()),
        changed("/request/object/spec", json!({ "initContainers": {} })),
        changed("/request/object/spec/containers/0", Value::Null),
        changed("/request/object/spec/containers/0", json!({ "name": "a", "env": [{ "name": 1 }] })),
        changed("/request/object/spec/containers/0", json!({ "resources": { "limits": { "nvidia.com/gpu": {} } } })),
        changed("/request/object/spec", json!({ "affinity": { "nodeAffinity": [] } })),
        changed("/request/object/metadata", json!({ "annotations": { "divvy.dev/numa": true } })),
    ];
    let answers: Vec<_> = bodies.iter().map(|body| post(body).refusal().to_owned()).collect();
    insta::assert_snapshot!(answers.join("\n"), @r#"
    400 BadRequest: AdmissionReview: EOF while parsing a value at line 1 column 0
    400 BadRequest: AdmissionReview: EOF while parsing an object at line 1 column 1
    400 BadRequest: AdmissionReview: invalid length 0, expected an object at line 1 column 2
    400 BadRequest: AdmissionReview: trailing characters at line 1 column 4
    400 BadRequest: kind: "Pod" is unknown: expected AdmissionReview
    400 BadRequest: apiVersion: "admission.k8s.io/v1beta1" is unknown: expected admission.k8s.io/v1
    400 BadRequest: request: is missing
    400 BadRequest: request.uid: invalid type: integer `7`, expected a string at line 1 column 288
    400 BadRequest: request.operation: unknown variant `PATCH`, expected one of `CREATE`, `UPDATE`, `DELETE`, `CONNECT` at line 1 column 264
    400 BadRequest: request.kind.kind: "Node" isn't reviewed here: expected Pod
    400 BadRequest: request.object: is missing
    400 BadRequest: request.object: invalid type: string "pod", expected an object at line 1 column 166
    400 BadRequest: request.object.spec.initContainers: invalid type: map, expected a sequence at line 1 column 215
    400 BadRequest: request.object.spec.containers[0]: invalid type: null, expected an object at line 1 column 216
    400 BadRequest: request.object.spec.containers[0].env[0].name: invalid type: integer `1`, expected a string at line 1 column 229
    400 BadRequest: request.object.spec.containers[0].resources.limits.nvidia.com/gpu: invalid type: map, expected a quantity such as "8Gi" at line 1 column 255
    400 BadRequest: request.object.spec.affinity.nodeAffinity: invalid length 0, expected an object at line 1 column 227
    400 BadRequest: request.object.metadata.annotations.divvy.dev/numa: invalid type: boolean `true`, expected a string at line 1 column 210
    "#);
}

#[test]
fn truncated_review_is_refused() {
    let whole = question("CREATE", "Pod", pod(json!([container("a", json!({ "nvidia.com/gpu": "1" }))])), Value::Null);
    let whole = whole.to_string();
    for end in 0..whole.len() {
        assert!(post(&whole[..end]).status.starts_with("400 BadRequest"), "{end}");
    }
    assert!(post(&whole).allowed);
}

#[test]
fn response_carries_uid_of_a_malformed_review() {
    let uid = |question: &Value| {
        let body = review(question.to_string().as_bytes(), Endpoint::Mutate, &Settings::default(), &nothing_known).body;
        serde_json::from_slice::<Value>(&body).expect("a review")["response"]["uid"].clone()
    };
    let mut asked = question("CREATE", "Pod", pod(json!([])), Value::Null);
    assert_eq!(uid(&asked), "705ab4f5");
    asked["request"]["operation"] = 1.into();
    assert_eq!(uid(&asked), "705ab4f5");
    asked["request"]["uid"] = 1.into();
    assert_eq!(uid(&asked), "");
}

#[test]
fn other_operations_are_allowed() {
    for operation in ["DELETE", "CONNECT"] {
        assert!(post(&question(operation, "Pod", Value::Null, Value::Null).to_string()).allowed);
    }
}

#[test]
fn workload_review_never_refuses() {
    for body in ["", "{}", r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{}}"#] {
        let reply = reply(&review(body.as_bytes(), Endpoint::Templates, &Settings::default(), &nothing_known).body);
        assert!(reply.allowed && reply.warnings.len() == 1, "{body}");
    }
}

#[test]
fn warnings_fit_the_limits_of_the_api_server() {
    let mut noisy = pod(json!([container("a", json!({ "nvidia.com/gpu": "1" }))]));
    let keys = (0..100).map(|at| (format!("divvy.dev/{at}{}\n", "ä".repeat(300)), "".into()));
    noisy["metadata"]["annotations"] = Value::Object(keys.collect());
    let warnings = mutate_new(&noisy).warnings;
    let lengths: Vec<_> = warnings.iter().map(|warning| warning.chars().count()).collect();
    assert!(lengths.iter().all(|length| *length == 256) && lengths.len() == 15, "{lengths:?}");
    noisy["metadata"]["annotations"] = json!({ "divvy.dev/a\nb": "" });
    assert_eq!(mutate_new(&noisy).warnings, ["annotation divvy.dev/a b: unknown to Divvy, has no effect"]);
}

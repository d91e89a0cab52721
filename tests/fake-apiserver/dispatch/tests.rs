use proptest::prelude::*;

use super::*;

/// Names that mean something somewhere, so that random objects get deep into the server.
fn key() -> impl Strategy<Value = String> {
    let known = [
        "$patch",
        "$setElementOrder/containers",
        "apiVersion",
        "conditions",
        "containers",
        "data",
        "deletionTimestamp",
        "finalizers",
        "fieldsV1",
        "f:data",
        "k:{",
        "kind",
        "labels",
        "limits",
        "managedFields",
        "manager",
        "metadata",
        "name",
        "names",
        "namespace",
        "op",
        "ownerReferences",
        "path",
        "phase",
        "plural",
        "resources",
        "spec",
        "status",
        "storage",
        "target",
        "type",
        "uid",
        "value",
        "versions",
        "x",
    ];
    prop::sample::select(known.to_vec()).prop_map(String::from)
}

fn json() -> impl Strategy<Value = Value> {
    let texts = ["", "a", "main", "Pod", "v1", "add", "/data/x", "/metadata/name", "delete", "8Gi", "-1e9", "é", "k:{"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(texts.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let paths = [
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/a",
        "/api/v1/namespaces/default/pods/a/status",
        "/api/v1/namespaces/default/pods/a/binding",
        "/api/v1/namespaces/default/pods/a/eviction",
        "/api/v1/namespaces/default/pods/a/portforward",
        "/api/v1/namespaces/default/configmaps/a",
        "/api/v1/namespaces/default/a",
        "/api/v1/nodes/a/status",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/apis/a/a/a",
        "/apis",
        "//",
    ];
    let queries = [
        "",
        "fieldManager=m",
        "ports=1",
        "ports=1,x&ports=",
        "fieldManager=m&force=true",
        "watch=1&resourceVersion=é",
        "limit=1&continue=1:a/b",
        "limit=-1",
        "labelSelector=a%20in%20(",
        "labelSelector=%C3%A9,!,in%20in(in)",
        "fieldSelector=%3D,!%3D",
        "resourceVersion=99999",
    ];
    let formats = [
        "application/json",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ];
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let parts = (
        prop::sample::select(methods.to_vec()),
        prop::sample::select(paths.to_vec()),
        prop::sample::select(queries.to_vec()),
        prop::sample::select(formats.to_vec()),
        prop::sample::select(vec!["", table]),
        json(),
    );
    parts.prop_map(|(method, path, query, content_type, accept, body)| Asked {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        token: "t".to_owned(),
        accept: accept.to_owned(),
        content_type: content_type.to_owned(),
        user_agent: String::new(),
        websocket: Some(Offer::default()),
        body: body.to_string().into_bytes(),
    })
}

fn server() -> State {
    let mut state = State::default();
    state.users.insert("t".to_owned(), User::from("tester"));
    for (path, object) in [
        ("/api/v1/namespaces", json!({ "metadata": { "name": "default" } })),
        ("/api/v1/nodes", json!({ "metadata": { "name": "a" } })),
        (
            "/api/v1/namespaces/default/pods",
            json!({ "metadata": { "name": "a" }, "spec": { "containers": [{ "name": "main" }] } }),
        ),
        ("/api/v1/namespaces/default/configmaps", json!({ "metadata": { "name": "a" }, "data": { "x": "1" } })),
    ] {
        let asked = Asked {
            method: Method::POST,
            path: path.to_owned(),
            query: String::new(),
            token: "t".to_owned(),
            accept: String::new(),
            content_type: "application/json".to_owned(),
            user_agent: "test/1".to_owned(),
            websocket: None,
            body: object.to_string().into_bytes(),
        };
        assert_eq!(dispatch(&mut state, &asked).code(), 201, "{path}");
    }
    state
}

proptest! {
    #[test]
    fn whatever_is_sent_is_answered_and_versions_only_grow(requests in prop::collection::vec(asked(), 1..12)) {
        let mut state = server();
        for asked in requests {
            let before = state.store.revision;
            let outcome = dispatch(&mut state, &asked);
            prop_assert!(outcome.code() < 500, "{asked:?}: {outcome:?}");
            prop_assert!(state.store.revision >= before);
            prop_assert!(outcome.code() < 400 || state.store.revision == before, "refused and written: {asked:?}");
        }
    }
}

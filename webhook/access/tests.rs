use std::net::{IpAddr, Ipv4Addr};

use fake_apiserver::{ApiServer, User};
use http::HeaderValue;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use super::*;

/// An API server where `ann`, of the group `lab`, may get pods in `a`.
async fn server() -> (ApiServer, Access) {
    let server = ApiServer::start(&[("webhook", "system:serviceaccount:divvy-system:divvy-webhook")]).await.unwrap();
    server.allow("of-ann", User::from("ann").within("lab"));
    let of = |kind: &str, name: &str, rest: serde_json::Value| {
        let mut object = rest;
        object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
        object["kind"] = kind.into();
        object["metadata"] = json!({ "name": name, "namespace": "a" });
        object
    };
    server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } })).unwrap();
    let may = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] });
    server.create(&of("Role", "pods", json!({ "rules": [may] }))).unwrap();
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods" });
    let group = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "lab" });
    server.create(&of("RoleBinding", "pods", json!({ "roleRef": role, "subjects": [group] }))).unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig("webhook")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let access = Access::new(Client::try_from(config).unwrap());
    (server, access)
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn with(authorization: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(authorization).unwrap())])
}

fn pods_in(namespace: &str) -> Vec<ResourceAttributes> {
    vec![ResourceAttributes {
        verb: Some("get".to_owned()),
        resource: Some("pods".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    }]
}

#[tokio::test]
async fn caller_needs_the_right_to_get_the_pod() {
    let (_server, access) = server().await;
    for scheme in ["Bearer", "bearer"] {
        assert_eq!(access.check(HERE, &with(&format!("{scheme} of-ann")), pods_in("a")).await, Ok(()));
    }
    let denied = access.check(HERE, &with("Bearer of-ann"), pods_in("b")).await;
    assert_eq!(denied, Err(Denied::Forbidden("ann cannot get pods in namespace b".to_owned())));
}

#[tokio::test]
async fn missing_or_invalid_token_is_unauthenticated() {
    let (server, access) = server().await;
    for headers in [HeaderMap::new(), with("Basic YTpi"), with("Bearer"), with("Bearer  ")] {
        let denied = access.check(HERE, &headers, pods_in("a")).await;
        assert_eq!(denied, Err(Denied::Unauthenticated("no bearer token: send one as kubectl does".to_owned())));
    }
    assert!(server.requests().iter().all(|request| !request.path.ends_with("tokenreviews")));
    let denied = access.check(HERE, &with("Bearer guessed"), pods_in("a")).await;
    assert!(matches!(&denied, Err(Denied::Unauthenticated(why)) if why.contains("invalid bearer token")), "{denied:?}");
}

#[tokio::test]
async fn access_is_denied_while_the_api_server_is_away() {
    let (server, access) = server().await;
    assert_eq!(access.check(HERE, &with("Bearer of-ann"), pods_in("a")).await, Ok(()));
    server.go_away().await;
    for token in ["of-ann", "of-bob"] {
        let denied = access.check(HERE, &with(&format!("Bearer {token}")), pods_in("a")).await;
        assert!(matches!(denied, Err(Denied::Unavailable(_))), "{denied:?}");
    }
}

#[tokio::test]
async fn address_with_ten_rejected_tokens_waits_a_minute() {
    let (server, access) = server().await;
    let reviews = || server.requests().iter().filter(|request| request.path.ends_with("tokenreviews")).count();
    for _ in 0..MOST_REJECTED {
        let denied = access.check(HERE, &with("Bearer guessed"), pods_in("a")).await;
        assert!(matches!(denied, Err(Denied::Unauthenticated(_))), "{denied:?}");
    }
    let asked = reviews();
    assert_eq!(access.check(HERE, &with("Bearer of-ann"), pods_in("a")).await, Err(Denied::TooMany));
    assert_eq!(reviews(), asked);
    let elsewhere = Ipv4Addr::new(10, 0, 0, 9).into();
    assert_eq!(access.check(elsewhere, &with("Bearer of-ann"), pods_in("a")).await, Ok(()));
    let later = Instant::now() + REJECTED_WITHIN;
    assert!(!access.has_tried_enough(HERE, later));
    access.reject(HERE, later);
    assert!(!access.has_tried_enough(HERE, later), "counted anew");
}

#[tokio::test]
async fn rejected_addresses_are_remembered_up_to_a_limit() {
    let (_server, access) = server().await;
    let start = Instant::now();
    let address = |number: u32| IpAddr::from(Ipv4Addr::from_bits(number));
    for number in 0..5000 {
        for _ in 0..MOST_REJECTED {
            access.reject(address(number), start + Duration::from_micros(number.into()));
        }
    }
    assert_eq!(access.rejected().len(), MOST_ADDRESSES);
    assert!(access.has_tried_enough(address(4999), start) && !access.has_tried_enough(address(0), start));
}

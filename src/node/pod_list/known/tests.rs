use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::*;

/// A pod in one of few spellings, so that lists have pods in common, and pods that differ late in their text.
fn pod() -> impl Strategy<Value = String> {
    (0..4, prop::sample::select(vec!["Pending", "Running", "Failed"]), 0..3_usize, 0..8).prop_map(|(uid, phase, size, style)| {
        let padding = "x{\"]},[".repeat(size);
        let pod = json!({
            "metadata": {"annotations": {"divvy.dev/numa": padding, "other": [1, 2.5, null]}, "name": "a", "uid": format!("u{uid}")},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
            "status": {"phase": phase},
        });
        match style {
            0 => serde_json::to_string_pretty(&pod).expect("an object"),
            1 => json!([pod["metadata"], pod["spec"], pod["status"]]).to_string(),
            2 => json!({ "metadata": { "uid": Value::Null } }).to_string(),
            _ => pod.to_string(),
        }
    })
}

/// What stands around the pods.
fn list() -> impl Strategy<Value = String> {
    let frames = vec![
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"items\":[]},\"items\":[%]}\n",
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":[%]}\n",
        " { \"items\" :\t[ % ] , \"metadata\" : 1.5e3 }\r\n",
        "{\"items\":[%],\"items\":[]}",
        "{\"items\":[%,]}",
        "{\"items\":[%],}",
        "{\"it\\u0065ms\":[%]}",
        "{\"items\":null,\"metadata\":[%]}",
        "{\"items\":[%]}{}",
        "[[%]]",
    ];
    let frame = prop_oneof![3 => Just(frames[1]), 1 => prop::sample::select(frames)];
    let separator = prop_oneof![4 => Just(","), 1 => Just(" ,\n ")];
    (frame, separator, prop::collection::vec(pod(), 0..6))
        .prop_map(|(frame, separator, pods)| frame.replace('%', &pods.join(separator)))
}

/// A list, perhaps cut short or with a byte changed.
fn body() -> impl Strategy<Value = Bytes> {
    let damage = prop_oneof![6 => Just(None), 1 => any::<(Index, u8)>().prop_map(Some)];
    (list(), damage).prop_map(|(list, damage)| {
        let mut body = list.into_bytes();
        match damage {
            Some((at, 0..128)) => body.truncate(at.index(body.len())),
            Some((at, byte)) => {
                let at = at.index(body.len());
                body[at] ^= byte & 0x7f;
            }
            None => {}
        }
        body.into()
    })
}

fn said(decoded: Result<Vec<Arc<Pod>>, DecodeError>) -> Result<Vec<Arc<Pod>>, String> {
    decoded.map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn list_after_any_other_list_decodes_like_the_first(bodies in prop::collection::vec(body(), 1..8)) {
        let mut known = Known::default();
        for body in bodies {
            prop_assert_eq!(said(known.decode(&body)), said(decode(&body)), "{}", body.escape_ascii());
        }
    }
}

#[test]
fn unchanged_pods_are_cached_and_removed_pods_forgotten() {
    let pod = |uid: &str, phase: &str| json!({"metadata": {"uid": uid}, "status": {"phase": phase}});
    let list = |pods: &[Value]| Bytes::from(json!({"kind": "PodList", "items": pods}).to_string());
    let mut known = Known::default();
    let first = known.decode(&list(&[pod("a", "Running"), pod("b", "Running")])).expect("a list");
    let second = known.decode(&list(&[pod("c", "Pending"), pod("b", "Running"), pod("a", "Failed")])).expect("a list");
    assert!(Arc::ptr_eq(&first[1], &second[1]));
    assert!(!second.iter().any(|pod| Arc::ptr_eq(&first[0], pod)));
    assert_eq!((second[0].uid.as_str(), second[2].has_ended()), ("c", true));

    let a = Arc::downgrade(&second[2]);
    drop((first, second));
    assert!(a.upgrade().is_some());
    let body = list(&[pod("b", "Running")]);
    known.decode(&body).expect("a list");
    assert!(a.upgrade().is_none(), "nothing is kept of pods that aren't listed any more");
    assert!(!body.is_unique(), "the body is shared, not copied");
    known.decode(&list(&[])).expect("a list of nothing");
    assert!(body.is_unique());
}

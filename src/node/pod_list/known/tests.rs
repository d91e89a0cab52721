use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::*;
use crate::pod_list::decode;

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
fn body() -> impl Strategy<Value = Vec<u8>> {
    let damage = prop_oneof![6 => Just(None), 1 => any::<(Index, u8)>().prop_map(Some)];
    (list(), damage).prop_map(|(list, damage)| {
        let mut body = list.into_bytes();
        match damage {
            Some((at, 0..128)) => body.truncate(at.index(body.len())),
            Some((at, byte)) => {
                let at = at.index(body.len());
                body[at] = byte;
            }
            None => {}
        }
        body
    })
}

/// The pods of a list that arrives in pieces of this size, and what the next one is compared with.
fn read(known: &Arc<Known>, body: &[u8], piece: usize) -> Result<(Vec<Arc<Pod>>, Known), DecodeError> {
    let mut reader = Arc::clone(known).reader();
    body.chunks(piece).try_for_each(|piece| reader.push(piece))?;
    reader.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn list_after_any_other_list_decodes_like_the_first(
        bodies in prop::collection::vec(body(), 1..8),
        piece in 1..400_usize,
    ) {
        let mut known = Arc::default();
        for body in bodies {
            let pods = read(&known, &body, piece).map(|(pods, now)| {
                known = Arc::new(now);
                pods
            });
            let said = |error: DecodeError| error.to_string();
            prop_assert_eq!(pods.map_err(said), decode(&body).map_err(said), "{}", body.escape_ascii());
        }
    }
}

fn pods(list: Result<(Vec<Arc<Pod>>, Known), DecodeError>) -> (Vec<Arc<Pod>>, Arc<Known>) {
    let (pods, known) = list.expect("a list");
    (pods, Arc::new(known))
}

#[test]
fn unchanged_pods_are_cached_and_removed_pods_forgotten() {
    let pod = |uid: &str, phase: &str| json!({"metadata": {"uid": uid}, "status": {"phase": phase}});
    let list = |pods: &[Value]| json!({"kind": "PodList", "items": pods}).to_string().into_bytes();
    let (first, known) = pods(read(&Arc::default(), &list(&[pod("a", "Running"), pod("b", "Running")]), 7));
    let body = list(&[pod("c", "Pending"), pod("b", "Running"), pod("a", "Failed")]);
    let (second, known) = pods(read(&known, &body, 7));
    assert!(Arc::ptr_eq(&first[1], &second[1]));
    assert!(!second.iter().any(|pod| Arc::ptr_eq(&first[0], pod)));
    assert_eq!((second[0].uid.as_str(), second[2].has_ended()), ("c", true));

    let a = Arc::downgrade(&second[2]);
    drop((first, second));
    assert!(a.upgrade().is_some());
    let (_, later) = pods(read(&known, &list(&[pod("b", "Running")]), 7));
    drop(known);
    assert!(a.upgrade().is_none(), "nothing is kept of pods that aren't listed any more");
    assert_eq!(later.pods.len(), 1);
}

#[test]
fn little_text_is_kept_of_large_pods_and_of_many() {
    let list = |pods: usize, length: usize| {
        let pods: Vec<Value> = (0..pods)
            .map(|pod| json!({"metadata": {"uid": pod.to_string()}, "spec": {"hostname": "<".repeat(length)}}))
            .collect();
        json!({ "items": pods }).to_string().into_bytes()
    };
    let (listed, known) = pods(read(&Arc::default(), &list(10, LONGEST), 4096));
    assert_eq!((listed.len(), known.bytes), (10, 0));
    let many = list(1000, LONGEST / 2);
    for _ in 0..2 {
        let (listed, known) = pods(read(&known, &many, 4096));
        assert!(listed.len() == 1000 && known.bytes <= MOST && known.bytes > MOST / 2, "{}", known.bytes);
    }
}

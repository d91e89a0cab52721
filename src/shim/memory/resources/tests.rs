//! Against a map that is known to be right.

use std::boxed::Box;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn resource(bytes: u64) -> Resource {
    Resource { bytes, card: (bytes % 64) as usize, context: (bytes % 3) as usize, of: bytes / 2 }
}

#[derive(Clone, Debug)]
enum Step {
    Put(bool, u64, u64),
    Take(bool, u64),
    TakeAll(usize),
}

fn kind(is_array: bool) -> Kind {
    if is_array { Kind::Array } else { Kind::Memory }
}

/// Few keys, and of them many that want the same place: multiples of 2⁶⁰ have the same top bits but for four.
fn keys() -> impl Strategy<Value = u64> {
    prop_oneof![(0_u64..16).prop_map(|key| key << 60), (0_u64..40).prop_map(|key| key << 9)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (any::<bool>(), keys(), 0_u64..1000).prop_map(|(kind, key, bytes)| Step::Put(kind, key, bytes)),
        4 => (any::<bool>(), keys()).prop_map(|(kind, key)| Step::Take(kind, key)),
        1 => (0_usize..3).prop_map(Step::TakeAll),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn resources_behave_like_a_map(steps in steps()) {
        let held = Box::new(Resources::new());
        let mut map = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(is_array, key, bytes) => {
                    let before = map.insert((is_array, key), resource(bytes));
                    prop_assert_eq!(held.put(kind(is_array), key, resource(bytes)), Ok(before));
                }
                Step::Take(is_array, key) => {
                    prop_assert_eq!(held.take(kind(is_array), key), map.remove(&(is_array, key)));
                }
                Step::TakeAll(context) => {
                    let mut taken = Vec::new();
                    let matches = |resource: &Resource| resource.context == context;
                    held.take_all(&[Kind::Array], matches, |_, resource| taken.push(resource.bytes));
                    let mut expected: Vec<_> =
                        map.extract_if(.., |(is_array, _), resource| *is_array && matches(resource)).map(|(_, resource)| resource.bytes).collect();
                    taken.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(taken, expected);
                }
            }
        }
        for ((is_array, key), resource) in &map {
            prop_assert_eq!(held.get(kind(*is_array), *key), Some(*resource));
        }
    }
}

/// Entries that want the last places of a shard go on at its first.
#[test]
fn probing_wraps_at_the_end_of_a_shard() {
    let mut shard = Shard { entries: ptr::null_mut(), used: 0 };
    let crowd: Vec<u64> = (0_u64..).filter(|key| (PLACES - 3..).contains(&start(hash(1, *key)))).take(40).collect();
    let put =
        |shard: &mut Shard, key: u64| shard.put(start(hash(1, key)), Entry::new(Kind::Memory, key, resource(key)));
    for key in &crowd {
        assert_eq!(put(&mut shard, *key), Ok(None));
    }
    for (gone, key) in crowd.iter().enumerate().step_by(2) {
        let at = shard.position(start(hash(1, *key)), 1, *key).expect("it is held");
        assert_eq!(shard.remove(at), resource(*key), "{gone}");
        let left = crowd.iter().enumerate().filter(|(other, _)| *other > gone || other % 2 == 1);
        for (_, other) in left {
            assert!(shard.position(start(hash(1, *other)), 1, *other).is_some());
        }
    }
    assert_eq!(shard.used, 20);
}

#[test]
fn full_table_refuses_and_keeps_its_entries() {
    let held = Box::new(Resources::new());
    let refused =
        (1_u64..1 << 21).find(|key| held.put(Kind::Memory, key << 9, resource(*key)) == Err(Full)).expect("an end");
    assert!(refused > 700_000, "{refused}");
    assert!((1..refused).all(|key| held.get(Kind::Memory, key << 9) == Some(resource(key))));
    assert_eq!(held.put(Kind::Memory, 512, resource(7)), Ok(Some(resource(1))), "what is held can be replaced");
    assert_eq!(held.take(Kind::Memory, refused << 9), None);
}

//! The table beside the stand-in driver's functions, which its own tests hold against cudarc's bindings.

use std::collections::BTreeMap;

use super::*;

#[test]
fn hook_signatures_match_the_driver() {
    let theirs: BTreeMap<&str, &[usize]> = fake_cuda::signatures().collect();
    let ours: Vec<_> = signatures().filter(|(name, _)| name.starts_with("cu")).collect();
    let differing: Vec<_> = ours.iter().filter(|(name, sizes)| theirs.get(name) != Some(sizes)).collect();
    assert!(differing.is_empty(), "beside the driver's: {differing:?}");
    assert!(ours.len() > 100);
}

#[test]
fn hooks_are_resolved_by_the_versions_they_came_with() {
    let theirs: BTreeMap<&str, i32> = fake_cuda::versions().collect();
    let differing: Vec<_> = CUDA
        .hooks
        .iter()
        .map(|hook| (hook.name.to_str().expect("text"), hook.since))
        .filter(|(name, since)| theirs.get(name) != Some(since))
        .collect();
    assert!(differing.is_empty(), "beside the driver's: {differing:?}");
}

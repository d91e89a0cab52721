//! How long a plan takes: a usual one by policy, and the worst that a tenant can ask for.

mod scenes;

use divan::{Bencher, black_box};
use divvy_api::annotation::PolicyName;
use scenes::{POLICIES, Scene};

fn main() {
    divan::main();
}

#[divan::bench(args = POLICIES)]
fn four_containers_on_sixteen_cards(bencher: Bencher<'_, '_>, policy: PolicyName) {
    let mut seed = 0;
    let next = || {
        seed += 1;
        scenes::everyday(policy, seed)
    };
    bencher.with_inputs(next).bench_local_refs(|scene| black_box(scene.plan()));
}

#[divan::bench(args = POLICIES)]
fn no_plan_for_seventeen_containers(bencher: Bencher<'_, '_>, policy: PolicyName) {
    time(bencher, &scenes::hopeless(policy, 17, 1));
}

#[divan::bench(args = POLICIES)]
fn no_plan_for_three_times_half_of_the_node(bencher: Bencher<'_, '_>, policy: PolicyName) {
    time(bencher, &scenes::hopeless(policy, 3, 8));
}

#[divan::bench(args = POLICIES)]
fn half_of_a_tangled_node_for_each_container(bencher: Bencher<'_, '_>, policy: PolicyName) {
    time(bencher, &scenes::half_the_node(policy));
}

#[divan::bench(args = POLICIES)]
fn eight_whole_cards_of_a_tangled_node(bencher: Bencher<'_, '_>, policy: PolicyName) {
    time(bencher, &scenes::eight_whole_cards(policy));
}

fn time(bencher: Bencher<'_, '_>, scene: &Scene) {
    bencher.bench_local(|| black_box(scene.plan()));
}

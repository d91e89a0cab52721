//! Random lives of a node: the daemon's deciding parts, real books and files, against the kubelet's device manager.
//!
//! The daemon dies at every step of an Allocate, the kubelet restarts and loses its checkpoint, cards fall sick. After
//! every step the invariants are checked from outside: on what containers were given, not on what the books say of it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod checks;
mod daemon;
mod node;
mod shapes;

use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;
use proptest::sample::Index;

use node::{Death, Node};
use shapes::{Shape, shape};

/// One thing that happens on the node.
#[derive(Clone, Debug)]
enum Step {
    /// A pod comes, and perhaps somebody dies while it is admitted.
    Arrive { shape: Shape, dies: Option<(usize, Death)>, twice: bool },
    /// A pod comes that the kubelet rejects before it asks for devices.
    Reject { shape: Shape },
    /// The API server's news of rejected pods reach the kubelet's list.
    Hear,
    /// A pod's next container starts, or its running init container ends.
    Advance(Index),
    /// A container's process ends, to be started again.
    Restart(Index),
    /// A pod's work ends; it stays listed.
    Finish(Index),
    /// A pod is evicted: it is Failed at once, and its containers still run.
    Evict(Index),
    /// The containers of a pod that is over end.
    Stop(Index),
    /// A pod is gone.
    Delete(Index),
    /// The daemon looks for ended pods.
    Look,
    /// It asks for a list that takes its time.
    AskLate,
    /// That list arrives.
    HearLate,
    /// From now on the kubelet refuses its list, or answers it again.
    List { refused: bool },
    /// The daemon dies between calls; a card may be lost meanwhile.
    Crash { lost: Option<Index> },
    /// The kubelet dies and comes back, and perhaps the daemon dies at some container's admission.
    KubeletRestart { lose_checkpoint: bool, dies: Option<(usize, Death)> },
    /// The daemon dies and comes back with another scale of oversubscription, in percent.
    Rescale(u32),
    /// A card falls sick or gets well.
    Card { card: Index, healthy: bool },
}

fn death() -> impl Strategy<Value = Death> {
    prop_oneof![
        1 => Just(Death::BeforeProposal),
        1 => Just(Death::BeforeAllocate),
        4 => any::<Index>().prop_map(Death::Torn),
        2 => Just(Death::BeforeAnswer),
        2 => Just(Death::KubeletBeforeAnswer),
        1 => any::<Index>().prop_map(Death::Both),
    ]
}

fn dies() -> impl Strategy<Value = Option<(usize, Death)>> {
    prop::option::weighted(0.3, (0..3usize, death()))
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        8 => (shape(), dies(), prop::bool::weighted(0.15))
            .prop_map(|(shape, dies, twice)| Step::Arrive { shape, dies, twice }),
        2 => shape().prop_map(|shape| Step::Reject { shape }),
        1 => Just(Step::Hear),
        8 => index().prop_map(Step::Advance),
        2 => index().prop_map(Step::Restart),
        1 => index().prop_map(Step::Finish),
        1 => index().prop_map(Step::Evict),
        1 => index().prop_map(Step::Stop),
        3 => index().prop_map(Step::Delete),
        2 => Just(Step::Look),
        1 => Just(Step::AskLate),
        1 => Just(Step::HearLate),
        1 => any::<bool>().prop_map(|refused| Step::List { refused }),
        1 => prop::option::weighted(0.3, index()).prop_map(|lost| Step::Crash { lost }),
        1 => prop::sample::select(vec![110, 150, 300]).prop_map(Step::Rescale),
        2 => (any::<bool>(), dies())
            .prop_map(|(lose_checkpoint, dies)| Step::KubeletRestart { lose_checkpoint, dies }),
        2 => (index(), prop::bool::weighted(0.6)).prop_map(|(card, healthy)| Step::Card { card, healthy }),
    ]
}

/// What the histories of this run have seen, so that they can't come to test nothing.
static SEEN: Mutex<BTreeMap<&'static str, u32>> = Mutex::new(BTreeMap::new());

fn seen(what: &'static str) {
    *SEEN.lock().unwrap().entry(what).or_default() += 1;
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]

    fn any_history(
        seed in any::<u64>(),
        volume_mounts in any::<bool>(),
        memory_scale in prop::sample::select(vec![100, 150, 150]),
        differ in any::<bool>(),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut node = Node::new(seed, volume_mounts, memory_scale, differ);
        for step in steps {
            match step {
                Step::Arrive { shape, dies, twice } => node.arrive(shape, dies, twice)?,
                Step::Reject { shape } => node.reject(shape),
                Step::Hear => node.hear(),
                Step::Advance(pod) => node.advance(pod)?,
                Step::Restart(pod) => node.restart_container(pod),
                Step::Finish(pod) => node.finish(pod),
                Step::Evict(pod) => node.evict(pod),
                Step::Stop(pod) => node.stop(pod),
                Step::Delete(pod) => node.delete(pod),
                Step::Look => node.look()?,
                Step::AskLate => node.ask_late(),
                Step::HearLate => node.hear_late()?,
                Step::List { refused } => node.refuses_list = refused,
                Step::Crash { lost } => node.crash(lost)?,
                Step::Rescale(memory_scale) => node.rescale(memory_scale)?,
                Step::KubeletRestart { lose_checkpoint, dies } => node.restart_kubelet(lose_checkpoint, dies)?,
                Step::Card { card, healthy } => node.set_health(card, healthy),
            }
            node.check()?;
        }
        node.crash(None)?;
        node.delete_all();
        node.look()?;
        node.daemon().allocator().remove_stale_directories();
        node.check()?;
        node.is_empty()?;
    }
}

#[test]
fn no_history_overcommits_a_gpu_or_loses_a_share() {
    any_history();
    let seen = SEEN.lock().unwrap();
    println!("{seen:?}");
    let all = [
        "allocated",
        "allocated again",
        "instances allocated",
        "refused",
        "slot handed out twice",
        "late list",
        "torn record",
        "started",
        "allocated unlisted",
        "allocated behind a rejected pod",
        "more requested than the card has",
        "cards of a weaker tier",
    ];
    for what in all {
        assert!(seen.contains_key(what), "{what}: never seen in {seen:?}");
    }
}

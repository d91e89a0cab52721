use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use divvy_api::annotation::PolicyName;
use divvy_api::{ResourceName, ResourceNames, SlotId};

use super::*;
use crate::allocator::Choice;
use crate::allocator::tests::fixture::{Node, part, pod, slot};
use crate::allocator::tests::foreign::{nano, nano_record};
use crate::pod::{CONFIG_SOURCE, CgroupState, ContainerState, DeviceRecord, Phase, Pod, PodList, PodRef};
use crate::ports::{ContainerResponse, NodeRecords, PodOrigin, PodSourceError};

/// What kubelet and API server answer.
#[derive(Default)]
struct Answers {
    pods: Vec<Arc<Pod>>,
    /// The kubelet refuses its list; these are bound by the API server.
    bound: Option<Vec<Arc<Pod>>>,
    /// Of pods that the kubelet has, by name; `None`: PodResources doesn't answer.
    records: Option<BTreeMap<String, Vec<DeviceRecord>>>,
    /// Names of the pods that PodResources was asked for.
    asked: Mutex<Vec<String>>,
    /// Time since the kubelet started; `None`: an hour.
    age: Option<Duration>,
}

/// Whose lists pods were identified among.
#[derive(Debug, Default)]
struct Identified(Mutex<Vec<PodOrigin>>);

impl PodSource for Answers {
    async fn kubelet_pods(&self) -> Result<PodList, PodSourceError> {
        match self.bound {
            None => Ok(PodList { pods: self.pods.clone(), connection: None }),
            Some(_) => Err(PodSourceError::KubeletPods("answered 403".to_owned())),
        }
    }

    async fn bound_pods(&self) -> Result<Option<Vec<Arc<Pod>>>, PodSourceError> {
        Ok(self.bound.clone())
    }

    async fn device_records(
        &self,
        pods: &[PodRef],
        _: Duration,
    ) -> Result<Vec<Option<Vec<DeviceRecord>>>, PodSourceError> {
        self.asked.lock().unwrap().extend(pods.iter().map(|pod| pod.name.clone()));
        let records = self.records.as_ref().ok_or(PodSourceError::DeviceRecords("no answer".to_owned()))?;
        Ok(pods.iter().map(|pod| records.get(&pod.name).cloned()).collect())
    }

    async fn all_device_records(&self) -> Result<NodeRecords, PodSourceError> {
        let slots = self.records.iter().flat_map(BTreeMap::values).flatten().cloned().collect();
        Ok(NodeRecords { slots, units: Vec::new() })
    }

    async fn cgroups(&self, _: Vec<String>) -> HashMap<String, CgroupState> {
        HashMap::new()
    }

    async fn watch_cgroups(&self, _: HashSet<String>) {}

    fn kubelet_age(&self) -> Duration {
        self.age.unwrap_or(Duration::from_secs(3600))
    }
}

impl CoreMetrics for Identified {
    fn identified(&self, by: PodOrigin) {
        self.0.lock().unwrap().push(by);
    }
}

/// The result of work that waits for nothing.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

fn record(pod: &str, slot: &str) -> DeviceRecord {
    DeviceRecord {
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        container: "c0".to_owned(),
        resource: "nvidia.com/gpu".to_owned(),
        devices: vec![slot.to_owned()],
    }
}

/// Quiet period after a start of the kubelet.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// A daemon over the node's allocator; the directory has to outlive it.
fn daemon(node: &mut Node, answers: Answers) -> Daemon<Answers> {
    let spare = Node::new(1, PolicyName::Binpack);
    let allocator = std::mem::replace(&mut node.allocator, spare.allocator);
    Daemon::new(Arc::new(Mutex::new(allocator)), answers, Arc::<Identified>::default(), SETTLE_TIME)
}

fn kind<T>(result: Result<T, Refusal>) -> &'static str {
    result.err().map_or("ok", |refusal| refusal.kind())
}

/// What a second `Allocate` for a container that waits for its next start comes to, by what PodResources says of it.
fn second_allocate(records: Option<BTreeMap<String, Vec<DeviceRecord>>>) -> &'static str {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("a", "600"));
    node.serve(1).expect("fits");
    let waits = ContainerState::Waiting { started_before: true };
    Arc::make_mut(&mut node.pods[0]).states.insert("c0".to_owned(), waits);
    node.lose_checkpoint();
    let pods = node.pods.clone();
    let daemon = daemon(&mut node, Answers { pods, records, ..Answers::default() });
    kind(at_once(daemon.allocate(&ResourceNames::default().count, &[slot("GPU-0::1")])))
}

#[test]
fn lost_checkpoint_allocates_again_without_a_record() {
    assert_eq!(second_allocate(Some([("a".to_owned(), vec![])].into())), "ok");
}

#[test]
fn recorded_container_is_not_allocated_again() {
    let recorded = [("a".to_owned(), vec![record("a", "GPU-0::0")])].into();
    assert_eq!(second_allocate(Some(recorded)), "identity-nobody");
    assert_eq!(second_allocate(Some(BTreeMap::new())), "identity-nobody", "the kubelet doesn't have the pod");
    assert_eq!(second_allocate(None), "identity-nobody", "nobody knows");
}

#[test]
fn unlisted_pod_is_identified_by_device_records() {
    let mut node = Node::new(1, PolicyName::Binpack);
    let bound = Some(vec![part("waits", "100"), part("admitted", "100")]);
    let records = Some([("admitted".to_owned(), vec![])].into());
    let mut daemon = daemon(&mut node, Answers { bound, records, ..Answers::default() });
    let identified = Arc::<Identified>::default();
    daemon.metrics = Arc::clone(&identified) as _;
    at_once(daemon.allocate(&ResourceNames::default().count, &[slot("GPU-0::1")])).expect("one is left");
    assert!(lock(daemon.allocator()).ledger().allocations().pod("uid-admitted").is_some());
    assert_eq!(*identified.0.lock().unwrap(), [PodOrigin::ApiServer]);
}

/// What comes of a call for one device while these pods wait, by the pods that PodResources knows.
fn among(waiting: &[Arc<Pod>], known: Option<&[&str]>, call: Call) -> (Daemon<Answers>, Result<(), Refusal>) {
    let mut node = Node::new(1, PolicyName::Binpack);
    let records = known.map(|known| known.iter().map(|name| ((*name).to_owned(), vec![])).collect());
    let daemon = daemon(&mut node, Answers { pods: waiting.to_vec(), records, ..Answers::default() });
    let result = call(&daemon, &ResourceNames::default().count);
    (daemon, result)
}

type Call = fn(&Daemon<Answers>, &ResourceName) -> Result<(), Refusal>;

/// Both calls, as the kubelet makes them where the plugin chooses.
fn chosen(daemon: &Daemon<Answers>, resource: &ResourceName) -> Result<(), Refusal> {
    let available = (0..4).map(|number| slot(&format!("GPU-0::{number}"))).collect();
    let choice = Choice { available, required: [].into(), size: 1 };
    let slots = at_once(daemon.propose(resource, &choice))?;
    allocated(daemon, resource, &slots).map(drop)
}

/// `Allocate` alone.
fn unasked(daemon: &Daemon<Answers>, resource: &ResourceName) -> Result<(), Refusal> {
    allocated(daemon, resource, &[slot("GPU-0::1")]).map(drop)
}

fn allocated(
    daemon: &Daemon<Answers>,
    resource: &ResourceName,
    slots: &[SlotId],
) -> Result<ContainerResponse, Refusal> {
    at_once(daemon.allocate(resource, slots))
}

fn holds(daemon: &Daemon<Answers>, uid: &str) -> bool {
    lock(daemon.allocator()).ledger().allocations().pod(uid).is_some()
}

#[test]
fn pod_behind_one_that_the_kubelet_rejected_is_identified() {
    for call in [chosen as Call, unasked] {
        let waiting = [part("rejected", "100"), part("next", "100")];
        let (daemon, result) = among(&waiting, Some(&["next"]), call);
        result.expect("one is left");
        assert!(holds(&daemon, "uid-next") && !holds(&daemon, "uid-rejected"));
        assert_eq!(*daemon.source().asked.lock().unwrap(), ["rejected", "next"], "once, for both calls");
    }
}

#[test]
fn rejected_pod_is_asked_for_once() {
    let waiting = [part("rejected", "100"), part("next", "100")];
    let (mut daemon, result) = among(&waiting, Some(&["next"]), chosen);
    result.expect("one is left");
    daemon.source.pods.push(part("third", "100"));
    chosen(&daemon, &ResourceNames::default().count).expect("it alone lacks devices");
    assert!(holds(&daemon, "uid-third"));
    assert_eq!(daemon.source().asked.lock().unwrap().len(), 2);
}

#[test]
fn pods_that_the_kubelet_knows_stay_ambiguous() {
    let waiting = [part("a", "100"), part("b", "100"), part("rejected", "100")];
    let (_, result) = among(&waiting, Some(&["a", "b"]), chosen);
    assert_eq!(
        result.expect_err("two are left").to_string(),
        "cannot tell which pod is being admitted: all of these wait for 1 nvidia.com/gpu: default/a, default/b; recreate the pod"
    );
}

#[test]
fn refusal_says_why_pod_resources_did_not_help() {
    let (_, result) = among(&[part("a", "100"), part("b", "100")], None, chosen);
    let refusal = result.expect_err("nobody knows");
    assert_eq!(refusal.kind(), "identity-ambiguous");
    assert_eq!(
        refusal.to_string(),
        "cannot tell which pod is being admitted: all of these wait for 1 nvidia.com/gpu: default/a, default/b; recreate the pod (PodResources could not tell which of them the kubelet has rejected: no answer)"
    );
}

#[test]
fn only_pod_that_waits_is_identified_without_pod_resources() {
    let (daemon, result) = among(&[part("a", "100"), pod("other", &[&[("gpu", "2")]])], None, chosen);
    result.expect("it alone waits for one");
    assert_eq!(*daemon.source().asked.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn rejected_pod_does_not_get_the_devices_of_a_forgotten_one() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("forgotten", "600"));
    node.serve(1).expect("fits");
    node.lose_checkpoint();
    let pods = vec![part("rejected", "100"), Arc::clone(&node.pods[0])];
    let records = Some([("forgotten".to_owned(), vec![])].into());
    let daemon = daemon(&mut node, Answers { pods, records, ..Answers::default() });
    chosen(&daemon, &ResourceNames::default().count).expect("allocated again");
    assert!(holds(&daemon, "uid-forgotten") && !holds(&daemon, "uid-rejected"));
}

#[test]
fn container_start_restores_a_pod_that_the_ledger_lost() {
    let mut node = Node::new(1, PolicyName::Binpack);
    let pods = vec![part("a", "100")];
    let records = Some([("a".to_owned(), vec![record("a", "GPU-0::2")])].into());
    let daemon = daemon(&mut node, Answers { pods, records, ..Answers::default() });
    assert_eq!(kind(at_once(daemon.pre_start(&[slot("GPU-0::3")]))), "unknown-holder");
    at_once(daemon.pre_start(&[slot("GPU-0::2")])).expect("restored");
    assert!(lock(daemon.allocator()).ledger().allocations().pod("uid-a").is_some());
}

#[test]
fn start_compares_the_ledger_with_device_records() {
    let mut node = Node::new(1, PolicyName::Binpack);
    let records = Some([("a".to_owned(), vec![record("a", "GPU-0::2")])].into());
    let daemon = daemon(&mut node, Answers { pods: vec![part("a", "100")], records, ..Answers::default() });
    at_once(daemon.recover()).expect("both answer");
    assert!(lock(daemon.allocator()).ledger().allocations().pod("uid-a").is_some());
}

/// Pods in the ledger after two lists without the one that holds a share, a quiet period apart.
fn left_after_missing(age: Duration, listed: Arc<Pod>) -> usize {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("missing", "100"));
    node.serve(1).expect("fits");
    let daemon = daemon(&mut node, Answers { pods: vec![listed], age: Some(age), ..Answers::default() });
    at_once(daemon.reconcile()).expect("listed");
    std::thread::sleep(SETTLE_TIME);
    at_once(daemon.reconcile()).expect("listed");
    lock(daemon.allocator()).ledger().allocations().pods().count()
}

#[test]
fn share_of_a_missing_pod_ends_once_the_kubelet_has_settled() {
    let listed = || part("listed", "1");
    assert_eq!(left_after_missing(SETTLE_TIME / 2, listed()), 1, "the kubelet may not have listed it yet");
    assert_eq!(left_after_missing(SETTLE_TIME, listed()), 0);
    let mut of_file = listed();
    Arc::make_mut(&mut of_file).annotations.insert(CONFIG_SOURCE.to_owned(), "file".to_owned());
    assert_eq!(left_after_missing(SETTLE_TIME, of_file), 1, "the kubelet may not have reached the API server yet");
}

#[test]
fn foreign_pod_keeps_its_card_until_it_ends() {
    for is_on_record_at_start in [true, false] {
        let mut node = Node::new(1, PolicyName::Binpack);
        let records = Some([("nano".to_owned(), vec![nano_record("nano")])].into());
        let pods = vec![nano("nano", &["0"])];
        let mut daemon = daemon(&mut node, Answers { pods, records, ..Answers::default() });
        if is_on_record_at_start {
            at_once(daemon.recover()).expect("both answer");
        }
        daemon.source.pods.push(part("early", "100"));
        assert_eq!(kind(chosen(&daemon, &ResourceNames::default().count)), "no-fit");
        assert!(holds(&daemon, "uid-nano"));
        let asked = daemon.source().asked.lock().unwrap().clone();
        assert_eq!(asked, if is_on_record_at_start { vec![] } else { vec!["nano"] }, "once, for both calls");
        Arc::make_mut(&mut daemon.source.pods[0]).phase = Phase::Succeeded;
        Arc::make_mut(&mut daemon.source.pods[0]).states.clear();
        daemon.source.pods.push(part("late", "100"));
        chosen(&daemon, &ResourceNames::default().count).expect("the card is free");
        assert!(holds(&daemon, "uid-late") && !holds(&daemon, "uid-nano"));
    }
}

#[test]
fn unlisted_foreign_pod_keeps_its_card() {
    let mut node = Node::new(1, PolicyName::Binpack);
    let records = [("nano".to_owned(), vec![nano_record("nano")]), ("own".to_owned(), vec![])].into();
    let bound = Some(vec![nano("nano", &["0"]), part("own", "100")]);
    let daemon = daemon(&mut node, Answers { bound, records: Some(records), ..Answers::default() });
    assert_eq!(kind(chosen(&daemon, &ResourceNames::default().count)), "no-fit");
    assert!(holds(&daemon, "uid-nano") && !holds(&daemon, "uid-own"));
}

#[test]
fn foreign_pod_without_devices_is_asked_for_until_started() {
    let mut node = Node::new(1, PolicyName::Binpack);
    let mut pending = nano("nano", &["0"]);
    (Arc::make_mut(&mut pending).phase, Arc::make_mut(&mut pending).states) = (Phase::Pending, BTreeMap::new());
    let records = Some([("nano".to_owned(), vec![])].into());
    let mut daemon = daemon(&mut node, Answers { pods: vec![pending], records, ..Answers::default() });
    let asked = |daemon: &Daemon<Answers>| {
        at_once(daemon.reconcile()).expect("listed");
        daemon.source().asked.lock().unwrap().len()
    };
    assert_eq!([asked(&daemon), asked(&daemon)], [1, 2]);
    daemon.source.pods = vec![nano("nano", &["0"])];
    assert_eq!([asked(&daemon), asked(&daemon)], [3, 3]);
    assert!(!holds(&daemon, "uid-nano"));
}

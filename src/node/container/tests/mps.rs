//! Containers whose processes are clients of CUDA's multi-process service.

use super::*;
use crate::container::isolation::tests::mps;
use divvy_mps::MpsDirectory;

const TERMS: Terms = Terms { tier: Tier::Mps, compute: Compute::Cap, compute_limit: None, priority: None };

impl Host {
    fn with_service(&self) -> Containers {
        Containers::new(self.options("envvar"), mps(&self.path("run"), "1"))
    }

    fn service(&self) -> MpsDirectory {
        let place = MpsDirectory::new(&self.path("run"));
        place.create().expect("directories");
        place
    }

    /// Mounts and variables, a line each.
    fn brings(&self, answer: &ContainerResponse) -> String {
        let mounts = answer.mounts.iter().map(|mount| {
            let access = if mount.read_only { "ro" } else { "rw" };
            format!("{} <- {} {access}\n", mount.container_path, mount.host_path)
        });
        let mut variables: Vec<_> = answer.envs.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        variables.sort();
        self.steady(&mounts.chain(variables).collect::<String>())
    }
}

fn client(nonce: &str, shares: &[(CardId, Share)]) -> AllocatedContainer<'static> {
    AllocatedContainer { terms: TERMS, ..allocated(nonce, shares) }
}

fn of(card: &str, memory: u64, cores: u32) -> (CardId, Share) {
    (id(card), Share { memory: Memory::mib(memory), cores: Cores::new(cores), ..Share::default() })
}

#[test]
fn mps_container_gets_libdivvy_and_pipe_directory() {
    let host = Host::new();
    let (delivery, _up) = (host.with_service(), host.service().mark_ready().expect("a lock"));
    let answer = delivery.prepare(&client("n-1", &[share(A, 8192)])).expect("an answer");
    insta::assert_snapshot!(host.brings(&answer), @r"
    /var/run/divvy/limits <- /host/run/containers/n-1/limits ro
    /var/run/divvy/region <- /host/run/containers/n-1/region rw
    /usr/lib/divvy/libdivvy.so <- /host/run/state/lib/n-1.so ro
    /etc/ld.so.preload <- /host/run/state/lib/ld.so.preload ro
    /var/run/divvy/mps <- /host/run/mps/pipe rw
    /dev/shm <- /host/run/mps/shm rw
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30
    CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8192M
    CUDA_MPS_PIPE_DIRECTORY=/var/run/divvy/mps
    NVIDIA_VISIBLE_DEVICES=GPU-5c3f2a10-0000-4000-8000-00000000000a
    ");
    let text = fs::read_to_string(host.path("run/containers/n-1/limits/limits")).expect("limits");
    assert!(text.contains("\ntier mps\n"), "{text}");
    assert!(host.path("run/containers/n-1/region/books").is_file());
}

#[test]
fn mps_limits_for_several_gpus() {
    let host = Host::new();
    let (delivery, _up) = (host.with_service(), host.service().mark_ready().expect("a lock"));
    let limits = |shares: &[(CardId, Share)]| {
        let answer = delivery.prepare(&client("n-1", shares)).expect("an answer");
        let of = |name: &str| answer.envs.get(name).cloned();
        (of("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), of("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
    };
    let is = |memory: &str, cores: Option<&str>| (Some(memory.to_owned()), cores.map(str::to_owned));
    assert_eq!(limits(&[of(A, 300, 30), of(B, 300, 30)]), is("0=300M,1=300M", Some("30")));
    assert_eq!(limits(&[of(A, 300, 30), of(B, 500, 50)]), is("0=500M,1=500M", Some("30")));
    assert_eq!(limits(&[of(A, 300, 0)]), is("0=300M", None), "who was promised nothing has no cap of its own");
    let whole = Share { memory: Memory::mib(81_559), cores: Cores::FULL, exclusive: true, ..Share::default() };
    assert_eq!(limits(&[(id(A), whole)]), (None, None));
}

#[test]
fn whole_gpu_is_used_through_the_mps_service() {
    let host = Host::new();
    let (delivery, _up) = (host.with_service(), host.service().mark_ready().expect("a lock"));
    let whole = Share { memory: Memory::mib(81_559), cores: Cores::FULL, exclusive: true, ..Share::default() };
    let answer = delivery.prepare(&client("n-1", &[(id(A), whole)])).expect("an answer");
    insta::assert_snapshot!(host.brings(&answer), @r"
    /var/run/divvy/limits <- /host/run/containers/n-1/limits ro
    /var/run/divvy/region <- /host/run/containers/n-1/region rw
    /var/run/divvy/mps <- /host/run/mps/pipe rw
    /dev/shm <- /host/run/mps/shm rw
    CUDA_MPS_PIPE_DIRECTORY=/var/run/divvy/mps
    NVIDIA_VISIBLE_DEVICES=GPU-5c3f2a10-0000-4000-8000-00000000000a
    ");
}

#[test]
fn new_containers_are_refused_while_mps_is_down() {
    let host = Host::new();
    let (delivery, place, shares) = (host.with_service(), host.service(), [share(A, 300)]);
    let up = place.mark_ready().expect("a lock");
    delivery.prepare(&client("n-1", &shares)).expect("an answer");
    assert_eq!(delivery.problem(), None);
    drop(up);
    let refused = delivery.prepare(&client("n-2", &shares)).expect_err("nobody would keep it to its share");
    insta::assert_snapshot!(host.steady(&refused.to_string()), @"tier mps can't be served now: CUDA's MPS is not up on this node: DaemonSet divvy-mps runs it on nodes with label divvy.dev/mps=true; see the log of its pod (/host/run/mps/ready is not locked); running containers are not affected");
    assert!(!host.path("run/containers/n-2").exists());
    delivery.write_limits(&client("n-1", &shares)).expect_err("nor if it starts again");
    delivery.renew_limits(&client("n-1", &shares)).expect("but it may be running");
    let _up = place.mark_ready().expect("a lock");
    delivery.prepare(&client("n-2", &shares)).expect("an answer");
}

#[test]
fn shim_containers_keep_their_tier_under_mps() {
    let host = Host::new();
    let (delivery, shares) = (host.with_service(), [share(A, 300)]);
    let terms = Terms { tier: Tier::Shim, compute: Compute::Burst, compute_limit: None, priority: None };
    let container = AllocatedContainer { terms, ..allocated("n-1", &shares) };
    let answer = delivery.prepare(&container).expect("it needs no service");
    assert_eq!((answer.mounts.len(), answer.envs.len()), (4, 1));
    assert!(host.path("run/containers/n-1/region/books").is_file());
}

#[test]
fn mps_service_excludes_mig_instances() {
    let host = Host::new();
    let delivery = host.with_service();
    let instance = "MIG-5c3f2a10-0000-4000-8000-0000000000aa";
    assert_eq!(delivery.tier_on(&[share(A, 1)]), Tier::Mps);
    assert_eq!(delivery.tier_on(&[share(instance, 1)]), Tier::Shim);
}

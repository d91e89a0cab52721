//! Pods whose program uses a card, by a stand-in for the driver.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_api::names::annotation as key;
use divvy_e2e::cluster::{Cluster, Look};
use divvy_e2e::daemon::CARDS_IN_USE;
use divvy_e2e::files::Programs;
use divvy_e2e::image::{self, FileOfImage};
use divvy_e2e::{pods, view};
use divvy_node::usage::DriverMemoryTable;
use divvy_testkit::pods::PodShape;
use fake_cuda::card::Card;
use fake_cuda::{CardDescription, Machine};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

/// Where containers find what the driver's processes share.
const CARDS: &str = "/cards";
/// The file there during which programs rest.
const REST: &str = "rest";
const PATIENCE: Duration = Duration::from_secs(60);

/// What the pods need: the card that they are on, what its processes share, and where they are heard.
pub(crate) struct Guests {
    card: String,
    /// Bytes of a context.
    context: u64,
    cards: PathBuf,
    logs: PathBuf,
    /// Allocators that programs preload, as far as this machine has them: where the image has them too.
    pub(crate) allocators: Vec<&'static str>,
}

/// Of Debian's `libjemalloc2` and `libtcmalloc-minimal4`.
const ALLOCATORS: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"];

/// The library as containers get it, built by the script that images are built by.
pub(crate) async fn library() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = Command::new(root.join("hack/libdivvy")).stderr(Stdio::inherit()).output();
    let built = script.await.context("starting hack/libdivvy")?;
    ensure!(built.status.success(), "hack/libdivvy: {}", built.status);
    Ok(root.join(String::from_utf8(built.stdout)?.trim_end()).canonicalize()?)
}

/// What the dynamic linker loads for a program or a library, itself included.
async fn loaded(object: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("ldd").arg(object).output().await.context("starting ldd")?;
    ensure!(listed.status.success(), "ldd {}: {}", object.display(), String::from_utf8_lossy(&listed.stderr));
    let text = String::from_utf8(listed.stdout)?;
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

/// Process of a pod's program.
fn pid(look: &Look, name: &str) -> anyhow::Result<u32> {
    let pod = look.node.pods.iter().find(|pod| pod.name == format!("default/{name}"));
    let uid = &pod.with_context(|| format!("no pod {name}"))?.uid;
    let running = look.running.iter().find(|((owner, _), _)| owner == uid);
    Ok(running.with_context(|| format!("pod {name} doesn't run"))?.1.pid)
}

// === impl Guests ===

impl Guests {
    /// Makes their image, and the machine that their driver drives: the node's cards.
    pub(crate) async fn install(cluster: &Cluster) -> anyhow::Result<Self> {
        let cards = cluster.files.directory(CARDS_IN_USE)?;
        let first = cluster.scenario.cards.first().context("a node with cards")?;
        // What the daemon charges a container for one before it has seen any.
        let context = DriverMemoryTable::shipped(&first.model, "").context_bytes;
        let described = |card: &fake_nvml::CardScenario| {
            serde_json::from_value::<CardDescription>(json!({
                "uuid": card.uuid, "model": card.model, "memory_total": card.memory_total, "context_bytes": context,
            }))
        };
        let described = cluster.scenario.cards.iter().map(described).collect::<Result<_, _>>()?;
        Machine { cards: described, ..Machine::default() }.write(&cards.join("cards.json"))?;
        let program = PathBuf::from(env!("CARGO_BIN_EXE_guest"));
        let driver = std::env::current_exe()?.with_file_name("libfake_cuda.so");
        let mut files_of = [loaded(&program).await?, loaded(&driver).await?].concat();
        let allocators = ALLOCATORS.into_iter().filter(|path| Path::new(path).exists()).collect::<Vec<_>>();
        for allocator in allocators.iter().map(Path::new) {
            files_of.extend(loaded(allocator).await?);
            files_of.push(allocator.to_owned());
        }
        let in_image = |path: PathBuf| (path.display().to_string().trim_start_matches('/').to_owned(), path);
        let mut files: Vec<FileOfImage> = files_of.into_iter().map(in_image).collect();
        files.extend([("bin/guest".to_owned(), program), ("lib/libcuda.so.1".to_owned(), driver)]);
        files.sort();
        files.dedup();
        cluster.containerd.import(&Programs::find()?, &cluster.files, image::GUEST, &["/bin/guest"], &files).await?;
        Ok(Self { card: first.uuid.clone(), context, cards, logs: cluster.files.at("pod-logs"), allocators })
    }

    /// A pod that works on the card.
    pub(crate) fn pod(&self, name: &str, gib: u64, cores: u32) -> anyhow::Result<Value> {
        let (memory, cores) = (format!("{gib}Gi"), cores.to_string());
        let limits: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", &memory), ("gpucores", &cores)];
        let mut pod = pods::object(PodShape::new(name).with(App, "main", limits))?;
        pod["metadata"]["annotations"][key::CARD_UUID] = json!(self.card);
        // The driver's stand-in knows processes by the numbers that they know themselves by.
        pod["spec"]["hostPID"] = json!(true);
        pod["spec"]["volumes"] = json!([{"name": "cards", "hostPath": {"path": self.cards}}]);
        let container = &mut pod["spec"]["containers"][0];
        container["image"] = json!(image::GUEST);
        // A driver shows the cards whose device nodes there are; its stand-in those that it is told.
        let start = "CUDA_VISIBLE_DEVICES=$NVIDIA_VISIBLE_DEVICES exec /bin/guest";
        container["command"] = json!(["/bin/busybox", "sh", "-c", start]);
        container["env"] = json!([
            {"name": "FAKE_CUDA_STATE", "value": CARDS},
            {"name": "FAKE_CUDA_CARDS", "value": format!("{CARDS}/cards.json")},
            {"name": "LD_LIBRARY_PATH", "value": "/lib"},
            {"name": "REST", "value": format!("{CARDS}/{REST}")},
        ]);
        container["volumeMounts"] = json!([{"name": "cards", "mountPath": CARDS}]);
        Ok(pod)
    }

    /// Waits until a pod's program has said, in its life of this number, that it has all of its memory and no more.
    pub(crate) async fn has_memory(
        &self,
        cluster: &mut Cluster,
        name: &str,
        gib: u64,
        life: u32,
    ) -> anyhow::Result<()> {
        let (total, free) = (gib << 30, (gib << 30) - self.context);
        let wanted = [format!("free {free} total {total}"), format!("room {free}")];
        let uid = cluster.until_pod(name, |pod| Some(view::uid(pod).to_owned())).await?;
        let log = self.logs.join(format!("default_{name}_{uid}/main/{life}.log"));
        let what = format!("{name} that says {wanted:?}");
        let heard = async |_: &mut Cluster| {
            let text = std::fs::read_to_string(&log).with_context(|| log.display().to_string())?;
            // As the kubelet has it: time, stream, whole or part of a line, and the line.
            let said: Vec<&str> = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
            ensure!(said == wanted, "it says {said:?}");
            Ok(Some(()))
        };
        cluster.until(&what, PATIENCE, heard).await?;
        println!("  {name}, life {life}: {}", wanted.join(", "));
        Ok(())
    }

    /// Lets all programs rest from now on, or work again.
    pub(crate) fn rest(&self, rests: bool) -> anyhow::Result<()> {
        let file = self.cards.join(REST);
        let done = if rests { std::fs::write(&file, "") } else { std::fs::remove_file(&file) };
        done.with_context(|| file.display().to_string())
    }

    /// How much of the card's time the pods of these names have for a while, in percent.
    pub(crate) async fn parts<const N: usize>(&self, cluster: &Cluster, names: [&str; N]) -> anyhow::Result<[f64; N]> {
        let (began, before) = (Instant::now(), self.busy(cluster, names)?);
        tokio::time::sleep(Duration::from_secs(4)).await;
        let (elapsed, after) = (began.elapsed().as_secs_f64(), self.busy(cluster, names)?);
        Ok(std::array::from_fn(|at| 100.0 * after[at].saturating_sub(before[at]).as_secs_f64() / elapsed))
    }

    /// What a pod's program has mapped.
    pub(crate) fn maps(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
        let maps = format!("/proc/{}/maps", pid(&cluster.look()?, name)?);
        std::fs::read_to_string(&maps).context(maps)
    }

    /// How long the card has worked for each pod's program.
    fn busy<const N: usize>(&self, cluster: &Cluster, names: [&str; N]) -> anyhow::Result<[Duration; N]> {
        let look = cluster.look()?;
        let card = Card::open(&self.cards, &self.card).context("the card in use")?;
        let mut busy = [Duration::ZERO; N];
        for (busy, name) in busy.iter_mut().zip(names) {
            let pid = pid(&look, name)?;
            *busy = Duration::from_nanos(card.usage_of(pid).with_context(|| format!("{name} isn't on the card"))?.busy);
        }
        Ok(busy)
    }
}

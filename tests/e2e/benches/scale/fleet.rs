//! The nodes: objects that this program makes, and the programs that play their daemons.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use divvy_e2e::api::Api;
use divvy_e2e::cluster::Cluster;
use divvy_e2e::fakes::{self, Fake};
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::program::{Program, execute};
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::play::{self, CARDS, SLOTS};
use crate::rounds::count;

/// Nodes of one program: each takes five file descriptors.
const NODES_A_PROGRAM: usize = 2500;
/// Names of the programs.
const PROGRAMS: [&str; 4] = ["daemons-0", "daemons-1", "daemons-2", "daemons-3"];
/// Longest wait for something that each node or each pod takes part in.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// Pods that are created or deleted at a time.
const AT_ONCE: usize = 20;

/// The programs that play the daemons.
#[derive(Debug)]
pub(crate) struct Fleet {
    programs: Vec<(Program, SocketAddr)>,
}

/// What the programs have counted, all together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// Nodes whose publisher was started.
    pub(crate) nodes: usize,
    /// Pods that became Running.
    pub(crate) running: usize,
    /// Pods that had their annotation `cards`.
    pub(crate) annotated: usize,
    /// Pods that were refused at their admission.
    pub(crate) refused: usize,
    /// Pods that ended.
    pub(crate) ended: usize,
}

/// A number of the environment.
pub(crate) fn number(variable: &str, default: usize) -> anyhow::Result<usize> {
    let Ok(text) = std::env::var(variable) else { return Ok(default) };
    text.parse().with_context(|| format!("{variable}={text}: it must be a number"))
}

/// Pod `number`, as its user writes it.
pub(crate) fn pod(name: &str, number: usize) -> PodShape {
    pods::part(format!("{name}-{number}"), number)
}

/// Creates pods, a few at a time.
pub(crate) async fn create(cluster: &Cluster, shapes: impl Iterator<Item = PodShape>) -> anyhow::Result<()> {
    let mut creations = JoinSet::new();
    for shape in shapes {
        if creations.len() >= AT_ONCE {
            creations.join_next().await.context("a creation")???;
        }
        let (api, pod) = (cluster.api.clone(), pods::object(shape)?);
        creations.spawn(create_in_the_end(api, pod));
    }
    creations.join_all().await.into_iter().collect()
}

/// Creates a pod, and tries again where no answer comes in time: others may use the machine too.
async fn create_in_the_end(api: Api, pod: Value) -> anyhow::Result<()> {
    let deadline = Instant::now() + LONG;
    loop {
        match api.create(PODS, &pod).await {
            Err(error) if error.to_string().contains("already exists") => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(error) => println!("  creating a pod, again: {error:#}"),
            Ok(_) => return Ok(()),
        }
    }
}

/// Deletes pods, a few at a time.
pub(crate) async fn delete(cluster: &Cluster, names: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut deletions = JoinSet::new();
    for name in names {
        if deletions.len() >= AT_ONCE {
            deletions.join_next().await.context("a deletion")???;
        }
        let api = cluster.api.clone();
        deletions.spawn(async move { api.delete(&format!("{PODS}/{name}")).await });
    }
    deletions.join_all().await.into_iter().collect()
}

// === impl Fleet ===

impl Fleet {
    /// Makes the Nodes, starts the programs that play their daemons, and waits until the leader knows all GPUs.
    pub(crate) async fn start(cluster: &mut Cluster, nodes: usize) -> anyhow::Result<Self> {
        fakes::remove_the_node(cluster).await?;
        let fake = |number| Fake { name: play::name(number), amounts: amounts(), cards: Vec::new() };
        fakes::make(cluster, (0..nodes).map(fake).collect()).await?;
        let directory = cluster.files.directory("nodes")?;
        // Ledgers are small files, each in its node's directory; what a disk would cost is not the question.
        execute("mount", &["-t", "tmpfs", "tmpfs", &directory.display().to_string()])?;
        let mut fleet = Self { programs: Vec::new() };
        let firsts = (0..nodes).step_by(NODES_A_PROGRAM);
        ensure!(
            firsts.len() <= PROGRAMS.len(),
            "{nodes} nodes: at most {} can be played",
            PROGRAMS.len() * NODES_A_PROGRAM
        );
        for (first, program) in firsts.zip(PROGRAMS) {
            let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            let kubeconfig = cluster.files.at("admin.kubeconfig").display().to_string();
            let count = NODES_A_PROGRAM.min(nodes - first);
            let words = [play::PLAY, &kubeconfig, &directory.display().to_string(), &address.to_string()];
            let numbers = [first.to_string(), count.to_string()];
            let args = words.map(str::to_owned).into_iter().chain(numbers).collect();
            let path = std::env::current_exe().context("finding this program")?;
            let mut program = Program::new(program, path, args, &cluster.files.logs());
            program.start()?;
            fleet.programs.push((program, address));
        }
        fleet.until(cluster, "publishers that are all started", |counted| counted.nodes == nodes).await?;
        cluster
            .until("nodes that have all reported", LONG, async |this| {
                for replica in &this.webhook.replicas {
                    let known =
                        replica.gauge("divvy_nodes").await? - replica.gauge("divvy_nodes_unschedulable").await?;
                    ensure!(known >= count(nodes), "{known} of {nodes} nodes are known");
                }
                Ok(Some(()))
            })
            .await?;
        Ok(fleet)
    }

    /// The programs.
    pub(crate) fn players(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().map(|(program, _)| program)
    }

    /// Ends the programs: nobody plays the daemons any more.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        for (program, _) in &mut self.programs {
            program.kill().await?;
        }
        Ok(())
    }

    /// What they have counted.
    pub(crate) async fn counted(&self) -> anyhow::Result<Counted> {
        let mut sum = Counted::default();
        for (_, address) in &self.programs {
            let [nodes, running, annotated, refused, ended] = play::counts(*address).await?;
            sum.nodes += nodes;
            sum.running += running;
            sum.annotated += annotated;
            sum.refused += refused;
            sum.ended += ended;
        }
        Ok(sum)
    }

    /// Waits until the counts are as wanted.
    pub(crate) async fn until(
        &mut self,
        cluster: &mut Cluster,
        what: &str,
        wanted: impl Fn(&Counted) -> bool,
    ) -> anyhow::Result<Counted> {
        cluster
            .until(what, LONG, async |_| {
                let counted = self.counted().await?;
                self.programs.iter_mut().try_for_each(|(program, _)| program.check())?;
                if wanted(&counted) { Ok(Some(counted)) } else { bail!("{counted:?}") }
            })
            .await
    }
}

/// Amounts that the kubelet of a node reports.
pub(crate) fn amounts() -> Value {
    let gpus = CARDS * usize::try_from(SLOTS).unwrap_or_default();
    json!({"cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": gpus.to_string()})
}

//! Divvy as pods: installed by the words of `deploy/`, and found.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use divvy_testkit::binaries::Binaries;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Cluster, PATIENCE};
use crate::api::Part;
use crate::containers;
use crate::control_plane::SCHEDULER_CONFIG;
use crate::installation::{Installation, Older, SOURCE};
use crate::node::NODE;
use crate::{namespace, pages, view};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
/// Pods of Divvy.
const PODS: &str = "/api/v1/namespaces/divvy-system/pods?labelSelector=app.kubernetes.io/name=";
const DAEMON: &str = "divvy-node";
const WEBHOOK: &str = "divvy-webhook";
const MPS: &str = "divvy-mps";
const MPS_MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/mps/divvy-mps.yaml");
const MPS_CONTROL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fake-gpu/mps/nvidia-cuda-mps-control");
const WEBHOOK_CONFIG: &str = "/api/v1/namespaces/divvy-system/configmaps/divvy-webhook";
const WEBHOOK_FILE: &str = "divvy-webhook.yaml";
const WORKLOADS: [&str; 2] = ["daemonset/divvy-node", "deployment/divvy-webhook"];
/// Tags of the images that the manifests name, and of those of another version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const OTHER: &str = "other";
/// Ports of their pages.
const DAEMON_PAGES: u16 = 9402;
const WEBHOOK_PAGES: u16 = 9403;
/// Port of the aggregated API.
const AGGREGATED_API: u16 = 8446;

// === impl Cluster ===

impl Cluster {
    /// Brings the images, and follows the READMEs of `deploy/manifests` or `deploy/helm/divvy`, and of `deploy/scheduler`.
    pub async fn install_pods(&mut self) -> anyhow::Result<()> {
        let installation = self.installation.clone();
        let (Installation::Manifests(images) | Installation::Chart(images, _)) = &installation else { return Ok(()) };
        for archive in images.older()?.images.archives() {
            self.containerd.import_archive(&archive).await?;
        }
        for image in [DAEMON, WEBHOOK] {
            self.containerd.tag(&format!("{image}:{VERSION}"), &format!("{image}:{OTHER}")).await?;
        }
        for archive in images.archives() {
            self.containerd.import_archive(&archive).await?;
        }
        self.kubectl.run(&["label", "--overwrite", "node", NODE, "nvidia.com/gpu.present=true"]).await?;
        if let Installation::Chart(_, helm) = &installation {
            if self.api.find("/api/v1/namespaces/divvy-system").await?.is_none() {
                self.kubectl.run(&["create", "namespace", "divvy-system"]).await?;
            }
            let privileged = "pod-security.kubernetes.io/enforce=privileged";
            self.kubectl.run(&["label", "--overwrite", "namespace", "divvy-system", privileged]).await?;
            self.helm(helm, "install divvy DEPLOY/helm/divvy --set cluster.scheduling=extender").await?;
        } else {
            self.apply_manifests(Path::new(SOURCE), None).await?;
        }
        self.rolled_out().await?;
        self.configure_scheduler_by_the_readme().await
    }

    /// Switches the aggregated API on, by the words of `deploy/aggregated-api` or by the chart's value. Returns where one of the
    /// pods listens for it.
    pub(super) async fn switch_on_aggregated_api_of_pods(&mut self) -> anyhow::Result<SocketAddr> {
        let commands = commands_of("aggregated-api/README.md", "Switch it on")?;
        // The first says "not found", and the configuration is changed in its own way here. The chart applies the rest.
        let apply = if matches!(self.installation, Installation::Chart(..)) {
            "nothing"
        } else {
            "kubectl apply -f deploy/aggr"
        };
        let is_run =
            |line: &&str| [apply, "kubectl wait", "kubectl get podr"].iter().any(|start| line.starts_with(start));
        let (roles, served): (Vec<&str>, Vec<&str>) =
            commands.lines().filter(is_run).partition(|line| line.ends_with("roles.yaml"));
        self.shell(&roles.join("\n"), Path::new(SOURCE)).await?;
        self.configure_pods(&json!({"aggregatedApi": "on"})).await?;
        println!("  {}", self.shell(&served.join("\n"), Path::new(SOURCE)).await?.trim());
        address(self.pods_of(WEBHOOK).await?.first().context("no pod of divvy-webhook is ready")?, AGGREGATED_API)
    }

    /// Switches it off again.
    pub(super) async fn switch_off_aggregated_api_of_pods(&mut self) -> anyhow::Result<()> {
        if matches!(self.installation, Installation::Manifests(_)) {
            let commands = commands_of("aggregated-api/README.md", "Switch it off")?;
            println!("  {}", self.shell(&commands, Path::new(SOURCE)).await?.trim());
        }
        self.configure_pods(&json!({"aggregatedApi": "off"})).await?;
        let names = ["apiservice/v1alpha1.metrics.nvidia.com", "clusterrole/divvy-podresources-view"];
        let left = self.kubectl.run(&[&["get", "--ignore-not-found"], names.as_slice()].concat()).await?;
        ensure!(left.trim().is_empty(), "left: {left}");
        Ok(())
    }

    /// Starts divvy-mps on the node, by its manifest or by the chart's value, beside a stand-in for the driver's control program.
    pub async fn switch_on_mps(&mut self) -> anyhow::Result<()> {
        let installation = self.installation.clone();
        let images = installation.images()?;
        let control = Path::new(MPS_CONTROL);
        let name = control.file_name().context("a name")?;
        namespace::install(&self.files, "programs", control, &Path::new("/usr/bin").join(name))?;
        self.containerd.import_archive(&images.mps()).await?;
        self.kubectl.run(&["label", "node", NODE, "divvy.dev/mps=true"]).await?;
        if let Installation::Chart(_, helm) = &installation {
            self.helm(helm, "upgrade divvy DEPLOY/helm/divvy --reuse-values --set mps.enabled=true").await?;
        } else {
            self.kubectl.run(&["apply", "-f", MPS_MANIFEST]).await?;
        }
        self.until("pod of divvy-mps", PATIENCE, async |this| Ok(this.pods_of(MPS).await?.first().map(drop))).await
    }

    /// Takes it off again.
    pub async fn switch_off_mps(&mut self) -> anyhow::Result<()> {
        if let Installation::Chart(..) = &self.installation {
            self.roll_back().await?;
        } else {
            self.kubectl.run(&["delete", "-f", MPS_MANIFEST]).await?;
        }
        self.kubectl.run(&["label", "node", NODE, "divvy.dev/mps-"]).await?;
        self.until("end of divvy-mps", PATIENCE, async |this| Ok(this.pods_of(MPS).await?.is_empty().then_some(())))
            .await?;
        // No node falls back to a weaker tier by itself.
        let daemon = format!("--selector=app.kubernetes.io/name={DAEMON}");
        self.kubectl.run(&["--namespace=divvy-system", "delete", "pod", &daemon]).await?;
        self.rolled_out().await
    }

    /// Begins to replace Divvy by the older version, by its own manifests or chart.
    pub async fn install_older(&self) -> anyhow::Result<()> {
        let images = self.installation.images()?;
        let Older { source, .. } = images.older()?;
        println!("  the older version: {}", source.display());
        if let Installation::Chart(_, helm) = &self.installation {
            // It may not know a newer chart's values.
            return self.upgrade_by_chart(helm, &source, OTHER, "--reset-values").await;
        }
        self.apply_manifests(&source, Some(OTHER)).await
    }

    /// Begins to replace the older version, by the words of the READMEs.
    pub async fn upgrade(&self) -> anyhow::Result<()> {
        if let Installation::Chart(_, helm) = &self.installation {
            return self.upgrade_by_chart(helm, Path::new(SOURCE), VERSION, "--reset-then-reuse-values").await;
        }
        self.apply_manifests(Path::new(SOURCE), None).await
    }

    async fn upgrade_by_chart(&self, helm: &Path, source: &Path, tag: &str, values: &str) -> anyhow::Result<()> {
        let chart = source.join("deploy/helm/divvy");
        // A chart before the key scheduling has its own; null takes a value away that was kept for it.
        let schema = std::fs::read_to_string(chart.join("values.schema.json"))?;
        let knows = schema.contains("\"scheduling\"");
        let extender = if knows { "cluster.scheduling=extender,webhook.extender=null" } else { "webhook.extender=on" };
        let set = format!("--set images.node={DAEMON}:{tag},images.webhook={WEBHOOK}:{tag},{extender}");
        self.helm(helm, &format!("upgrade divvy {} {values} {set}", chart.display())).await.map(drop)
    }

    /// Changes keys of the webhook's configuration: values of the chart, or lines of its ConfigMap.
    pub(super) async fn configure_pods(&mut self, keys: &Value) -> anyhow::Result<()> {
        let keys = keys.as_object().context("keys are a map")?;
        if let Installation::Chart(_, helm) = &self.installation {
            let part = |key: &str| if key == "scheduling" { "cluster" } else { "webhook" };
            let set = |(key, value): (&String, &Value)| format!("--set-json {}.{key}={value}", part(key));
            let values: Vec<String> = keys.iter().map(set).collect();
            let line = format!("upgrade divvy DEPLOY/helm/divvy --reuse-values {}", values.join(" "));
            self.helm(helm, &line).await?;
        } else {
            let map = self.api.get(WEBHOOK_CONFIG).await?;
            let before = map["data"][WEBHOOK_FILE].as_str().context("divvy-webhook has no configuration")?;
            let others = before.lines().filter(|line| !keys.keys().any(|key| line.starts_with(&format!("{key}:"))));
            let text = others.fold(String::new(), |text, line| text + line + "\n");
            let text = keys.iter().fold(text, |text, (key, value)| format!("{text}{key}: {value}\n"));
            self.api.patch(WEBHOOK_CONFIG, Part::Object, &json!({"data": {(WEBHOOK_FILE): text}})).await?;
            self.restart_webhook().await?;
        }
        self.rolled_out().await?;
        // A replica that ends answers for some seconds more, by what it has read.
        self.until("end of replicas with the configuration before", PATIENCE, async |this| {
            let all = this.api.get(&format!("{PODS}{WEBHOOK}")).await?;
            let all = all["items"].as_array().map_or(0, Vec::len);
            Ok((all == this.pods_of(WEBHOOK).await?.len()).then_some(()))
        })
        .await
    }

    /// Puts the configuration back that was installed.
    pub async fn configure_pods_as_installed(&mut self) -> anyhow::Result<()> {
        if let Installation::Chart(..) = self.installation {
            self.roll_back().await?;
        } else if self.installation.is_of_pods() {
            self.upgrade().await?;
            self.restart_webhook().await?;
        } else {
            return Ok(());
        }
        self.rolled_out().await
    }

    async fn restart_webhook(&self) -> anyhow::Result<()> {
        let restart = ["--namespace=divvy-system", "rollout", "restart", "deployment", WEBHOOK];
        self.kubectl.run(&restart).await.map(drop)
    }

    /// Begins to go back to the programs before: with manifests, under those that are applied now.
    pub async fn roll_back(&self) -> anyhow::Result<()> {
        if let Installation::Chart(_, helm) = &self.installation {
            return self.helm(helm, "rollback divvy").await.map(drop);
        }
        for workload in WORKLOADS {
            self.kubectl.run(&["--namespace=divvy-system", "rollout", "undo", workload]).await?;
        }
        Ok(())
    }

    /// Has the scheduler as it comes, and the webhook know it.
    pub async fn switch_off_extender(&mut self) -> anyhow::Result<()> {
        self.take_out_extender().await?;
        self.configure_pods(&json!({"scheduling": "node"})).await
    }

    async fn take_out_extender(&mut self) -> anyhow::Result<()> {
        self.control_plane.scheduler.kill().await?;
        let without = self.files.at(SCHEDULER_CONFIG);
        self.control_plane.scheduler.set_args(&[("--config=", &without.display().to_string())]);
        self.control_plane.scheduler.start()
    }

    /// Takes the extender out of the scheduler's configuration, and Divvy off the cluster, by the words of the READMEs.
    pub async fn uninstall(&mut self) -> anyhow::Result<()> {
        self.take_out_extender().await?;
        if let Installation::Chart(_, helm) = &self.installation {
            println!("  {}", self.helm(helm, "uninstall divvy").await?.trim());
            return Ok(());
        }
        let commands = commands_of("manifests/README.md", "Uninstall")?;
        println!("  {commands}");
        self.shell(&commands, Path::new(SOURCE)).await.map(drop)
    }

    /// `kubectl apply`, with the extender switched on, as the scheduler is configured for it; a tag takes the place of that of the
    /// images.
    pub async fn apply_manifests(&self, source: &Path, tag: Option<&str>) -> anyhow::Result<()> {
        let copy = self.files.directory("manifests")?;
        let mut has_extender = false;
        for entry in std::fs::read_dir(source.join("deploy/manifests"))? {
            let entry = entry?;
            let mut text = std::fs::read_to_string(entry.path())?;
            let switched = with_extender(&text);
            has_extender |= switched != text;
            text = switched;
            if let Some(tag) = tag {
                text = with_tag(&text, tag);
            }
            std::fs::write(copy.join(entry.file_name()), text)?;
        }
        ensure!(has_extender, "{}: no manifest has the key scheduling or extender", source.display());
        self.kubectl.run(&["apply", "-f", &copy.display().to_string()]).await.map(drop)
    }

    /// Runs Helm; `DEPLOY` stands for the directory of that name.
    pub async fn helm(&self, helm: &Path, line: &str) -> anyhow::Result<String> {
        let mut command = Command::new(helm);
        command.args(line.split_whitespace().map(|word| word.replace("DEPLOY", DEPLOY)));
        command.args(["--namespace", "divvy-system", "--kubeconfig"]).arg(self.kubectl.kubeconfig());
        let output = command.env("HOME", self.files.at(".")).stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(3 * PATIENCE, output).await.context("helm hangs")??;
        let [said, problem] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        ensure!(output.status.success(), "helm {line}: {problem}{said}");
        Ok(said)
    }

    /// Waits until all pods are of what is installed now, and ready.
    pub async fn rolled_out(&mut self) -> anyhow::Result<()> {
        for workload in WORKLOADS {
            self.until(&format!("{workload} rolled out"), 2 * PATIENCE, async |this| {
                let line = ["--namespace=divvy-system", "rollout", "status", workload, "--timeout=2s"];
                this.kubectl.run(&line).await.map(Some)
            })
            .await?;
        }
        self.daemon_ready().await?;
        let pods = self.pods_of(WEBHOOK).await?;
        for (replica, pod) in self.webhook.replicas.iter_mut().zip(&pods) {
            replica.pages = address(pod, WEBHOOK_PAGES)?;
        }
        self.webhook_called().await
    }

    /// Ends the node's processes, removes what lies in memory, and starts the node again.
    pub async fn reboot(&mut self) -> anyhow::Result<()> {
        for program in [&mut self.kubelet, &mut self.containerd.program] {
            program.kill().await?;
        }
        containers::kill_all()?;
        let state = self.files.at("containerd-state");
        for directory in [Path::new("/run/divvy"), Path::new("/run/cdi"), Path::new("/run/containerd"), &state] {
            namespace::empty(directory)?;
        }
        self.containerd.program.start()?;
        self.until("containerd", PATIENCE, async |this| Ok(this.containerd.answers().await.then_some(()))).await?;
        self.kubelet.start()?;
        self.node_ready().await
    }

    /// Where the daemon's pages are.
    pub(super) async fn pod_of_daemon(&self) -> anyhow::Result<SocketAddr> {
        address(self.pods_of(DAEMON).await?.first().context("no pod of divvy-node is ready")?, DAEMON_PAGES)
    }

    /// Pods of a program that are ready and won't end.
    pub async fn pods_of(&self, program: &str) -> anyhow::Result<Vec<Value>> {
        let mut list = self.api.get(&format!("{PODS}{program}")).await?;
        let Value::Array(mut pods) = list["items"].take() else { bail!("not a list of pods") };
        pods.retain(|pod| view::is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pods)
    }

    /// The words of `deploy/scheduler/README.md`, run in a directory; kubeadm's paths.
    async fn configure_scheduler_by_the_readme(&mut self) -> anyhow::Result<()> {
        let commands = commands_of("scheduler/README.md", "The cluster's own scheduler")?;
        let place = Path::new("/etc/kubernetes/divvy");
        std::fs::create_dir_all(place)?;
        // The page's reader is in the root of the source, and then copies the files.
        self.shell(&format!("ln -sfn {DEPLOY} deploy\n{commands}rm deploy\n"), place).await?;
        std::fs::copy(self.files.at("scheduler.kubeconfig"), "/etc/kubernetes/scheduler.conf")?;
        self.control_plane.scheduler.kill().await?;
        self.control_plane.scheduler.set_args(&[("--config=", &place.join("scheduler.yaml").display().to_string())]);
        // With this configuration it elects a leader, and ends when it can't hold its Lease.
        self.control_plane.scheduler.restart_by_itself();
        self.control_plane.scheduler.start()
    }

    /// Runs commands as an administrator does, and returns what they print.
    pub async fn shell(&self, commands: &str, place: &Path) -> anyhow::Result<String> {
        let mut shell = Command::new("bash");
        shell.args(["-e", "-o", "pipefail", "-c", commands]).current_dir(place).stdin(Stdio::null()).kill_on_drop(true);
        let plugin = Binaries::get(true).await?.plugin;
        let helm = if let Installation::Chart(_, helm) = &self.installation { Some(helm) } else { None };
        let places = [Some(&plugin), helm].into_iter().flatten().filter_map(|program| program.parent());
        let path = places.fold(self.programs.path(), |path, place| format!("{path}:{}", place.display()));
        shell.env("PATH", path).env("KUBECONFIG", self.kubectl.kubeconfig());
        let output = shell.env("HOME", self.files.at(".")).output();
        let output = tokio::time::timeout(3 * PATIENCE, output).await.context("a command hangs")??;
        let [said, problem] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        ensure!(output.status.success(), "{commands}: {problem}{said}");
        Ok(said)
    }
}

/// The first block of commands in a section of a page of `deploy/`.
fn commands_of(page: &str, section: &str) -> anyhow::Result<String> {
    let blocks = pages::commands(&Path::new(DEPLOY).join(page), section)?;
    blocks.into_iter().next().with_context(|| format!("{page}: no commands in {section}"))
}

/// Kills the daemon's process; the kubelet starts its container again.
pub(super) fn kill_daemon() -> anyhow::Result<()> {
    // None, where the kubelet waits before it starts it again.
    containers::processes_of(DAEMON).into_iter().try_for_each(containers::kill_process)
}

fn address(pod: &Value, port: u16) -> anyhow::Result<SocketAddr> {
    let address: IpAddr = pod["status"]["podIP"].as_str().context("the pod has no address")?.parse()?;
    Ok((address, port).into())
}

/// The text of a manifest with the extender switched on, where it has the key, commented out with its default: `scheduling`, or
/// that of versions before it.
fn with_extender(text: &str) -> String {
    let on = text.replace("    #scheduling: gates\n", "    scheduling: extender\n");
    on.replace("    #extender: \"off\"\n", "    extender: \"on\"\n")
}

/// The text of a manifest with another tag of its images.
fn with_tag(text: &str, tag: &str) -> String {
    let line = |line: &str| match line.rsplit_once(':') {
        Some((image, _)) if image.trim_start().starts_with("image: divvy-") => format!("{image}:{tag}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

//! `kubectl divvy` on an installation as users have it.

use anyhow::ensure;
use clap::{Args as _, Command, FromArgMatches as _};
use divvy_e2e::cluster::Cluster;
use divvy_e2e::pods;
use divvy_kubectl::admin::{doctor, simulate};

const PODS: usize = 20;

/// Nothing is wrong, and a simulation of the live cluster says what its GPUs are free for.
pub(crate) async fn examines_the_installation(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.create((0..PODS).map(pods::mixed)).await?;
    cluster.all_running(PODS).await?;
    let kubeconfig = cluster.kubectl.kubeconfig().display().to_string();
    let line = ["doctor", "--kubeconfig", &kubeconfig];
    let matches = doctor::DoctorArgs::augment_args(Command::new("doctor")).try_get_matches_from(line)?;
    let told = doctor::run(doctor::DoctorArgs::from_arg_matches(&matches)?).await?;
    print(&told.answer);
    ensure!(!told.answer.contains("FAILED") && !told.answer.contains("leftovers"), "{}", told.answer);
    let line = ["simulate", "--cluster", "--runs", "2", "--kubeconfig", &kubeconfig];
    let matches = simulate::SimulateArgs::augment_args(Command::new("simulate")).try_get_matches_from(line)?;
    let told = simulate::run(simulate::SimulateArgs::from_arg_matches(&matches)?).await?;
    print(&told.answer);
    for part in ["FREE GPUS", "GPUS LEFT"] {
        ensure!(told.answer.to_uppercase().contains(part), "no {part}: {}", told.answer);
    }
    cluster.clear().await
}

fn print(text: &str) {
    text.lines().for_each(|line| println!("  {line}"));
}

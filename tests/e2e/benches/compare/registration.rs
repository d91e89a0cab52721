//! How soon a device plugin registers again after the kubelet's socket has returned.

use std::time::SystemTime;

use anyhow::Context as _;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::daemon::PLUGIN_DIRECTORY;
use divvy_e2e::figures::Spread;

use crate::figures::load;
use crate::node::first_runs;
use crate::parts;
use crate::plugins::Plugin;

const PLUGINS: [Plugin; 4] = [Plugin::Nvidia, Plugin::Hami, Plugin::Gpushare, Plugin::Divvy];
/// Restarts of the kubelet in a round.
const RESTARTS: usize = 4;
const SECONDS_OF_DAY: f64 = 86_400.0;
/// What the kubelet logs of a registration.
const REGISTRATION: &str = "Got registration request from device plugin";

/// Milliseconds from the birth of the kubelet's socket to the registration.
pub(crate) async fn after_restarts(cluster: &mut Cluster) -> anyhow::Result<()> {
    let plugins = Plugin::given(&PLUGINS);
    cluster.end_pods().await?;
    cluster.kill_daemon().await?;
    let mut all = vec![Vec::new(); plugins.len()];
    for round in 0..parts::rounds() {
        for (plugin, all) in plugins.iter().zip(&mut all) {
            let mut started = plugin.start(cluster).await?;
            first_runs(cluster, *plugin).await?;
            for _ in 0..RESTARTS {
                let time = restart(cluster, plugin.offers().0)
                    .await
                    .with_context(|| format!("round {round}, {}", plugin.name()))?;
                println!("  round {round}, {}: {time:.1} ms, load {}", plugin.name(), load());
                all.push(time);
            }
            if let Some(program) = started.program(cluster) {
                program.check()?;
            }
            started.stop(cluster).await?;
        }
    }
    for (plugin, all) in plugins.iter().zip(all) {
        if let Some(spread) = Spread::of(all) {
            println!("registered again | {} | {spread} ms", plugin.name());
        }
    }
    Ok(())
}

async fn restart(cluster: &mut Cluster, resource: &str) -> anyhow::Result<f64> {
    cluster.kubelet.kill().await?;
    let log = cluster.files.logs().join("kubelet.log");
    let before = registrations(&std::fs::read_to_string(&log)?, resource).count();
    cluster.kubelet.start()?;
    let at = cluster
        .until("registration", PATIENCE, async |_| {
            Ok(registrations(&std::fs::read_to_string(&log)?, resource).nth(before))
        })
        .await?;
    let socket = std::fs::metadata(format!("{PLUGIN_DIRECTORY}/kubelet.sock")).context("the kubelet's socket")?;
    let born = socket.modified()?.duration_since(SystemTime::UNIX_EPOCH)?;
    // The log has the time of the day alone.
    let of_day = born.as_secs_f64() % SECONDS_OF_DAY;
    cluster.node_ready().await?;
    Ok((at - of_day) * 1e3)
}

/// When a plugin of that resource registered, in seconds of the day.
fn registrations<'a>(log: &'a str, resource: &str) -> impl Iterator<Item = f64> + use<'a> {
    let resource = format!("\"{resource}\"");
    let lines = log.lines().filter(move |line| line.contains(REGISTRATION) && line.contains(&resource));
    lines.filter_map(|line| {
        let mut clock = line.split_whitespace().nth(1)?.split(':').map(str::parse::<f64>);
        let [hours, minutes, seconds] = [clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?];
        Some((hours * 60.0 + minutes) * 60.0 + seconds)
    })
}

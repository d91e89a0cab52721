//! `KUBE_BIN_DIR=… cargo test -p divvy-e2e [-- WORDS]`, as root.

mod absence;
mod account;
mod aggregated;
mod amounts;
mod autoscaling;
mod bursts;
mod cards;
mod churn;
mod copies;
mod dashboard;
mod delivery;
mod dialects;
mod enforcement;
mod figures;
mod first_hour;
mod forced;
mod gangs;
mod gates;
mod guests;
mod hidden;
mod hostile;
mod installed;
mod instances;
mod jobs;
mod kueue;
mod losses;
mod mps;
mod namesakes;
mod new_nodes;
mod oversubscription;
mod plugin;
mod powers;
mod preemption;
mod printed;
mod quotas;
mod refusals;
mod rejections;
mod rollouts;
mod simulated;
mod soft_taints;
mod throughput;
mod top;
mod topology;
mod units;
mod versions;
mod volcano;
mod webhook;

use std::process::ExitCode;

use divvy_e2e::cluster::Cluster;
use divvy_e2e::runner::{self, Installed, Run, Scenario};

use crate::bursts::Victims;

#[expect(clippy::too_many_lines, reason = "a table of all scenarios")]
fn main() -> ExitCode {
    runner::main(&[
        anyhow("a hundred pods bound at once all run", |c| Box::pin(bursts::a_hundred_pods(c))),
        anyhow("the kubelet is killed while a hundred pods start", |c| {
            Box::pin(bursts::with_kills(c, Victims::Kubelet))
        }),
        anyhow("kubelet and daemon are killed while a hundred pods start", |c| {
            Box::pin(bursts::with_kills(c, Victims::Both))
        }),
        anyhow("the kubelet's checkpoint is lost", |c| Box::pin(losses::checkpoint(c))),
        anyhow("the API server is away", |c| Box::pin(losses::api_server(c))),
        scenario("the pod list is refused", |c| Box::pin(losses::pod_list(c))),
        anyhow("pods and jobs come and go", |c| Box::pin(churn::pods_and_jobs(c))),
        anyhow("pods are deleted by force", |c| Box::pin(forced::replaced_at_once(c))),
        scenario("cards are given in every way", |c| Box::pin(delivery::every_strategy(c))),
        scenario("two pods on one card are held to their shares", |c| Box::pin(enforcement::two_on_one_card(c))),
        scenario("allocators are preloaded beside libdivvy", |c| Box::pin(enforcement::beside_allocators(c))),
        scenario("two pods have more memory than their card", |c| Box::pin(oversubscription::two_on_one_card(c))),
        scenario("a tenant writes whatever it can", |c| Box::pin(hostile::writes_anything(c))),
        anyhow("a card is lost and returns", |c| Box::pin(cards::lost_and_returned(c))),
        scenario("amounts are counted twice", |c| Box::pin(amounts::counted_twice(c))),
        anyhow("amounts are taken away", |c| Box::pin(amounts::taken_away(c))),
        anyhow("a pod takes over a name", |c| Box::pin(namesakes::annotated_anew(c))),
        scenario("instances of MIG cards", |c| Box::pin(instances::given_by_profile(c))),
        scenario("units as devices", |c| Box::pin(units::counted_by_the_kubelet(c))),
        scenario("replicas that don't fit wait where sums are counted", |c| Box::pin(refusals::are_few(c))),
        scenario("replicas that don't fit wait with gates", |c| Box::pin(refusals::are_none_with_gates(c))),
        scenario("ten shapes at once with gates", |c| Box::pin(gates::ten_shapes_at_once(c))),
        scenario("the leader is frozen with gates", |c| Box::pin(gates::leader_is_frozen(c))),
        scenario("pods that the scheduler places nowhere keep no GPU", |c| {
            Box::pin(gates::turned_down_by_the_scheduler(c))
        }),
        scenario("gates go when the mode changes", |c| Box::pin(gates::mode_changes(c))),
        scenario("the kubelet rejects pods before it asks", |c| Box::pin(rejections::leave_others_alone(c))),
        scenario("the kubelet rejects pods for their NUMA node", |c| {
            Box::pin(rejections::leave_others_alone_on_one_numa_node(c))
        }),
        scenario("slots with topology", |c| Box::pin(topology::on_one_numa_node(c))),
        scenario("an account that reaches too far is refused", |c| Box::pin(powers::refused(c))),
        scenario("the webhook's account reaches no further than its plans", |c| Box::pin(powers::of_the_webhook(c))),
        scenario("a daemon that is gone is seen", |c| Box::pin(absence::is_seen(c))),
        scenario("usage comes through a forwarded port", |c| Box::pin(top::through_a_forwarded_port(c))),
        anyhow("the dashboard follows pods in a browser", |c| Box::pin(dashboard::is_live(c))),
        anyhow("the aggregated API is served", |c| Box::pin(aggregated::served(c))),
        scenario("an autoscaler follows the use of GPUs", |c| Box::pin(autoscaling::follows_the_use_of_gpus(c))),
        scenario("the API server asks the webhook", |c| Box::pin(webhook::reviews(c))),
        anyhow("GPUs are hidden from containers that request none", |c| {
            Box::pin(hidden::from_those_that_request_none(c))
        }),
        anyhow("pods that kubectl makes from running ones", |c| Box::pin(copies::are_new_pods(c))),
        anyhow("a hundred pods through webhook and extender", |c| Box::pin(webhook::a_hundred_pods(c))),
        anyhow("pods of other systems run as they are", |c| Box::pin(dialects::run_as_they_are(c))),
        scenario("the webhook's leader is killed while pods are placed", |c| Box::pin(webhook::leader_killed(c))),
        anyhow("released cards wake a waiting pod", |c| Box::pin(webhook::woken(c))),
        scenario("templates of Jobs are completed as their pods are", |c| Box::pin(jobs::as_their_pods_are(c))),
        scenario("Kueue counts a Job as it counts a pod", |c| Box::pin(kueue::counts_jobs_and_pods_alike(c))),
        scenario("a quota by model is kept to by every leader", |c| Box::pin(quotas::kept_to_by_every_leader(c))),
        scenario("soft taints come and go beside another", |c| Box::pin(soft_taints::beside_others(c))),
        scenario("groups of pods start together or wait", |c| Box::pin(gangs::of_kube_scheduler(c))),
        scenario("groups of pods start together by the leader alone", |c| {
            Box::pin(gangs::of_an_untouched_scheduler(c))
        }),
        scenario("the coscheduling plugin starts groups of pods together", |c| {
            Box::pin(gangs::of_the_coscheduling_plugin(c))
        }),
        scenario("Volcano starts gangs, and the node refuses what no GPU holds", |c| {
            Box::pin(volcano::starts_gangs_as_the_node_allows(c))
        }),
        scenario("cluster-autoscaler adds one node for a pod", |c| {
            Box::pin(new_nodes::cluster_autoscaler::from_zero(c))
        }),
        scenario("Karpenter adds one node for a pod", |c| Box::pin(new_nodes::karpenter::by_overlay(c))),
        scenario("pods of a high priority evict others", |c| Box::pin(preemption::by_priority(c))),
        scenario("the leader evicts for pods of a high priority", |c| Box::pin(preemption::by_the_leader(c))),
        Scenario {
            installed: Installed::AsPods,
            ..scenario("Divvy is upgraded and rolled back while pods come", |c| {
                Box::pin(installed::upgraded_and_rolled_back(c))
            })
        },
        Scenario {
            installed: Installed::AsPods,
            ..scenario("the daemon's account is made anew", |c| Box::pin(account::made_anew(c)))
        },
        Scenario {
            installed: Installed::AsPods,
            ..scenario("the daemon is replaced while pods come", |c| Box::pin(rollouts::while_pods_come(c)))
        },
        Scenario {
            installed: Installed::AsPods,
            ..scenario("Divvy is uninstalled and installed again under pods", |c| {
                Box::pin(installed::uninstalled_and_installed_again(c))
            })
        },
        Scenario {
            installed: Installed::AsPods,
            ..scenario("docs/install.md is followed", |c| Box::pin(first_hour::as_the_page_says(c)))
        },
        Scenario {
            installed: Installed::AsPods,
            ..scenario("kubectl divvy examines an installation", |c| Box::pin(plugin::examines_the_installation(c)))
        },
        Scenario {
            installed: Installed::AsPods,
            ..scenario("MPS serves the containers of a node", |c| Box::pin(mps::serves_containers(c)))
        },
        Scenario {
            installed: Installed::AsPods,
            ..scenario("the node is drained and rebooted", |c| Box::pin(installed::drained_and_rebooted(c)))
        },
        Scenario {
            only_when_named: true,
            ..scenario("printed pods run as they are", |c| Box::pin(printed::run_as_they_are(c)))
        },
        // These leave a cluster without a node.
        Scenario {
            only_when_named: true,
            ..scenario("kube-scheduler places pods as the simulator does", |c| Box::pin(simulated::as_simulated(c)))
        },
        Scenario { only_when_named: true, ..scenario("throughput", |c| Box::pin(throughput::throughput(c))) },
        Scenario { only_when_named: true, ..scenario("figures", |c| Box::pin(figures::all(c))) },
    ])
}

fn scenario(name: &'static str, run: for<'a> fn(&'a mut Cluster) -> Run<'a>) -> Scenario {
    Scenario { name, only_when_named: false, installed: Installed::AsProcesses, run }
}

/// One that asks nothing of how Divvy runs.
fn anyhow(name: &'static str, run: for<'a> fn(&'a mut Cluster) -> Run<'a>) -> Scenario {
    Scenario { installed: Installed::Anyhow, ..scenario(name, run) }
}

//! How the cluster reads pods: flags by the names of the daemon's keys.

use anyhow::{anyhow, bail};
use clap::Args;
use divvy_api::annotation::PolicyName;
use divvy_api::names::ResourceName;
use divvy_api::request::{Defaults, request_resources};
use divvy_api::{Cores, Memory, MemoryAmount, ResourceNames};
use divvy_index::demand::Reading;
use divvy_placement::Policy;

/// What of the daemons' and the webhook's configuration decides where pods fit.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Configuration of the cluster's divvy-node and divvy-webhook")]
pub(super) struct ReadingArgs {
    /// Extended resource that counts cards
    #[arg(long, value_name = "RESOURCE", default_value_t = ResourceNames::default().count)]
    resource_count: ResourceName,
    /// Extended resource for memory of each card
    #[arg(long, value_name = "RESOURCE", default_value_t = ResourceNames::default().memory)]
    resource_memory: ResourceName,
    /// Extended resource for memory of each card, in percent
    #[arg(long, value_name = "RESOURCE", default_value_t = ResourceNames::default().memory_percentage)]
    resource_memory_percentage: ResourceName,
    /// Extended resource for compute of each card, in percent
    #[arg(long, value_name = "RESOURCE", default_value_t = ResourceNames::default().cores)]
    resource_cores: ResourceName,
    /// Where memory is advertised as devices: their unit in MiB, which is part of the resource's name
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=16384))]
    memory_unit: Option<u64>,
    /// Most containers that can share a card
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    slots_per_card: u32,
    /// Memory of a request that names cores alone: same-as-cores, a percentage or an amount such as 4Gi
    #[arg(long, value_name = "AMOUNT", default_value = SAME_AS_CORES)]
    default_memory: String,
    /// Cores of a request that names memory alone
    #[arg(long, value_name = "CORES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=99))]
    default_cores: u32,
    /// Which cards a pod gets that doesn't say: binpack, spread, random, least-fragmentation or topology
    #[arg(long, value_name = "POLICY", default_value = "least-fragmentation", value_parser = policy)]
    card_policy: PolicyName,
    /// Which node a pod gets that doesn't say, by the same policies [default: as --card-policy]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    node_policy: Option<PolicyName>,
    /// Whether cards that are busier than promised come after others
    #[arg(long)]
    load_aware: bool,
}

const SAME_AS_CORES: &str = "same-as-cores";

fn policy(text: &str) -> Result<PolicyName, String> {
    let expected = |_unknown| "expected binpack, spread, random, least-fragmentation or topology".to_owned();
    serde_json::from_value(text.into()).map_err(expected)
}

// === impl ReadingArgs ===

impl ReadingArgs {
    pub(super) fn reading(self) -> anyhow::Result<Reading> {
        let names = ResourceNames {
            count: self.resource_count,
            memory: self.resource_memory,
            memory_percentage: self.resource_memory_percentage,
            cores: self.resource_cores,
            ..ResourceNames::default()
        };
        let of_requests = request_resources(&names);
        if let Some(twice) = (1..of_requests.len()).find(|at| of_requests[..*at].contains(&of_requests[*at])) {
            bail!(
                "error: resource {} stands for two amounts: the four --resource flags must differ",
                of_requests[twice]
            );
        }
        let unit = self.memory_unit.map(Memory::mib);
        let refused = |error| anyhow!("error: --resource-memory with --memory-unit in its name: {error}");
        let names = match unit {
            Some(unit) => names.in_units(unit).map_err(refused)?,
            None => names,
        };
        let memory = Some(self.default_memory).filter(|text| text != SAME_AS_CORES);
        let memory = memory.map(|text| text.parse::<MemoryAmount>()).transpose();
        let memory = memory.map_err(|error| anyhow!("error: --default-memory: {error}, or {SAME_AS_CORES}"))?;
        Ok(Reading {
            names,
            defaults: Defaults { memory, cores: Cores::new(self.default_cores) },
            slots_per_card: self.slots_per_card,
            card_policy: Policy { name: self.card_policy, ..Policy::default() },
            node_policy: self.node_policy.unwrap_or(self.card_policy),
            load_aware: self.load_aware,
        })
    }
}

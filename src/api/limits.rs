//! Requests, read from the limits of a pod's containers. Webhook and daemon use the same functions.

use crate::annotation::RequestAnnotation;
use crate::card_id::MigProfile;
use crate::names::{ResourceName, ResourceNames};
use crate::pod::ContainerSpec;
use crate::quantity::{Cores, Memory, QuantityError, parse_count, parse_memory, parse_memory_total};
use crate::request::{ContainerRequest, Defaults, GpuRequest, MOST_CARDS, MOST_MEMORY, MemoryAmount, Totals};

/// A request that is refused. Every variant names the field, the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not a quantity, or not a whole number.
    #[error("{field}: {source}")]
    Quantity {
        /// Path of the limit.
        field: String,
        /// What is wrong with the text.
        source: QuantityError,
    },
    /// A quantity outside its range.
    #[error("{field}: {value} is out of range: allowed are {allowed}")]
    Range {
        /// Path of the limit.
        field: String,
        /// The text as written.
        value: String,
        /// The range in words.
        allowed: &'static str,
    },
    /// More than are compared with the cards of every node.
    #[error("spec: {0} containers request GPUs: allowed are {MOST_REQUESTS} in a pod")]
    TooMany(usize),
    /// Both memory forms at once.
    #[error("{field}: excludes {other} in the same container: set one of them")]
    BothMemoryForms {
        /// Path of the percentage.
        field: String,
        /// Name of the other resource.
        other: ResourceName,
    },
    /// Cards of two kinds at once.
    #[error("{field}: excludes {other} in the same container: set one of them, or use a container for each")]
    TwoKinds {
        /// Path of the second limit.
        field: String,
        /// Name of the first.
        other: ResourceName,
    },
    /// `divvy.dev/request` doesn't describe the limits it came with.
    #[error(
        "{field}: {value} disagrees with annotation divvy.dev/request, which requests {requested}: remove the annotation"
    )]
    Disagrees {
        /// Path of the limit.
        field: String,
        /// The text as written, or "nothing".
        value: String,
        /// What the annotation makes of it.
        requested: String,
    },
}

/// Most containers of a pod that request cards. Each is compared with the cards of all nodes, while the API server or the
/// scheduler waits; a node with eight GPUs has 256 slots.
pub const MOST_REQUESTS: usize = 64;

/// Requests of all containers of a pod, in admission order.
///
/// With `request` (the webhook's annotation, already decoded) limits are totals over a container's cards and must
/// agree with it; without, limits are per card.
pub fn pod_requests(
    names: &ResourceNames,
    defaults: Defaults,
    request: Option<&RequestAnnotation>,
    containers: &[ContainerSpec],
) -> Result<Vec<ContainerRequest>, RequestError> {
    let request_of = |container: &ContainerSpec| match request {
        None => normalise(names, defaults, container),
        Some(request) => agreed(names, request, container),
    };
    let requests = containers.iter().map(|container| {
        let name = container.name.clone();
        let kind = container.kind;
        let request = request_of(container)?;
        let profile = profile(names, container);
        let counted = counted(names, container);
        Ok(ContainerRequest { name, kind, profile, request, counted })
    });
    let requests: Vec<ContainerRequest> = requests.collect::<Result<_, RequestError>>()?;
    check_number(&requests)?;
    Ok(requests)
}

/// Refuses a pod of which more than [`MOST_REQUESTS`] containers request cards.
pub fn check_number(requests: &[ContainerRequest]) -> Result<(), RequestError> {
    let number = requests.iter().filter(|container| container.request.is_some()).count();
    if number > MOST_REQUESTS { Err(RequestError::TooMany(number)) } else { Ok(()) }
}

/// The MIG profile whose instances a container asks for; `None`: cards of the plain count.
pub fn profile(names: &ResourceNames, container: &ContainerSpec) -> Option<MigProfile> {
    Limits { container, total: true }.cards(names).ok().flatten()?.profile
}

/// Whether a limit of the container counts cards: then the kubelet asks the daemon for them.
pub fn asks_for_cards(names: &ResourceNames, container: &ContainerSpec) -> bool {
    let mut ours = container.limits.iter().filter(|(name, _)| names.counts_cards(name));
    ours.any(|(_, text)| parse_count(text).is_ok_and(|count| count > 0))
}

/// What scheduler and kubelet count for a container, whether or not its limits are a request; what isn't a quantity counts
/// nothing.
pub fn counted(names: &ResourceNames, container: &ContainerSpec) -> Totals {
    let limits = Limits { container, total: true };
    let count = |name| limits.count(name).ok().flatten().unwrap_or(0);
    Totals {
        count: limits.cards(names).ok().flatten().map_or(0, |cards| cards.count),
        memory: limits.memory(names).ok().flatten().unwrap_or(0),
        percent: count(&names.memory_percentage),
        cores: count(&names.cores),
    }
}

/// The request that a container's limits make, read per card; `None` for a container without one.
///
/// Limits of zero alone are no request; a zero beside other amounts is a contradiction.
pub fn normalise(
    names: &ResourceNames,
    defaults: Defaults,
    container: &ContainerSpec,
) -> Result<Option<GpuRequest>, RequestError> {
    let limits = Limits { container, total: false };
    let kind = limits.cards(names)?;
    let count = kind.as_ref().map(|cards| cards.count);
    let memory = limits.memory(names)?;
    let percent = limits.count(&names.memory_percentage)?;
    let cores = limits.count(&names.cores)?;
    let amounts = [&count, &memory, &percent, &cores];
    if amounts.iter().all(|amount| amount.is_none_or(|value| value == 0)) {
        return Ok(None);
    }
    limits.check(kind.as_ref().map_or(&names.count, |cards| &cards.name), count, MOST_CARDS, "1 to 1024 GPUs")?;
    let mib = "1 MiB and more, in MiB or with a binary suffix such as 8Gi";
    let allowed = if names.counts_memory_in_devices() { "1 and more, in whole units" } else { mib };
    limits.check(&names.memory, memory, MOST_MEMORY, allowed)?;
    limits.check(&names.memory_percentage, percent, 100, "1 to 100 percent of each GPU")?;
    limits.check(&names.cores, cores, 100, "1 to 100 percent of each GPU")?;
    if memory.is_some() && percent.is_some() {
        let field = limits.field(&names.memory_percentage);
        return Err(RequestError::BothMemoryForms { field, other: names.memory.clone() });
    }
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let memory = memory.map(|mib| MemoryAmount::Absolute(Memory::mib(mib)));
    let memory = memory.or(percent.map(|percent| MemoryAmount::Percent(narrow(percent))));
    let cores = cores.map(|units| Cores::new(narrow(units)));
    let cards = count.map_or(1, narrow);
    Ok(Some(match (memory, cores) {
        (None, None) => GpuRequest::whole(cards),
        (Some(memory), cores) => GpuRequest { cards, memory, cores: cores.unwrap_or(defaults.cores) },
        (None, Some(cores)) => {
            GpuRequest { cards, memory: defaults.memory.unwrap_or(MemoryAmount::Percent(cores.units())), cores }
        }
    }))
}

/// The request that the annotation gives a container, if the container's limits are its totals.
fn agreed(
    names: &ResourceNames,
    request: &RequestAnnotation,
    container: &ContainerSpec,
) -> Result<Option<GpuRequest>, RequestError> {
    let request = request.containers.get(&container.name).copied();
    let limits = Limits { container, total: true };
    let cards = limits.cards(names)?;
    let expected = request.map(|request| request.totals()).unwrap_or_default();
    let found = Totals {
        count: cards.as_ref().map_or(0, |cards| cards.count),
        memory: limits.memory(names)?.unwrap_or(0),
        percent: limits.count(&names.memory_percentage)?.unwrap_or(0),
        cores: limits.count(&names.cores)?.unwrap_or(0),
    };
    let whole = request.is_some_and(|request| request == GpuRequest::whole(request.cards));
    let pairs = [
        (cards.as_ref().map_or(&names.count, |cards| &cards.name), found.count, expected.count, false),
        (&names.memory, found.memory, expected.memory, false),
        // Whole cards get no extra resource, but may have come with their amounts spelled out.
        (&names.memory_percentage, found.percent, expected.percent, whole),
        (&names.cores, found.cores, expected.cores, whole),
    ];
    for (name, found, expected, optional) in pairs {
        if found != expected && !(optional && found == 0) {
            let value = limits.text(name).unwrap_or("nothing").to_owned();
            return Err(RequestError::Disagrees { field: limits.field(name), value, requested: expected.to_string() });
        }
    }
    Ok(request)
}

/// The limits of one container, with the paths of its fields.
struct Limits<'a> {
    container: &'a ContainerSpec,
    /// Amounts are sums that the API server has rewritten, not what a user wrote.
    total: bool,
}

/// The limit that counts a container's cards.
struct CardLimit {
    name: ResourceName,
    profile: Option<MigProfile>,
    count: u64,
}

// === impl Limits ===

impl<'a> Limits<'a> {
    fn field(&self, name: &ResourceName) -> String {
        let ContainerSpec { kind, index, .. } = self.container;
        format!("{}[{index}].resources.limits[{name}]", kind.list_field())
    }

    fn text(&self, name: &ResourceName) -> Option<&'a str> {
        self.container.limits.get(name.as_str()).map(String::as_str)
    }

    fn read<T>(
        &self,
        name: &ResourceName,
        parse: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<Option<T>, RequestError> {
        let quantity = |source| RequestError::Quantity { field: self.field(name), source };
        self.text(name).map(parse).transpose().map_err(quantity)
    }

    fn count(&self, name: &ResourceName) -> Result<Option<u64>, RequestError> {
        self.read(name, parse_count)
    }

    /// The plain count, or that of a MIG profile; only one of them may count any.
    fn cards(&self, names: &ResourceNames) -> Result<Option<CardLimit>, RequestError> {
        let profiles = self.container.limits.keys().filter_map(|name| names.profile(name));
        let mut found: Option<CardLimit> = None;
        for profile in [None].into_iter().chain(profiles.map(Some)) {
            let name = names.counting(profile.as_ref());
            let Some(count) = self.count(&name)? else { continue };
            match &found {
                Some(first) if first.count > 0 && count > 0 => {
                    return Err(RequestError::TwoKinds { field: self.field(&name), other: first.name.clone() });
                }
                Some(_) if count == 0 => {}
                _ => found = Some(CardLimit { name, profile, count }),
            }
        }
        Ok(found)
    }

    /// In MiB.
    fn memory(&self, names: &ResourceNames) -> Result<Option<u64>, RequestError> {
        if names.counts_memory_in_devices() {
            let units = self.count(&names.memory)?;
            return Ok(units.map(|units| units.saturating_mul(names.memory_unit.as_mib())));
        }
        let memory = self.read(&names.memory, if self.total { parse_memory_total } else { parse_memory })?;
        Ok(memory.map(Memory::as_mib))
    }

    fn check(
        &self,
        name: &ResourceName,
        value: Option<u64>,
        most: u64,
        allowed: &'static str,
    ) -> Result<(), RequestError> {
        match value {
            Some(value) if value == 0 || value > most => {
                let value = self.text(name).unwrap_or_default().to_owned();
                Err(RequestError::Range { field: self.field(name), value, allowed })
            }
            _ => Ok(()),
        }
    }
}

/// Names of all resources that [`normalise`] reads.
pub fn request_resources(names: &ResourceNames) -> [&ResourceName; 4] {
    [&names.count, &names.memory, &names.memory_percentage, &names.cores]
}

#[cfg(test)]
mod tests;

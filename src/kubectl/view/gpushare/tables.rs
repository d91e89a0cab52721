//! gpushare's two tables.

use super::columns::aligned;
use crate::text::plain;
use crate::view::inspect::NodeReport;

/// A node, in units of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) cards: Vec<Device>,
}

/// One of its GPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    pub(super) total: u64,
    pub(super) used: u64,
    /// Name, namespace and units of each pod.
    pub(super) pods: Vec<(String, String, u64)>,
}

// === impl Machine ===

impl Machine {
    /// A node's report, in units of so many MiB.
    pub(super) fn new(report: &NodeReport, address: Option<&str>, unit: u64) -> Self {
        let cards = report.cards.iter().map(|card| {
            let mut pods: Vec<(String, String, u64)> = Vec::new();
            for share in card.shares.iter().map(|share| &share.status) {
                let mib = share.share.memory.as_mib();
                match pods.iter_mut().find(|(name, namespace, _)| *name == share.pod && *namespace == share.namespace) {
                    Some((.., held)) => *held += mib,
                    None => pods.push((share.pod.clone(), share.namespace.clone(), mib)),
                }
            }
            for (.., held) in &mut pods {
                *held = held.div_ceil(unit);
            }
            Device { total: card.memory_mi.capacity / unit, used: card.memory_mi.held.div_ceil(unit), pods }
        });
        Self { name: report.name.clone(), address: address.unwrap_or("unknown").to_owned(), cards: cards.collect() }
    }

    /// A line for each pod of each GPU.
    fn rows(&self) -> String {
        let cards = self.cards.iter().enumerate();
        let pods = cards.flat_map(|(at, card)| card.pods.iter().map(move |pod| (at, pod)));
        pods.map(|(at, pod)| self.row(at, pod)).collect()
    }

    /// A line for a pod of one GPU, by its number.
    fn row(&self, at: usize, (name, namespace, units): &(String, String, u64)) -> String {
        let cell = |other| format!("{}\t", if other == at { *units } else { 0 });
        let cells: String = (0..self.cards.len()).map(cell).collect();
        format!("{}\t{}\t{cells}\n", plain(name), plain(namespace))
    }

    /// A line for all GPUs, as many as the node with the most has.
    fn summary(&self, widest: usize) -> String {
        let card = |at: usize| self.cards.get(at).map_or((0, 0), |card| (card.used, card.total));
        let cell = |(used, total)| format!("{used}/{total}\t");
        let cells: String = (0..widest).map(card).map(cell).collect();
        let name = plain(&self.name);
        let address = plain(&self.address);
        format!("{name}\t{address}\t{cells}{}/{}\n", self.used(), self.total())
    }

    /// A table of these rows, with a line of dashes.
    fn table(&self, rows: &str, dashes: &str) -> String {
        let name = plain(&self.name);
        let address = plain(&self.address);
        let head = |card| format!("GPU{card}(Allocated)\t");
        let heads: String = (0..self.cards.len()).map(head).collect();
        let used = self.used();
        let total = self.total();
        let percent = percent(used, total);
        format!(
            "\nNAME:\t{name}\nIPADDRESS:\t{address}\n\nNAME\tNAMESPACE\t{heads}\n{rows}\
             Allocated :\t{used} ({percent}%)\t\nTotal :\t{total} \t\n{dashes}\n"
        )
    }

    fn total(&self) -> u64 {
        self.cards.iter().map(|card| card.total).sum()
    }

    fn used(&self) -> u64 {
        self.cards.iter().map(|card| card.used).sum()
    }
}

/// A line for each node.
pub(super) fn summary(machines: &[Machine], unit: &str) -> String {
    let widest = machines.iter().map(|machine| machine.cards.len()).max().unwrap_or(0);
    let head = |card| format!("GPU{card}(Allocated/Total)\t");
    let heads: String = (0..widest).map(head).collect();
    let machines: Vec<&Machine> = machines.iter().filter(|machine| machine.total() > 0).collect();
    let rows: Vec<String> = machines.iter().map(|machine| machine.summary(widest)).collect();
    // As long as the first row before its cells are aligned, and 20.
    let dashes = "-".repeat(rows.first().map_or(0, |row| row.len() + 20));
    let (used, total) = sums(&machines);
    let text = format!(
        "NAME\tIPADDRESS\t{heads}GPU Memory({unit})\n{}{dashes}\nAllocated/Total GPU Memory In Cluster:\n{used}/{total} ({}%)\t\n",
        rows.concat(),
        percent(used, total)
    );
    aligned(&text)
}

/// A table for each node, with a line for each pod and GPU.
pub(super) fn details(machines: &[Machine]) -> String {
    let machines: Vec<&Machine> = machines.iter().filter(|machine| machine.total() > 0).collect();
    let rows: Vec<String> = machines.iter().map(|machine| machine.rows()).collect();
    // As long as the first node's rows before their cells are aligned, and 10.
    let dashes = "-".repeat(rows.first().map_or(0, |rows| rows.len() + 10));
    let tables: String = machines.iter().zip(&rows).map(|(machine, rows)| machine.table(rows, &dashes)).collect();
    let (used, total) = sums(&machines);
    let percent = percent(used, total);
    aligned(&format!("{tables}\n\nAllocated/Total GPU Memory In Cluster:\t{used}/{total} ({percent}%)\t\n"))
}

fn sums(machines: &[&Machine]) -> (u64, u64) {
    machines.iter().fold((0, 0), |(used, total), machine| (used + machine.used(), total + machine.total()))
}

/// Rounded down, as there.
fn percent(used: u64, total: u64) -> u64 {
    (used * 100).checked_div(total).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machines() -> Vec<Machine> {
        let pod = |name: &str, units| (name.to_owned(), "default".to_owned(), units);
        let device = |total, pods: Vec<(String, String, u64)>| Device {
            total,
            used: pods.iter().map(|(.., units)| units).sum(),
            pods,
        };
        let machine =
            |name: &str, address: &str, cards| Machine { name: name.to_owned(), address: address.to_owned(), cards };
        vec![
            machine(
                "cn-shanghai.i-uf61h64dz1tmlob9hmtb",
                "192.168.0.71",
                vec![device(15, vec![pod("binpack-1", 3), pod("binpack-2", 3)]), device(15, Vec::new())],
            ),
            machine("empty", "192.168.0.72", Vec::new()),
            machine("n2", "unknown", vec![device(15, vec![pod("a-much-longer-name", 12)])]),
        ]
    }

    /// As gpushare's own format strings and Go's tabwriter print these nodes: compared once, byte for byte.
    #[test]
    fn tables_are_gpushares_byte_for_byte() {
        let marked = |text: String| text.replace(' ', "·");
        insta::assert_snapshot!("summary", marked(summary(&machines(), "GiB")));
        insta::assert_snapshot!("details", marked(details(&machines())));
    }

    #[test]
    fn cluster_without_gpus_has_an_empty_table() {
        assert!(summary(&[], "GiB").ends_with("In Cluster:\n0/0 (0%)  \n"));
        assert!(details(&[]).ends_with("In Cluster:  0/0 (0%)  \n"));
    }
}

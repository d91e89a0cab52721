//! Who holds what, as bars: a letter a pod.

use std::collections::HashMap;

use divvy_api::Share;

use crate::console::short;
use divvy_testkit::outside::{CardView, NodeView, PodView};

/// Characters in a bar: two of them and their amounts fit into 100 columns.
const BAR: usize = 22;
/// Nothing's letter.
const FREE: char = '·';
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// ANSI background colours that black text can be read on.
const COLOURS: [u8; 6] = [42, 43, 44, 45, 46, 47];

/// A picture of a node.
pub fn of(node: &NodeView, colours: bool) -> String {
    let named = letters(node);
    let letters: HashMap<&str, char> = named.iter().copied().collect();
    let model = node.cards.first().map_or("no card", |card| &card.model);
    let mut text = format!("{}: {} × {model}\n", node.name, node.cards.len());
    for card in &node.cards {
        let holders: Vec<(char, Share)> = node.holders(card).map(|(pod, share)| (letters[&*pod.name], share)).collect();
        let memory = holders.iter().map(|(letter, share)| (*letter, share.memory.as_mib()));
        let cores = holders.iter().map(|(letter, share)| (*letter, u64::from(share.cores.units())));
        let (memory, cores) = (bar(memory, card.memory.as_mib(), colours), bar(cores, 100, colours));
        let held = node.held(card);
        let amounts = format!("{} of {}", held.memory, card.memory);
        let state = state(card, held.exclusive);
        let line = format!(
            "  {:<9}  {memory}  {amounts:<15}  {cores}  {:>3} cores{state}",
            short(card.id.as_str()),
            held.cores.units()
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text + &legend(&named)
}

/// A letter for each pod that holds something; after the last one they come again.
fn letters(node: &NodeView) -> Vec<(&str, char)> {
    let holds = |pod: &&PodView| node.cards.iter().any(|card| pod.share_of(card) != Share::default());
    node.pods.iter().filter(holds).map(|pod| &*pod.name).zip(LETTERS.chars().cycle()).collect()
}

fn state(card: &CardView, exclusive: bool) -> &'static str {
    match (card.healthy, exclusive) {
        (false, _) => "  unhealthy",
        (true, true) => "  exclusive",
        (true, false) => "",
    }
}

/// Parts of `whole`, each at least one character wide while there is room.
fn bar(parts: impl Iterator<Item = (char, u64)>, whole: u64, colours: bool) -> String {
    let mut bar = String::new();
    let (mut used, mut sum) = (0, 0);
    for (letter, part) in parts.filter(|(_, part)| *part > 0) {
        sum += part;
        let end = (position(sum, whole)).max(used + 1).min(BAR);
        let run: String = std::iter::repeat_n(letter, end - used).collect();
        if colours {
            let colour = COLOURS[LETTERS.find(letter).unwrap_or(0) % COLOURS.len()];
            bar.extend(["\x1b[30;", &colour.to_string(), "m", &run, "\x1b[0m"]);
        } else {
            bar.push_str(&run);
        }
        used = end;
    }
    bar.extend(std::iter::repeat_n(FREE, BAR - used));
    bar
}

/// Where a part that ends at `sum` ends in the bar, rounded.
fn position(sum: u64, whole: u64) -> usize {
    let bar = u64::try_from(BAR).unwrap_or(u64::MAX);
    usize::try_from((sum * bar + whole / 2) / whole.max(1)).unwrap_or(BAR)
}

fn legend(letters: &[(&str, char)]) -> String {
    let pods: Vec<String> = letters.iter().map(|(pod, letter)| format!("{letter} {pod}")).collect();
    pods.chunks(4).flat_map(|row| ["  ".to_owned(), row.join("  "), "\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use divvy_api::request::Sharing;
    use divvy_api::{ContainerKind, Cores, GpuRequest, Memory, MemoryAmount};

    use super::*;
    use divvy_testkit::outside::ContainerView;

    fn pod(name: &str, request: GpuRequest, card: &str) -> PodView {
        let container = ContainerView {
            name: "main".to_owned(),
            kind: ContainerKind::App,
            request: Some(request),
            running: false,
            slots: [format!("{card}::0")].into(),
            given: None,
        };
        PodView {
            uid: name.to_owned(),
            name: format!("default/{name}"),
            sharing: Sharing::Part,
            containers: vec![container],
        }
    }

    fn node() -> NodeView {
        let card = |id: &str, healthy| CardView {
            id: id.parse().expect("a UUID"),
            model: "NVIDIA H100 80GB HBM3".to_owned(),
            memory: Memory::mib(80 << 10),
            numa: None,
            healthy,
        };
        let part = |gib: u64, cores| GpuRequest {
            cards: 1,
            memory: MemoryAmount::Absolute(Memory::mib(gib << 10)),
            cores: Cores::new(cores),
        };
        let cards = vec![card("GPU-1f3a9c2e-77", true), card("GPU-5b0d1e42-01", true), card("GPU-9d", false)];
        let (first, second) = ("GPU-1f3a9c2e-77", "GPU-5b0d1e42-01");
        let pods = vec![
            pod("infer-1", part(40, 50), first),
            pod("notebook-2", part(1, 0), first),
            pod("infer-3", part(8, 20), first),
            pod("train-4", GpuRequest::whole(1), second),
            pod("web-5", part(1, 0), "GPU-elsewhere"),
        ];
        NodeView { name: "node-0".to_owned(), cards, pods, ..NodeView::default() }
    }

    #[test]
    fn a_node_in_plain_letters() {
        insta::assert_snapshot!(of(&node(), false), @r"
        node-0: 3 × NVIDIA H100 80GB HBM3
          GPU-1f3a…  aaaaaaaaaaabc·········  49Gi of 80Gi     aaaaaaaaaaacccc·······   70 cores
          GPU-5b0d…  dddddddddddddddddddddd  80Gi of 80Gi     dddddddddddddddddddddd  100 cores  exclusive
          GPU-9d     ······················  0Mi of 80Gi      ······················    0 cores  unhealthy
          a default/infer-1  b default/notebook-2  c default/infer-3  d default/train-4
        ");
    }

    #[test]
    fn colours_change_nothing_but_the_looks() {
        let coloured = of(&node(), true);
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once("\x1b[") {
            plain.push_str(before);
            rest = after.split_once('m').map_or("", |(_, after)| after);
        }
        assert_ne!(coloured, of(&node(), false));
        assert_eq!(plain + rest, of(&node(), false));
    }

    #[test]
    fn the_smallest_part_is_seen_and_no_bar_overflows() {
        let many = (0..100).map(|_| ('a', 1));
        assert_eq!(bar(many, 100, false), "a".repeat(BAR));
        assert_eq!(bar([('a', 1)].into_iter(), 80_000, false).matches('a').count(), 1);
    }
}

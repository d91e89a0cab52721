use divvy_api::Memory;
use divvy_api::{Card, Links};
use divvy_node_core::inventory::{DeviceInfo, Driver, Inventory};

use super::*;

const MODEL: &str = "NVIDIA H200";
const DRIVER: &str = "580.95.05";

fn table() -> (tempfile::TempDir, DriverMemoryTable) {
    let directory = tempfile::tempdir().expect("a directory");
    let table = DriverMemoryTable::open(directory.path());
    (directory, table)
}

#[test]
fn shipped_context_goes_by_the_models_name() {
    let expected = [
        (MODEL, 528),
        ("NVIDIA H100 80GB HBM3", 528),
        ("NVIDIA A100-SXM4-80GB", 432),
        ("NVIDIA L4", 174),
        ("NVIDIA L40S", 426),
        ("Tesla T4", 120),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 0),
        ("NVIDIA A1000", 0),
        ("", 0),
    ];
    for (model, mib) in expected {
        assert_eq!(shipped(model), mib * MIB, "{model}");
    }
}

#[test]
fn context_is_learned_exactly_before_the_first_launch() {
    let (directory, mut table) = table();
    table.learn(MODEL, DRIVER, 900 * MIB, true);
    assert_eq!(table.context(MODEL, DRIVER), 528 * MIB, "modules are in it");
    table.learn(MODEL, DRIVER, 500 * MIB, true);
    assert_eq!(table.context(MODEL, DRIVER), 500 * MIB, "it takes no more");
    table.learn(MODEL, DRIVER, 560 * MIB, false);
    table.learn(MODEL, DRIVER, 600 * MIB, false);
    for implausible in [1, 200 * MIB, 2000 * MIB, 60_000 * MIB] {
        table.learn(MODEL, DRIVER, implausible, false);
    }
    assert_eq!(table.context(MODEL, DRIVER), 560 * MIB, "the least that is plausible");
    assert_eq!(table.context(MODEL, "590.1"), 528 * MIB, "another driver's is another");
    let again = DriverMemoryTable::open(directory.path());
    assert_eq!(again.learned, table.learned);
    assert_eq!(
        fs::read_to_string(directory.path().join(FILE)).expect("a file"),
        "587202560 exact 580.95.05 NVIDIA H200\n"
    );
}

#[test]
fn unknown_model_takes_what_its_first_process_does() {
    let (_directory, mut table) = table();
    let model = "NVIDIA A100-SXM4-40GB MIG 1g.5gb";
    assert_eq!(table.context(model, DRIVER), 0);
    table.learn(model, DRIVER, 300 * MIB, true);
    table.learn(model, DRIVER, 400 * MIB, true);
    assert_eq!(table.context(model, DRIVER), 300 * MIB);
    table.learn("", DRIVER, MIB, true);
    table.learn(model, DRIVER, 0, true);
    assert_eq!(table.learned.len(), 1);
}

#[test]
fn malformed_lines_are_left_out() {
    let (directory, _) = table();
    let text = "1 exact d m\nx exact d m\n1 about d m\n1 exact d\n\n2 most d NVIDIA L4\n";
    fs::write(directory.path().join(FILE), text).expect("room");
    assert_eq!(DriverMemoryTable::open(directory.path()).learned.len(), 2);
}

#[test]
fn figures_are_those_of_the_inventorys_models() {
    let (_directory, table) = table();
    let card = |id: &str, model: &str| {
        let card = Card { model: model.into(), ..Card::healthy(id.parse().expect("a UUID"), Memory::mib(1000)) };
        (card, DeviceInfo::default())
    };
    let driver = Some(Driver { version: DRIVER.to_owned(), cuda: None });
    let inventory = Inventory { driver, ..Inventory::new([card("GPU-a", MODEL), card("GPU-b", "")], Links::default()) };
    let figures = table.of_cards(&inventory);
    assert_eq!(figures.len(), 1);
    let expected = DriverMemory { context_bytes: 528 * MIB, graph_node_bytes: 3 << 10 };
    assert_eq!(figures.get(&"GPU-a".parse().expect("a UUID")), Some(&expected));
}

#[test]
fn nodes_of_graphs_take_less_with_newer_drivers() {
    let nodes = ["580.159.04", "590.01", "575.57.08", "", "weird"].map(graph_node);
    assert_eq!(nodes, [3 << 10, 3 << 10, 64 << 10, 64 << 10, 64 << 10]);
}

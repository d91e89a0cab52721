use std::fs;

use super::*;

const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli";
const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model";

fn with_file<T>(text: &str, read: impl Fn(&Path) -> Result<T, TraceError>) -> Result<T, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace.csv");
    fs::write(&path, text).expect("written");
    let shown = format!("{}/", directory.path().display());
    read(&path).map_err(|error| error.to_string().replace(&shown, ""))
}

/// The pods of a file where nodes have two models.
fn pods(file: &Path) -> Result<Vec<TracePod>, TraceError> {
    super::pods(file, Some(&["V100M16", "V100M32"].into()))
}

fn refused_pods(row: &str) -> String {
    with_file(&format!("{PODS}\np-0,1,1,1,500\n{row}\n"), pods).expect_err("refused")
}

#[test]
fn both_pod_forms_are_read() {
    let short = with_file(&format!("{PODS}\np-0,12000,16384,1,460\np-1,1,1,0,0\n"), pods).expect("valid");
    assert_eq!(
        short[0],
        TracePod { name: "p-0".into(), cpu: 12_000, memory: 16_384, cards: 1, milli: 460, ..TracePod::default() }
    );
    let long = format!("{}\np-0,1,1,8,1000,V100M16|V100M32,LS,Running,0,12537496,0\n", POD_COLUMNS.join(","));
    let long = with_file(&long, pods).expect("valid");
    assert_eq!((long[0].cards, long[0].models.as_slice()), (8, &["V100M16".to_owned(), "V100M32".to_owned()][..]));
}

#[test]
fn gpu_memory_column_is_read_in_both_pod_forms() {
    let read = |columns: &str, rows: &str| {
        let pods = with_file(&format!("{columns},gpu_memory_milli\n{rows}"), pods).expect("valid");
        pods.into_iter().map(|pod| (pod.milli, pod.card_memory, pod.models)).collect::<Vec<_>>()
    };
    let none = Vec::new;
    let short = read(PODS, "p-0,1,1,1,460,300\np-1,1,1,1,460,\np-2,1,1,0,0,0\np-3,1,1,2,1000,1000\n");
    let expected = [(460, Some(300), none()), (460, None, none()), (0, Some(0), none()), (1000, Some(1000), none())];
    assert_eq!(short, expected);
    let long = read(&POD_COLUMNS.join(","), "p-0,1,1,1,460,V100M16,LS,Running,0,1,0,1000\n");
    assert_eq!(long, [(460, Some(1000), vec!["V100M16".to_owned()])]);
}

#[test]
fn wrong_gpu_memory_is_named_by_line_and_column() {
    let refused = |row: &str| with_file(&format!("{PODS},gpu_memory_milli\n{row}\n"), pods).expect_err("refused");
    assert_eq!(refused("p-0,1,1,1,500,x"), "trace.csv:2:15: \"x\" is not a whole number from 1 to 1000");
    assert_eq!(refused("p-0,1,1,1,500,0"), "trace.csv:2:15: \"0\" is not a whole number from 1 to 1000");
    assert_eq!(refused("p-0,1,1,1,500,1001"), "trace.csv:2:15: \"1001\" is not a whole number from 1 to 1000");
    let whole = "trace.csv:2:16: gpu_memory_milli is 500, but gpu_milli is 1000: expected 1000";
    assert_eq!(refused("p-0,1,1,1,1000,500"), whole);
    assert_eq!(refused("p-0,1,1,0,0,5"), "trace.csv:2:13: gpu_memory_milli is 5, but gpu_milli is 0: expected 0");
    assert_eq!(refused("p-0,1,1,1,500"), "trace.csv:2:15: 5 fields: expected 6");
    let twice = with_file(&format!("{PODS},gpu_memory_milli,gpu_memory_milli\n"), pods).expect_err("refused");
    assert_eq!(twice, "trace.csv:1:45: column \"gpu_memory_milli\": expected \"gpu_spec\"");
}

#[test]
fn nodes_without_gpus_are_read() {
    let read = with_file(&format!("{NODES}\nn-0,64000,262144,2,P100\nn-1,64000,262144,0,\n"), nodes).expect("valid");
    let node = |name: &str, cards, model: &str| TraceNode {
        name: name.into(),
        cpu: 64_000,
        memory: 262_144,
        cards,
        model: model.into(),
    };
    assert_eq!(read, [node("n-0", 2, "P100"), node("n-1", 0, "")]);
}

#[test]
fn wrong_field_is_named_by_line_and_column() {
    assert_eq!(refused_pods("p-1,12000,16384,x,460"), "trace.csv:3:17: \"x\" is not a whole number from 0 to 32");
    assert_eq!(refused_pods("p-1,1,1,1,1001"), "trace.csv:3:11: \"1001\" is not a whole number from 0 to 1000");
    assert_eq!(refused_pods("p-1,1,1,2,500"), "trace.csv:3:11: gpu_milli is 500: expected 1000 where num_gpu is 2");
    assert_eq!(refused_pods("p-1,1,1,0,500"), "trace.csv:3:11: gpu_milli is 500, but num_gpu is 0: expected 0");
    assert!(refused_pods("P 1,1,1,1,500").starts_with("trace.csv:3:1: \"P 1\" is not a name"));
    assert_eq!(refused_pods("p-1,1,1,1"), "trace.csv:3:11: 4 fields: expected 5");
    assert_eq!(refused_pods("p-1,1,1,1,500,T4"), "trace.csv:3:15: 6 fields: expected 5");
    assert_eq!(refused_pods("p-1,-1,1,1,500"), "trace.csv:3:5: \"-1\" is not a whole number from 0 to 100000000");
    assert_eq!(refused_pods("p-1,1,,1,500"), "trace.csv:3:7: \"\" is not a whole number from 0 to 1073741824");
    let model = with_file(&format!("{NODES}\nn-0,1,1,2,\n"), nodes).expect_err("refused");
    assert_eq!(model, "trace.csv:2:11: model is empty, but the node has 2 GPUs");
}

#[test]
fn unknown_model_is_named() {
    let text = format!("{}\np-0,1,1,1,1000,V100M16|H100,LS,Running,0,1,0\n", POD_COLUMNS.join(","));
    assert_eq!(
        with_file(&text, pods).expect_err("refused"),
        "trace.csv:2:16: no node has model \"H100\": expected some of V100M16, V100M32"
    );
}

#[test]
fn wrong_header_is_named_by_line_and_column() {
    let header = |text: &str| with_file(text, pods).expect_err("refused");
    assert_eq!(
        header("name,cpu,memory_mib,num_gpu,gpu_milli\n"),
        "trace.csv:1:6: column \"cpu\": expected \"cpu_milli\""
    );
    assert!(header("name,cpu_milli,memory_mib\n").starts_with("trace.csv:1:27: 3 columns: expected 5 or 11: name,"));
    assert!(header(PODS).ends_with("no rows: expected at least one below the header"));
    assert!(header("").ends_with("no rows: expected at least one below the header"));
    assert!(pods(Path::new("/nowhere.csv")).expect_err("missing").to_string().contains("/nowhere.csv"));
}

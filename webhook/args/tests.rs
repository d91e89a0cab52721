use std::collections::BTreeMap;

use divvy_runtime::settings::EX_USAGE;

use super::*;

const POD: [(&str, &str); 3] = [("POD_NAME", "divvy-webhook-0"), ("POD_IP", "10.0.0.7"), ("NAMESPACE", "divvy-system")];

fn load(flags: &[&str], variables: &[(&str, &str)]) -> Result<Config, Stop> {
    let args = ["divvy-webhook"].iter().chain(flags).map(OsString::from);
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    parse(args, |name| variables.get(name).map(Into::into))
}

#[test]
fn help_names_every_key_with_variable_and_default() {
    insta::assert_snapshot!(command().term_width(100).render_help());
    assert_eq!(load(&["--help"], &[]).expect_err("help is no configuration").report(), 0);
}

#[test]
fn flag_wins_over_variable_and_variable_over_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    let text = "version: v1\nshortlist: 1\nmemoryUnit: 32\ndefaultCores: 1\nfavouredNamespaces: [a, b]\n";
    std::fs::write(&path, text).expect("writing the file");
    let path = path.to_str().expect("text");
    let variables = [&POD[..], &[("CONFIG_FILE", path), ("SHORTLIST", "2"), ("MEMORY_UNIT", "64")]].concat();
    let config = load(&["--shortlist=3"], &variables).expect("valid");
    assert_eq!((config.shortlist.get(), config.memory_unit.get(), config.default_cores.get()), (3, 64, 1));
    assert_eq!(config.favoured_namespaces.0.iter().cloned().map(String::from).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn printed_configuration_reads_back_the_same() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    let flags = ["--certificate-dir=/tls", "--favoured-namespaces=a,b"];
    for config in [load(&[], &POD).expect("defaults"), load(&flags, &POD).expect("valid")] {
        std::fs::write(&path, config.to_yaml()).expect("writing the file");
        let file = format!("--config-file={}", path.display());
        assert_eq!(load(&[&file], &[]).expect("our own file"), config);
    }
}

#[test]
fn files_with_the_key_extender_are_told_what_replaces_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    for (text, instead) in [("\"on\"", "scheduling: extender"), ("off", "scheduling: gates or node")] {
        std::fs::write(&path, format!("version: v1\nextender: {text}\n")).expect("writing the file");
        let stop = load(&[&format!("--config-file={}", path.display())], &POD).expect_err(text);
        assert!(stop.to_string().contains(&format!("extender: the key is gone: set {instead} in")), "{stop}");
    }
}

#[test]
fn keys_of_the_daemon_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    for (key, text) in [("overrides", "[]"), ("selector", "{}"), ("nodeName", "n1")] {
        std::fs::write(&path, format!("version: v1\n{key}: {text}\n")).expect("writing the file");
        let stop = load(&[&format!("--config-file={}", path.display())], &POD).expect_err(key);
        assert!(stop.to_string().contains(&format!("{key}: unknown field `{key}`")), "{stop}");
        assert_eq!(stop.report(), EX_USAGE);
    }
}

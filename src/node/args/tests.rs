use serde_json::Value;

use super::*;

/// One value of each key, none of them the default, as text.
const VALUES: &[(&str, &str)] = &[
    ("nodeName", "n2"),
    ("nodeIp", "10.0.0.7"),
    ("resourceCount", "example.com/gpu"),
    ("resourceMemory", "example.com/gpumem"),
    ("resourceMemoryPercentage", "example.com/gpumem-percentage"),
    ("resourceCores", "example.com/gpucores"),
    ("slotsPerCard", "256"),
    ("advertise", "devices"),
    ("memoryUnit", "512"),
    ("numaTopology", "on"),
    ("memoryScale", "1.25"),
    ("oversubscribeHostMemory", "64Gi"),
    ("coresScale", "0.1"),
    ("defaultMemory", "25%"),
    ("defaultCores", "99"),
    ("cardPolicy", "random"),
    ("loadAware", "on"),
    ("tier", "shim"),
    ("accountingNamespaces", "research,lab"),
    ("libdivvyPath", "/opt/libdivvy.so"),
    ("cardOverrides", "[{index: 0, slotsPerCard: 4}, {model: L4, tier: shim, memory: 8192Mi, coresScale: 2.5}]"),
    ("deviceListStrategy", "volume-mounts,cdi-cri"),
    ("cdiDir", "/etc/cdi"),
    ("hostRoot", "/host"),
    ("driverRoot", "/run/nvidia/driver"),
    ("kubeletRootDir", "/var/lib/k0s/kubelet"),
    ("kubeletUrl", "https://10.0.0.7:10251"),
    ("kubeletCa", "/etc/kubelet/ca.pem"),
    ("kubeletCertificate", "/etc/kubelet/kubelet.pem"),
    ("cgroupRoot", "/host/sys/fs/cgroup"),
    ("kubeconfig", "/etc/kubernetes/divvy.conf"),
    ("kubeletTokenFile", "/etc/divvy/token"),
    ("kubeletTimeout", "1s 500ms"),
    ("stateDir", "/srv/divvy"),
    ("runDir", "/r"),
    ("kubeletSettleTime", "30s"),
    ("drainTimeout", "1h"),
    ("migStrategy", "mixed"),
    ("probeInterval", "1s"),
    ("ignoredXids", "13,79"),
    ("recoverAfter", "5m"),
    ("listenAddress", "[::1]:9402"),
    ("adminAddress", "[::1]:9404"),
    ("logLevel", "warn,divvy_node=debug"),
    ("logFormat", "json"),
];

/// Parses a command line with these variables and, if there is any text, a file.
fn load(flags: &[&str], variables: &[(&str, &str)], file: &str) -> Result<Config, Stop> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    let mut args: Vec<OsString> = vec!["divvy-node".into()];
    args.extend(flags.iter().map(Into::into));
    if !file.is_empty() {
        std::fs::write(&path, file).expect("writing the file");
        args.extend(["--config-file".into(), path.clone().into()]);
    }
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let sources = parse(args, |name| variables.get(name).map(Into::into))?;
    Ok(sources.effective(&BTreeMap::new())?.config)
}

fn refused(flags: &[&str], variables: &[(&str, &str)], file: &str) -> String {
    let stop = load(flags, variables, file).expect_err("a refusal");
    let text = stop.to_string();
    // The file's directory has a new name each time.
    match text.split_once("/config.yaml") {
        Some((_, rest)) => format!("config.yaml{rest}"),
        None => text,
    }
}

/// `slotsPerCard` with another character between its words, and in another case.
fn spelled(key: &str, gap: char) -> String {
    let split = |c: char| if c.is_uppercase() { format!("{gap}{}", c.to_lowercase()) } else { c.to_string() };
    key.chars().map(split).collect()
}

fn json(config: &Config) -> Value {
    serde_json::to_value(config).expect("a flat struct")
}

#[test]
fn every_key_has_a_flag_a_variable_and_a_file_entry() {
    let default = json(&load(&[], &[("NODE_NAME", "n1")], "").expect("defaults"));
    let keys: Vec<&String> = default.as_object().expect("an object").keys().collect();
    let mut named: Vec<&str> = VALUES.iter().map(|(key, _)| *key).collect();
    named.sort_unstable();
    assert_eq!(keys, named, "each key has a value here");
    for (key, text) in VALUES {
        let (flag, variable) = (format!("--{}={text}", spelled(key, '-')), spelled(key, '_').to_uppercase());
        let node = if *key == "nodeName" { ("HOME", "/") } else { ("NODE_NAME", "n1") };
        let by_flag = json(&load(&[&flag], &[node], "").expect(key));
        let by_variable = json(&load(&[], &[node, (&variable, text)], "").expect(key));
        let by_file = json(&load(&[], &[node], &format!("version: v1\n{key}: {text:?}\n")).expect(key));
        assert_eq!((&by_flag, &by_variable), (&by_file, &by_file), "{key}");
        assert!(by_file[key] != default[key], "{key} has another value than the default");
    }
}

#[test]
fn flag_overrides_variable_overrides_file() {
    let file = "version: v1\nnodeName: file\nslotsPerCard: 1\ndefaultCores: 1\ncardPolicy: spread\n";
    let variables = [("NODE_NAME", "variable"), ("SLOTS_PER_CARD", "2"), ("CARD_POLICY", "")];
    let config = load(&["--node-name", "flag"], &variables, file).expect("valid");
    assert_eq!(&*config.node_name, "flag");
    assert_eq!((config.slots_per_card.get(), config.default_cores.get()), (2, 1));
    let policy = json(&config)["cardPolicy"].clone();
    assert_eq!(policy, "spread", "an empty variable is an unset one");
}

#[test]
fn config_file_is_given_by_flag_or_variable() {
    let missing = "/nonexistent/config.yaml";
    let flag = load(&["--config-file", missing], &[("CONFIG_FILE", "/elsewhere")], "").expect_err("no such file");
    let variable = load(&[], &[("CONFIG_FILE", missing)], "").expect_err("no such file");
    for stop in [flag, variable] {
        let expected = "reading configuration file /nonexistent/config.yaml: No such file or directory (os error 2)";
        assert_eq!(stop.to_string(), expected);
        assert_eq!(stop.report(), EX_USAGE);
    }
}

#[test]
fn printed_configuration_round_trips() {
    let default = load(&[], &[("NODE_NAME", "n1")], "").expect("defaults");
    insta::assert_snapshot!(default.to_yaml());
    assert_eq!(load(&[], &[], &default.to_yaml()).expect("our own file"), default);
    let flags: Vec<String> = VALUES.iter().map(|(key, text)| format!("--{}={text}", spelled(key, '-'))).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let changed = load(&flags, &[], "").expect("valid");
    assert_eq!(load(&[], &[], &changed.to_yaml()).expect("our own file"), changed);
}

#[test]
fn help_names_every_key_with_variable_and_default() {
    insta::assert_snapshot!(command().term_width(100).render_help());
    for flag in ["--help", "--version"] {
        let stop = load(&[flag], &[], "").expect_err("help is no configuration");
        assert_eq!(stop.report(), 0, "{flag}");
    }
}

#[test]
fn wrong_flags_and_variables_are_refused_by_name() {
    insta::assert_snapshot!(refused(&["--slot-per-card=3"], &[], ""), @r"
    error: unexpected argument '--slot-per-card' found

      tip: a similar argument exists: '--slots-per-card'

    Usage: divvy-node --slots-per-card <SLOTS_PER_CARD>

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(refused(&["--slots-per-card=0"], &[], ""), @r#"
    error: invalid value '0' for '--slots-per-card <SLOTS_PER_CARD>': "0" is not a whole number from 1 to 256

    For more information, try '--help'.
    "#);
    insta::assert_snapshot!(refused(&[], &[("TIER", "none")], ""), @r#"environment variable TIER="none": "none" is not a tier: expected auto, accounting, shim, mps or mig"#);
    insta::assert_snapshot!(refused(&[], &[("CARD_POLICY", "tight")], ""), @r#"environment variable CARD_POLICY="tight": unknown variant `tight`, expected one of `binpack`, `spread`, `random`, `least-fragmentation`, `topology`"#);
    assert_eq!(load(&["--tier=none"], &[], "").expect_err("no tier").report(), EX_USAGE);
}

#[test]
fn variable_with_invalid_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = |name: &str| (name == "NODE_NAME").then(|| OsString::from_vec(vec![b'n', 0xff]));
    let stop = parse(["divvy-node".into()], bytes).expect_err("not text");
    assert_eq!(stop.to_string(), r#"environment variable NODE_NAME="n\xFF": not UTF-8"#);
}

#[test]
fn invalid_file_is_refused_with_key_line_and_column() {
    let file = |line: &str| refused(&["--node-name=n1"], &[], &format!("version: v1\n{line}\n"));
    insta::assert_snapshot!(file("slotPerCard: 3"), @"config.yaml: line 2, column 1: slotPerCard: unknown field `slotPerCard`, expected one of version, selector, overrides, nodeName, resourceCount, resourceMemory, resourceMemoryPercentage, resourceCores, slotsPerCard, advertise, memoryUnit, defaultMemory, defaultCores, cardPolicy, loadAware, nodeIp, numaTopology, memoryScale, oversubscribeHostMemory, coresScale, tier, accountingNamespaces, libdivvyPath, cardOverrides, deviceListStrategy, cdiDir, hostRoot, driverRoot, kubeletRootDir, kubeletUrl, kubeletCa, kubeletCertificate, kubeletTokenFile, cgroupRoot, kubeletTimeout, kubeconfig, stateDir, runDir, kubeletSettleTime, drainTimeout, migStrategy, probeInterval, ignoredXids, recoverAfter, listenAddress, adminAddress, logLevel, logFormat");
    insta::assert_snapshot!(file("slotsPerCard: 300"), @r#"config.yaml: line 2, column 15: slotsPerCard: "300" is not a whole number from 1 to 256"#);
    insta::assert_snapshot!(file("adminAddress: 10.0.0.7:9404"), @r#"config.yaml: line 2, column 15: adminAddress: "10.0.0.7:9404" is not a loopback address with a port: expected one such as 127.0.0.1:9404 or [::1]:9404"#);
    insta::assert_snapshot!(file("slotsPerCard: [3]"), @"config.yaml: line 2, column 15: slotsPerCard: expected string scalar");
    insta::assert_snapshot!(file("memoryScale: 1.555"), @r#"config.yaml: line 2, column 14: memoryScale: "1.555" is not a scale from 0.1 to 10 with at most two decimals"#);
    insta::assert_snapshot!(file("slotsPerCard: 3\nslotsPerCard: 4"), @"config.yaml: line 3, column 1: slotsPerCard: duplicate mapping key: slotsPerCard not allowed here");
    insta::assert_snapshot!(file("deviceListStrategy: [auto, envvar]"), @r#"config.yaml: line 2, column 21: deviceListStrategy: "auto" is not a strategy that can stand here: expected auto alone, or any of envvar, volume-mounts, cdi-annotations and cdi-cri"#);
    insta::assert_snapshot!(file("ignoredXids:\n- 13\n- x"), @r#"config.yaml: line 4, column 3: ignoredXids: "x" is not a whole number from 1 to 1023"#);
    insta::assert_snapshot!(file("ignoredXids: 13"), @r#"config.yaml: line 2, column 1: ignoredXids: invalid type: integer `13`, expected a list such as [a, b] or "a,b""#);
    insta::assert_snapshot!(file("- a"), @"config.yaml: line 2, column 3: version: while parsing a block mapping, did not find expected key");
    insta::assert_snapshot!(refused(&[], &[], "slotsPerCard: 3"), @r#"config.yaml: version is missing: the first line should be "version: v1""#);
    insta::assert_snapshot!(refused(&[], &[], "version: v2"), @"config.yaml: line 1, column 10: version: unknown variant `v2`, expected one of v1");
}

#[test]
fn missing_and_conflicting_keys_are_refused() {
    let node = [("NODE_NAME", "n1")];
    insta::assert_snapshot!(refused(&[], &[], ""), @"nodeName is missing: set --node-name, the environment variable NODE_NAME or nodeName in the file");
    insta::assert_snapshot!(refused(&["--resource-cores=nvidia.com/gpu"], &node, ""), @"resource nvidia.com/gpu stands for two amounts: resourceCount, resourceMemory, resourceMemoryPercentage and resourceCores must differ");
}

#[test]
fn flags_and_variables_win_over_overrides() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    let text = "version: v1\noverrides:\n- selector: {}\n  slotsPerCard: 8\n  defaultCores: 8\n  memoryUnit: 64\n";
    std::fs::write(&path, text).expect("writing the file");
    let file = format!("--config-file={}", path.display());
    let args = ["divvy-node", &file, "--slots-per-card=1"].map(OsString::from);
    let variables = BTreeMap::from([("NODE_NAME", "n1"), ("DEFAULT_CORES", "2")]);
    let sources = parse(args, |name| variables.get(name).map(Into::into)).expect("valid");
    let effective = sources.effective(&BTreeMap::new()).expect("valid");
    let config = &effective.config;
    assert_eq!((config.slots_per_card.get(), config.default_cores.get(), config.memory_unit.get()), (1, 2, 64));
    assert!(effective.to_yaml().starts_with("# overrides in effect: every node\nversion: v1\n"));
    std::fs::write(&path, "version: v1\nslotsPerCard: 0\n").expect("writing the file");
    assert!(sources.effective(&BTreeMap::new()).is_err(), "the file is read anew");
}

#[test]
fn uninstall_flag_selects_the_job() {
    let job = |args: &[&str]| {
        let args = std::iter::once("divvy-node").chain(args.iter().copied()).map(OsString::from);
        parse(args, |name| (name == "NODE_NAME").then(|| "n1".into())).expect("valid").job
    };
    assert_eq!(job(&["--run-dir=/run/gpus"]), Job::Serve);
    assert_eq!(job(&["--uninstall"]), Job::Uninstall(Uninstall::Node));
    assert_eq!(job(&["--uninstall", "--run-dir=/run/gpus"]), Job::Uninstall(Uninstall::Node));
    assert_eq!(job(&["--uninstall=watch"]), Job::Uninstall(Uninstall::Watch));
    assert_eq!(job(&["--uninstall=cluster"]), Job::Uninstall(Uninstall::Cluster));
}

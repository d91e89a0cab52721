use divvy_api::request::Defaults;
use divvy_api::{Cores, MemoryAmount};
use divvy_runtime::settings::from_text;
use proptest::prelude::*;
use serde::de::DeserializeOwned;

use super::*;

fn refused<T: DeserializeOwned + std::fmt::Debug>(texts: &[&str]) {
    for text in texts {
        assert!(from_text::<T>(text).is_err(), "{text:?}");
    }
}

fn config(flags: &[(&str, &str)]) -> Config {
    let env = |name: &str| match flags.iter().find(|(flag, _)| *flag == name) {
        Some((_, value)) => Some(value.into()),
        None => (name == "NODE_NAME").then(|| "n1".into()),
    };
    Keys::from_env(env).and_then(Keys::into_config).expect("valid")
}

#[test]
fn invalid_values_are_refused() {
    refused::<Scale>(&["", "0", "0.09", "10.01", "1.555", "1e0", "-1", ".5", "1.", "1.x", "+1", "99999999999"]);
    refused::<ObjectName>(&["", "N1", "n_1", "-n", "n-", "n..m", &"n".repeat(254)]);
    refused::<KubeletUrl>(&[
        "",
        "n1:10250",
        "http://n1:10250",
        "https://",
        "https://n1/pods",
        "https://n1?x",
        "https:n1",
    ]);
    refused::<TierChoice>(&["", "Shim", "MPS", "Mig", "none"]);
    refused::<DeviceListStrategy>(&["", ",", "auto,envvar", "cdi", "envvar,x"]);
}

#[test]
fn valid_values_are_parsed() {
    assert_eq!(from_text::<Scale>("1.5").map(Scale::percent), Ok(150));
    assert_eq!(from_text::<Scale>("0.1").map(Scale::percent), Ok(10));
    assert_eq!(from_text::<Scale>("10").map(Scale::percent), Ok(1000));
    assert_eq!(from_text::<KubeletUrl>("https://[fe80::1]:1/").expect("valid").as_str(), "https://[fe80::1]:1");
    let sorted = from_text("cdi-cri, envvar,envvar").map(|choice: DeviceListStrategy| String::from(choice));
    assert_eq!(sorted.as_deref(), Ok("envvar,cdi-cri"));
}

#[test]
fn default_may_depend_on_another_key() {
    let moved = config(&[("NODE_IP", "fd00::7"), ("HOST_ROOT", "/host")]);
    assert_eq!(moved.kubelet_url.as_str(), "https://[fd00::7]:10250");
    assert_eq!(&*moved.kubelet_certificate, Path::new("/host/var/lib/kubelet/pki/kubelet.crt"));
    assert_eq!(&*moved.cgroup_root, Path::new("/host/sys/fs/cgroup"));
    let times = ["50ms", "1s"].map(|interval| config(&[("PROBE_INTERVAL", interval)]).probe_timeout());
    assert_eq!(times, [1500, 2000].map(Duration::from_millis));
}

#[test]
fn requests_are_completed_from_the_configuration() {
    let defaults = config(&[]).cluster().request_defaults();
    assert_eq!(defaults, Defaults::default());
    let defaults = config(&[("DEFAULT_MEMORY", "25%"), ("DEFAULT_CORES", "10")]).cluster().request_defaults();
    assert_eq!((defaults.memory, defaults.cores), (Some(MemoryAmount::Percent(25)), Cores::new(10)));
    assert_eq!(config(&[]).resource_names(), ResourceNames::default());
}

fn file(text: &str) -> Result<Keys, String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, format!("version: v1\nnodeName: n1\n{text}")).expect("writing the file");
    Keys::read(&path).map_err(|refused| refused.to_string().replace(&path.display().to_string(), "config.yaml"))
}

const OVERRIDES: &str = r"
slotsPerCard: 16
defaultCores: 5
overrides:
- selector:
    matchLabels: {pool: inference}
  slotsPerCard: 64
  ignoredXids: [13, 94]
- selector:
    matchExpressions:
    - {key: gpu, operator: In, values: [T4, L4]}
    - {key: drained, operator: DoesNotExist}
  slotsPerCard: 8
";

#[test]
fn last_matching_override_wins() {
    let on = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (keys, selectors) = file(OVERRIDES).expect("valid").on(&labels);
        let config = keys.into_config().expect("valid");
        (config.slots_per_card.get(), config.default_cores.get(), config.ignored_xids.0.len(), selectors.join("; "))
    };
    assert_eq!(on(&[]), (16, 5, 6, String::new()));
    assert_eq!(on(&[("pool", "training")]), (16, 5, 6, String::new()));
    assert_eq!(on(&[("pool", "inference")]), (64, 5, 2, "pool=inference".to_owned()));
    let both = on(&[("pool", "inference"), ("gpu", "L4")]);
    assert_eq!(both, (8, 5, 2, "pool=inference; gpu in (L4,T4),!drained".to_owned()));
    assert_eq!(on(&[("gpu", "L4"), ("drained", "")]), (16, 5, 6, String::new()));
}

#[test]
fn selectors_match_as_in_kubernetes() {
    let matches = |selector: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let text = format!("overrides:\n- selector: {selector}\n  slotsPerCard: 8\n");
        !file(&text).expect(selector).on(&labels).1.is_empty()
    };
    assert!(matches("{}", &[]), "an empty selector is every node's");
    let not_in = "{matchExpressions: [{key: a, operator: NotIn, values: [x]}]}";
    assert!(matches(not_in, &[]) && matches(not_in, &[("a", "y")]) && !matches(not_in, &[("a", "x")]));
    let exists = "{matchExpressions: [{key: a, operator: Exists}]}";
    assert!(matches(exists, &[("a", "")]) && !matches(exists, &[("b", "")]));
    let both = "{matchLabels: {a: x, b: y}}";
    assert!(matches(both, &[("a", "x"), ("b", "y")]) && !matches(both, &[("a", "x")]));
}

#[test]
fn wrong_overrides_are_refused_by_name() {
    let refused = |entry: &str| file(&format!("overrides:\n- {entry}\n")).expect_err(entry);
    let for_all = |key: &str| refused(&format!("selector: {{}}\n  {key}"));
    assert!(for_all("slotPerCard: 3").starts_with(
        "configuration file config.yaml: line 5, column 3: slotPerCard: unknown field `slotPerCard`, expected one of"
    ));
    insta::assert_snapshot!(for_all("slotsPerCard: 300"), @r#"configuration file config.yaml: line 5, column 17: slotsPerCard: "300" is not a whole number from 1 to 256"#);
    insta::assert_snapshot!(for_all("stateDir: /srv"), @"configuration file config.yaml: overrides[0]: stateDir can't be overridden: it is needed before the node's labels are known");
    insta::assert_snapshot!(for_all("overrides: []\n  version: v1"), @"configuration file config.yaml: overrides[0]: version and overrides stand at the top of the file only");
    insta::assert_snapshot!(refused("slotsPerCard: 3"), @"configuration file config.yaml: overrides[0]: selector is missing: it says which nodes the keys are for, by matchLabels or matchExpressions");
    insta::assert_snapshot!(refused("selector: {matchLabel: {a: b}}"), @"configuration file config.yaml: line 4, column 14: selector: unknown field `matchLabel`, expected one of matchLabels, matchExpressions");
    insta::assert_snapshot!(refused("selector: {matchExpressions: [{key: a, operator: In}]}"), @"configuration file config.yaml: line 4, column 13: selector: a: operator In needs values");
    insta::assert_snapshot!(refused("selector: {matchExpressions: [{key: a, operator: Like}]}"), @"configuration file config.yaml: line 4, column 52: selector: unknown variant `Like`, expected one of In, NotIn, Exists, DoesNotExist");
    insta::assert_snapshot!(file("selector: {}\n").expect_err("at the top"), @"configuration file config.yaml: selector: stands in an entry of overrides only");
}

proptest! {
    #[test]
    fn scales_are_printed_as_they_are_read(percent in 10u32..=1000) {
        let scale: Scale = from_text(&format!("{}.{:02}", percent / 100, percent % 100)).expect("in range");
        prop_assert_eq!(scale.percent(), percent);
        prop_assert_eq!(from_text::<Scale>(&f64::from(scale).to_string()), Ok(scale));
    }

    #[test]
    fn parsing_any_file_never_panics(text in "(version: v1\n)?([a-zA-Z]{1,8}: ?[ -~]{0,12}\n){0,4}") {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, text).expect("writing the file");
        let refused = Keys::read(&path).err().map(|error| error.to_string());
        prop_assert!(refused.is_none_or(|error| error.contains("config.yaml")));
    }
}

use divvy_contract::MemoryAmount;
use proptest::prelude::*;
use serde::de::DeserializeOwned;

use super::keys::from_text;
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
fn texts_that_are_no_value() {
    refused::<Within<1, 256>>(&["", "0", "257", "-1", "1.0", "0x1", "one"]);
    refused::<Scale>(&["", "0", "0.09", "10.01", "1.555", "1e0", "-1", ".5", "1.", "1.x", "+1", "99999999999"]);
    refused::<Period>(&["", "0s", "0.5ms", "30", "-1s", "25h", "1 fortnight"]);
    refused::<NodeName>(&["", "N1", "n_1", "-n", "n-", "n..m", &"n".repeat(254)]);
    refused::<AbsolutePath>(&["", "a", "./a", "~/a", "/a/../b"]);
    refused::<KubeletUrl>(&[
        "",
        "n1:10250",
        "http://n1:10250",
        "https://",
        "https://n1/pods",
        "https://n1?x",
        "https:n1",
    ]);
    refused::<AnnotationPrefix>(&["", "/", "cdi.k8s.io", "cdi.k8s.io/a/", "CDI/"]);
    refused::<DefaultMemory>(&["", "0%", "101%", "4G", "same"]);
    refused::<Served>(&["", "shim", "mps", "mig", "none"]);
    refused::<LogFilter>(&["verbose", "info,loud", "divvy_node=loud", "inof"]);
    refused::<LogFormat>(&["", "Plain", "text"]);
    refused::<Choice>(&["", ",", "auto,envvar", "cdi", "envvar,x"]);
    refused::<List<Within<1, 1023>>>(&["0", "13,x", "13;31"]);
}

#[test]
fn texts_that_are_a_value() {
    assert_eq!(from_text::<Scale>("1.5").map(Scale::percent), Ok(150));
    assert_eq!(from_text::<Scale>("0.1").map(Scale::percent), Ok(10));
    assert_eq!(from_text::<Scale>("10").map(Scale::percent), Ok(1000));
    assert_eq!(from_text::<Period>("1m 30s").map(|period| period.get().as_secs()), Ok(90));
    assert_eq!(from_text::<KubeletUrl>("https://[fe80::1]:1/").expect("valid").as_str(), "https://[fe80::1]:1");
    let filter = from_text::<LogFilter>("info,divvy_node::kubelet=debug").expect("valid").targets();
    assert!(filter.would_enable("divvy_node::kubelet::client", &tracing::Level::DEBUG));
    assert!(!filter.would_enable("hyper", &tracing::Level::DEBUG));
    let sorted = from_text("cdi-cri, envvar,envvar").map(|choice: Choice| String::from(choice));
    assert_eq!(sorted.as_deref(), Ok("envvar,cdi-cri"));
    assert_eq!(from_text::<List<Within<1, 1023>>>(""), Ok(List(vec![])));
}

#[test]
fn a_default_may_follow_another_key() {
    let moved = config(&[("NODE_IP", "fd00::7"), ("DRIVER_ROOT", "/run/nvidia/driver")]);
    assert_eq!(moved.kubelet_url.as_str(), "https://[fd00::7]:10250");
    assert_eq!(&*moved.driver_root_ctr_path, Path::new("/run/nvidia/driver"));
}

#[test]
fn claims_are_completed_from_the_configuration() {
    let defaults = config(&[]).claim_defaults();
    assert_eq!(defaults, Defaults::default());
    let defaults = config(&[("DEFAULT_MEMORY", "25%"), ("DEFAULT_CORES", "10")]).claim_defaults();
    assert_eq!((defaults.memory, defaults.cores), (Some(MemoryAmount::Percent(25)), Cores::new(10)));
    assert_eq!(config(&[]).resource_names(), ResourceNames::default());
}

proptest! {
    #[test]
    fn scales_are_printed_as_they_are_read(percent in 10u32..=1000) {
        let scale: Scale = from_text(&format!("{}.{:02}", percent / 100, percent % 100)).expect("in range");
        prop_assert_eq!(scale.percent(), percent);
        prop_assert_eq!(from_text::<Scale>(&f64::from(scale).to_string()), Ok(scale));
    }

    #[test]
    fn periods_are_printed_as_they_are_read(millis in 1u64..=86_400_000) {
        let period = Period::millis(millis);
        prop_assert_eq!(from_text::<Period>(&String::from(period)), Ok(period));
    }

    #[test]
    fn no_file_panics(text in "(version: v1\n)?([a-zA-Z]{1,8}: ?[ -~]{0,12}\n){0,4}") {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, text).expect("writing the file");
        let refused = Keys::read(&path).err().map(|error| error.to_string());
        prop_assert!(refused.is_none_or(|error| error.contains("config.yaml")));
    }
}

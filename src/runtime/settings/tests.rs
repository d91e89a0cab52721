use divvy_api::MemoryAmount;
use proptest::prelude::*;
use serde::de::DeserializeOwned;

use super::*;

fn refused<T: DeserializeOwned + std::fmt::Debug>(texts: &[&str]) {
    for text in texts {
        assert!(from_text::<T>(text).is_err(), "{text:?}");
    }
}

#[test]
fn malformed_setting_values_are_refused() {
    refused::<Within<1, 256>>(&["", "0", "257", "-1", "1.0", "0x1", "one"]);
    refused::<Period>(&["", "0s", "0.5ms", "30", "-1s", "25h", "1 fortnight"]);
    refused::<AbsolutePath>(&["", "a", "./a", "~/a", "/a/../b"]);
    refused::<LoopbackAddress>(&["", "0.0.0.0:9404", "10.0.0.7:9404", "[::]:9404", "127.0.0.1", "localhost:9404"]);
    refused::<ObjectName>(&["", "N1", "n_1", "-n", "n-", "n..m", &"n".repeat(254)]);
    refused::<DefaultMemory>(&["", "0%", "101%", "4G", "same"]);
    refused::<Advertise>(&["", "units"]);
    refused::<Switch>(&["", "true", "On"]);
    refused::<LogFilter>(&["verbose", "info,loud", "divvy=loud", "inof"]);
    refused::<LogFormat>(&["", "Plain", "text"]);
    refused::<List<Within<1, 1023>>>(&["0", "13,x", "13;31"]);
}

#[test]
fn setting_values_parse() {
    assert_eq!(from_text::<Period>("1m 30s").map(|period| period.get().as_secs()), Ok(90));
    assert_eq!(from_text::<LoopbackAddress>("127.0.0.1:9404"), Ok(LoopbackAddress::port(9404)));
    assert_eq!(from_text::<LoopbackAddress>("[::1]:0").map(|address| address.get().is_ipv6()), Ok(true));
    assert_eq!(from_text::<ObjectName>("a.b-1").expect("valid"), ObjectName::new("a.b-1"));
    assert_eq!(from_text::<DefaultMemory>("25%").map(DefaultMemory::amount), Ok(Some(MemoryAmount::Percent(25))));
    assert_eq!(from_text::<List<Within<1, 1023>>>(""), Ok(List(vec![])));
    assert_eq!(from_text::<List<Switch>>("on, off"), Ok(List(vec![Switch::On, Switch::Off])));
}

#[test]
fn log_filter_matches_target_prefixes() {
    let filter = from_text::<LogFilter>("info,divvy=debug,divvy_node::kubelet=trace").expect("valid").targets();
    assert!(filter.would_enable("divvy_webhook::feed", &tracing::Level::DEBUG));
    assert!(filter.would_enable("divvy_node::kubelet::client", &tracing::Level::TRACE));
    assert!(!filter.would_enable("divvy_node::http", &tracing::Level::TRACE));
    assert!(!filter.would_enable("hyper", &tracing::Level::DEBUG));
}

#[test]
fn missing_key_is_named_as_each_source_spells_it() {
    insta::assert_snapshot!(ConfigError::Missing { key: "pod_ip" }, @"podIp is missing: set --pod-ip, the environment variable POD_IP or podIp in the file");
    insta::assert_snapshot!(ConfigError::Missing { key: "namespace" }, @"namespace is missing: set --namespace, the environment variable NAMESPACE or namespace in the file");
}

proptest! {
    #[test]
    fn period_round_trips(millis in 1u64..=86_400_000) {
        let period = Period::millis(millis);
        prop_assert_eq!(from_text::<Period>(&String::from(period)), Ok(period));
    }
}

use divvy_api::annotation::PolicyName;
use divvy_api::request::Defaults;
use divvy_api::{Cores, Memory, MemoryAmount, ResourceNames};

use super::*;

fn config(variables: &[(&str, &str)]) -> Result<Config, String> {
    let pod = [("POD_NAME", "divvy-webhook-0"), ("POD_IP", "10.0.0.7"), ("NAMESPACE", "divvy-system")];
    let env = |name: &str| {
        let given = variables.iter().chain(&pod).find(|(variable, _)| *variable == name);
        given.map(|(_, value)| value.into())
    };
    Keys::from_env(env).and_then(Keys::into_config).map_err(|refused| refused.to_string())
}

fn refused(variables: &[(&str, &str)]) -> String {
    config(variables).expect_err("a refusal")
}

#[test]
fn own_name_address_and_namespace_are_required() {
    for variable in ["POD_NAME", "POD_IP", "NAMESPACE"] {
        assert!(refused(&[(variable, "")]).contains(&format!("the environment variable {variable} or")));
    }
    insta::assert_snapshot!(refused(&[("POD_IP", "")]), @"podIp is missing: set --pod-ip, the environment variable POD_IP or podIp in the file");
    insta::assert_snapshot!(refused(&[("NAMESPACE", "Divvy")]), @r#"environment variable NAMESPACE="Divvy": "Divvy" is not an object's name: expected at most 253 lower-case letters, digits, '-' and '.'"#);
}

#[test]
fn resource_names_must_differ() {
    insta::assert_snapshot!(refused(&[("RESOURCE_CORES", "nvidia.com/gpu")]), @"resource nvidia.com/gpu stands for two amounts: resourceCount, resourceMemory, resourceMemoryPercentage and resourceCores must differ");
}

#[test]
fn listeners_have_ports_in_a_row() {
    let address = |text: &str| config(&[("LISTEN_ADDRESS", text)]).expect("valid").listen_address;
    let kinds = [Listener::Reviews, Listener::Extender, Listener::Explanations, Listener::AggregatedApi];
    let ports = |text: &str| kinds.map(|kind| address(text).listener(kind).port());
    assert_eq!(ports("[::]:8443"), [8443, 8444, 8445, 8446]);
    assert_eq!(ports("127.0.0.1:65532"), [65532, 65533, 65534, 65535]);
    assert_eq!(ports("127.0.0.1:0"), [0; 4], "each one that is free");
    insta::assert_snapshot!(refused(&[("LISTEN_ADDRESS", "0.0.0.0:65533")]), @r#"environment variable LISTEN_ADDRESS="0.0.0.0:65533": "0.0.0.0:65533" is no address with a port up to 65532: expected one such as 0.0.0.0:8443"#);
}

#[test]
fn node_policy_defaults_to_card_policy() {
    let policies = |variables: &[(&str, &str)]| {
        let config = config(variables).expect("valid").scheduling_config().expect("valid");
        (config.card_policy, config.node_policy)
    };
    assert_eq!(policies(&[]), (PolicyName::LeastFragmentation, PolicyName::LeastFragmentation));
    assert_eq!(policies(&[("CARD_POLICY", "spread")]), (PolicyName::Spread, PolicyName::Spread));
    assert_eq!(policies(&[("NODE_POLICY", "binpack")]), (PolicyName::LeastFragmentation, PolicyName::Binpack));
}

#[test]
fn resource_names_and_defaults_are_read() {
    let scheduling = |variables| config(variables).expect("valid").scheduling_config().expect("checked");
    let SchedulingConfig { names, defaults, .. } = scheduling(&[]);
    assert_eq!((names, defaults), (ResourceNames::default(), Defaults::default()));
    let SchedulingConfig { names, defaults, .. } = scheduling(&[
        ("ADVERTISE", "devices"),
        ("MEMORY_UNIT", "512"),
        ("RESOURCE_COUNT", "example.com/gpu"),
        ("DEFAULT_MEMORY", "25%"),
        ("DEFAULT_CORES", "10"),
    ]);
    assert_eq!((names.count.as_str(), names.memory.as_str()), ("example.com/gpu", "nvidia.com/gpumem-512mi"));
    assert_eq!(names.memory_unit, Memory::mib(512));
    assert_eq!((defaults.memory, defaults.cores), (Some(MemoryAmount::Percent(25)), Cores::new(10)));
}

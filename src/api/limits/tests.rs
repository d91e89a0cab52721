use proptest::prelude::*;

use super::*;
use crate::pod::ContainerKind;

fn container(limits: &[(&str, &str)]) -> ContainerSpec {
    let limits = limits.iter().map(|(name, value)| (format!("nvidia.com/{name}"), (*value).to_owned())).collect();
    ContainerSpec { name: "main".into(), kind: ContainerKind::App, index: 0, limits }
}

fn read(limits: &[(&str, &str)]) -> Result<Option<GpuRequest>, RequestError> {
    normalise(&ResourceNames::default(), Defaults::default(), &container(limits))
}

fn request(cards: u32, memory: &str, cores: u32) -> GpuRequest {
    GpuRequest { cards, memory: memory.parse().expect("test amount"), cores: Cores::new(cores) }
}

#[test]
fn absent_limits_take_their_defaults() {
    assert_eq!(read(&[("gpu", "2")]), Ok(Some(GpuRequest::whole(2))), "the stock meaning");
    assert_eq!(read(&[("gpumem", "8Gi")]), Ok(Some(request(1, "8Gi", 0))));
    assert_eq!(read(&[("gpucores", "30")]), Ok(Some(request(1, "30%", 30))));
    assert_eq!(read(&[("gpumem-percentage", "50"), ("gpu", "2")]), Ok(Some(request(2, "50%", 0))));
    assert_eq!(read(&[("gpumem", "80k"), ("gpucores", "100")]), Ok(Some(request(1, "80000", 100))));
    assert_eq!(read(&[("gpucores", "100")]), Ok(Some(GpuRequest::whole(1))));
    let defaults = Defaults { memory: Some(MemoryAmount::Percent(10)), cores: Cores::new(5) };
    let read = |limits: &[(&str, &str)]| normalise(&ResourceNames::default(), defaults, &container(limits));
    assert_eq!(read(&[("gpucores", "30")]), Ok(Some(request(1, "10%", 30))));
    assert_eq!(read(&[("gpumem", "1Gi")]), Ok(Some(request(1, "1Gi", 5))));
    assert_eq!(read(&[("gpu", "1")]), Ok(Some(GpuRequest::whole(1))), "defaults don't shrink whole cards");
}

#[test]
fn instances_are_counted_by_their_profile() {
    let names = ResourceNames::default();
    assert_eq!(read(&[("mig-1g.10gb", "2")]), Ok(Some(GpuRequest::whole(2))));
    assert_eq!(read(&[("mig-1g.10gb.me", "1"), ("gpumem", "4Gi")]), Ok(Some(request(1, "4Gi", 0))), "of the instance");
    let asked = container(&[("mig-1g.10gb.me", "1"), ("mig-3g.40gb", "0"), ("gpu", "0")]);
    assert_eq!(profile(&names, &asked), "1g.10gb+me".parse().ok());
    assert!(asks_for_cards(&names, &asked) && !asks_for_cards(&names, &container(&[("gpu", "0"), ("gpumem", "1")])));
    assert_eq!(counted(&names, &asked).count, 1);
    assert_eq!(read(&[("mig-1g.10gb", "0"), ("gpu", "0")]), Ok(None));
    let both = read(&[("mig-1g.10gb", "1"), ("gpu", "1")]).expect_err("a process sees cards of one kind");
    assert_eq!(
        both.to_string(),
        "spec.containers[0].resources.limits[nvidia.com/mig-1g.10gb]: excludes nvidia.com/gpu in the same container: \
         set one of them, or use a container for each"
    );
    assert!(read(&[("mig-1g.10gb", "1"), ("mig-3g.40gb", "1")]).is_err());
    assert_eq!(read(&[("mig-new", "1")]), Ok(None), "somebody else's resource");
}

#[test]
fn memory_may_be_counted_in_coarse_units() {
    let names = ResourceNames::default().in_units(Memory::mib(256)).expect("a name");
    let read = |limits: &[(&str, &str)]| normalise(&names, Defaults::default(), &container(limits));
    assert_eq!(read(&[("gpu", "1"), ("gpumem-256mi", "32")]), Ok(Some(request(1, "8Gi", 0))));
    assert_eq!(
        read(&[("gpu", "1"), ("gpumem", "32")]),
        Ok(Some(GpuRequest::whole(1))),
        "a resource that nobody offers"
    );
    let zero = read(&[("gpu", "1"), ("gpumem-256mi", "0")]).expect_err("no memory");
    assert_eq!(
        zero.to_string(),
        "spec.containers[0].resources.limits[nvidia.com/gpumem-256mi]: 0 is out of range: allowed are 1 and more, in \
         whole units"
    );
}

#[test]
fn zero_limits_are_no_request() {
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[("gpu", "0"), ("gpumem", "0")]), Ok(None));
}

#[test]
fn refusals_name_field_value_and_range() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("gpu", "1"), ("gpumem", "0")],
            "spec.containers[0].resources.limits[nvidia.com/gpumem]: 0 is out of range: allowed are 1 MiB and more, in MiB or with a binary suffix such as 8Gi",
        ),
        (
            &[("gpucores", "101")],
            "spec.containers[0].resources.limits[nvidia.com/gpucores]: 101 is out of range: allowed are 1 to 100 percent of each GPU",
        ),
        (
            &[("gpumem", "8G")],
            "spec.containers[0].resources.limits[nvidia.com/gpumem]: \"8G\" is ambiguous: did you mean \"8Gi\"?",
        ),
        (
            &[("gpumem", "8Gi"), ("gpumem-percentage", "10")],
            "spec.containers[0].resources.limits[nvidia.com/gpumem-percentage]: excludes nvidia.com/gpumem in the same container: set one of them",
        ),
        (
            &[("gpu", "0"), ("gpucores", "10")],
            "spec.containers[0].resources.limits[nvidia.com/gpu]: 0 is out of range: allowed are 1 to 1024 GPUs",
        ),
        (
            &[("gpu", "two")],
            "spec.containers[0].resources.limits[nvidia.com/gpu]: \"two\" is not a quantity: expected a number such as 8, 8192Mi or 8Gi",
        ),
        (&[("gpu", "0.5")], "spec.containers[0].resources.limits[nvidia.com/gpu]: \"0.5\" is not a whole number"),
    ];
    for (limits, message) in cases {
        assert_eq!(read(limits).expect_err("refused").to_string(), *message);
    }
}

#[test]
fn limits_must_be_the_totals_of_the_annotation() {
    let annotation = |request: GpuRequest| RequestAnnotation { containers: [("main".to_owned(), request)].into() };
    let names = ResourceNames::default();
    let requests = |request: GpuRequest, limits: &[(&str, &str)]| {
        pod_requests(&names, Defaults::default(), Some(&annotation(request)), &[container(limits)])
    };
    let two = request(2, "1000000", 30);
    let totals: &[(&str, &str)] = &[("gpu", "2"), ("gpumem", "2M"), ("gpucores", "60")];
    assert_eq!(requests(two, totals).expect("agrees")[0].request, Some(two));
    let error = requests(two, &[("gpu", "2"), ("gpumem", "2M"), ("gpucores", "30")]).expect_err("per card, not totals");
    assert_eq!(
        error.to_string(),
        "spec.containers[0].resources.limits[nvidia.com/gpucores]: 30 disagrees with annotation divvy.dev/request, which requests 60: remove the annotation"
    );
    assert!(requests(two, &[("gpu", "2"), ("gpucores", "60")]).is_err(), "an amount is missing");
    assert!(requests(GpuRequest::whole(2), &[("gpu", "2")]).is_ok(), "whole cards carry no amounts");
    assert!(requests(GpuRequest::whole(2), &[("gpu", "2"), ("gpucores", "200")]).is_ok());
    assert!(requests(GpuRequest::whole(2), &[("gpu", "2"), ("gpucores", "100")]).is_err());
    let stranger =
        pod_requests(&names, Defaults::default(), Some(&RequestAnnotation::default()), &[container(&[("gpu", "1")])]);
    assert!(stranger.is_err(), "a container that the annotation doesn't know");
}

proptest! {
    #[test]
    fn request_round_trips_through_its_totals(cards in 1u32..9, mib in 1u64..1 << 20, percent in 1u32..=100, cores in 0u32..=100, form: bool) {
        let memory = if form { MemoryAmount::Absolute(Memory::mib(mib)) } else { MemoryAmount::Percent(percent) };
        let request = GpuRequest { cards, memory, cores: Cores::new(cores) };
        let totals = request.totals();
        let amounts = [("gpu", totals.count), ("gpumem", totals.memory), ("gpumem-percentage", totals.percent), ("gpucores", totals.cores)];
        let texts: Vec<(&str, String)> = amounts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| (*name, n.to_string())).collect();
        let limits: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let annotation = RequestAnnotation { containers: [("main".to_owned(), request)].into() };
        let read = pod_requests(&ResourceNames::default(), Defaults::default(), Some(&annotation), &[container(&limits)]);
        prop_assert_eq!(read.expect("agrees")[0].request, Some(request));
    }

    #[test]
    fn parsing_limits_never_panics(values in proptest::collection::vec("[0-9.]{0,25}[kMGiemn]{0,2}", 4)) {
        let names = ["gpu", "gpumem", "gpumem-percentage", "gpucores"];
        let limits: Vec<_> = names.iter().zip(&values).map(|(name, value)| (*name, value.as_str())).collect();
        if let Ok(Some(request)) = read(&limits) {
            prop_assert!(request.cards >= 1 && request.cores <= Cores::FULL);
        }
    }
}

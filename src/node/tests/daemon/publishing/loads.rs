//! How busy cards are.

use std::collections::BTreeMap;

use divvy_api::gpunode::GpuNodeStatus;
use fake_apiserver::View;
use fake_nvml::{Call, CardState, NvmlReturn};

use crate::bench::cluster::amounts;
use crate::bench::{Bench, Stderr};

const ASKED: &str = "nvmlDeviceGetUtilizationRates";

fn loads(status: &GpuNodeStatus) -> Vec<Option<u32>> {
    status.cards.iter().map(|card| card.utilization).collect()
}

#[tokio::test]
async fn utilization_is_published_if_enabled_and_rarely_by_itself() {
    let mut bench = Bench::joined().await;
    bench.define();
    bench.change_scenario(|scenario| {
        scenario.cards[0].utilization = 73;
        scenario.errors = BTreeMap::from([(Call::about(ASKED, &scenario.cards[1].uuid), NvmlReturn::NotSupported)]);
    });
    bench.start(Stderr::Log).await;
    bench.ready().await;
    let told = bench.until_told("the cards", |status| !status.cards.is_empty()).await;
    assert_eq!(loads(&told), [None, None], "nobody wants it");
    bench.kill().await;
    bench.set_key("loadAware", "on");
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.until_told("what is measured", |status| loads(status) == [Some(70), None]).await;
    let writes =
        |view: &View<'_>| view.requests().iter().filter(|asked| asked.path.ends_with("/gpunodes/node/status")).count();
    let before = bench.server().read(writes);
    // The second card's first answer is worth a write, unless one was made for the first card's less than a minute ago.
    bench.change_scenario(|scenario| {
        scenario.errors.clear();
        (scenario.cards[0].utilization, scenario.cards[1].utilization) = (100, 45);
    });
    for _ in 0..3 {
        // Each healing of the Node is a round, which looks at the GpuNode too.
        let zero = |node: &mut serde_json::Value| node["status"]["capacity"]["nvidia.com/gpucores"] = "0".into();
        bench.server().edit("Node", "", "node", zero).unwrap();
        bench.until_shown("amounts", |view| (amounts(view)?[2] == 200).then_some(())).await;
    }
    assert!(bench.server().read(writes) <= before + 1, "{}", bench.log());
    bench.change_scenario(|scenario| scenario.cards[0].state = CardState::Lost);
    bench.until_told("that with the loss", |status| loads(status) == [None, Some(50)]).await;
}

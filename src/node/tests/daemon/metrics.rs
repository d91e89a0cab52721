//! Readings of GPUs on `/metrics`, and that all of that page is documented.

use std::time::{Duration, Instant};

use divvy_testkit::metrics;
use fake_nvml::{Call, MigScenario, NvmlReturn, RemappedRows, Scenario, SensorScenario};
use serde_json::json;

use crate::bench::{Bench, Stderr};
use crate::oversubscription::{ASKED, asking, oversubscribing};
use crate::usage::Tenant;

const MIB: u64 = 1 << 20;
/// What only sensors say.
const SENSORS: [&str; 12] = [
    "divvy_gpu_clocks_event_reason",
    "divvy_gpu_ecc_errors",
    "divvy_gpu_energy",
    "divvy_gpu_memory_utilization",
    "divvy_gpu_power_limit",
    "divvy_gpu_power_watts",
    "divvy_gpu_remapped_rows",
    "divvy_gpu_row_remapping_failed",
    "divvy_gpu_row_remapping_pending",
    "divvy_gpu_temperature",
    "divvy_gpu_utilization",
    "divvy_gpu_xid_errors",
];

impl Bench {
    /// The page; empty while nobody listens.
    async fn metrics(&self) -> String {
        self.page("/metrics").await.unwrap_or_default().1
    }

    /// Lines of the sensors' metrics, by the names of these GPUs.
    async fn readings(&self, names: &[(&str, String)]) -> Vec<String> {
        let page = self.metrics().await;
        let lines = page.lines().filter(|line| SENSORS.iter().any(|name| line.starts_with(name)));
        let shortened = |line: &str| names.iter().fold(line.to_owned(), |line, (name, uuid)| line.replace(uuid, name));
        lines.map(shortened).collect()
    }

    async fn until_read(&self, line: &str) {
        self.until_so(line, async || self.metrics().await.contains(line).then_some(())).await;
    }
}

fn names() -> [(&'static str, String); 2] {
    [("GPU-a", Scenario::uuid(0)), ("GPU-b", Scenario::uuid(1))]
}

#[tokio::test]
async fn every_metric_is_documented_with_type_and_labels() {
    let mut bench = oversubscribing(Bench::stopped(json!({})).await).await;
    let uid = bench.run(asking(ASKED)).await;
    let (card, _) = bench.given(&uid)[0].clone();
    let tenant = Tenant::start(&bench.books(&uid), 0);
    bench.set_processes(&uid, &[tenant.pid()]);
    bench.set_on_card(&card, &[(tenant.pid(), 70)]);
    bench.change_scenario(|scenario| scenario.push_xid(Some(&card), 31));
    bench
        .until_so("docs/metrics.md and the page agree", async || {
            let compared = metrics::compare(&bench.metrics().await, "divvy-node");
            // Rows of what is measured from time to time come a little later.
            compared.inspect_err(|difference| std::fs::write(bench.path("difference"), difference).unwrap()).ok()
        })
        .await;
}

#[tokio::test]
async fn sensors_are_served_and_unsupported_ones_left_out() {
    let mut bench = Bench::new().await;
    let on_second = |function| Call::about(function, &Scenario::uuid(1));
    bench.change_scenario(|scenario| {
        let [first, second] = &mut scenario.cards[..] else { panic!("two cards") };
        (first.utilization, first.ecc_uncorrected, first.ecc_corrected) = (37, Some(2), 11);
        first.sensors = SensorScenario {
            temperature: Some(61),
            power: Some(212_250),
            power_limit: Some(300_000),
            energy: Some(3_600_500),
            throttle_reasons: Some(0x4 | 0x20),
            remapped_rows: Some(RemappedRows { corrected: 1, uncorrected: 3, pending: true, failed: false }),
        };
        (second.ecc_uncorrected, second.sensors) = (None, SensorScenario::default());
        scenario.errors.insert(on_second("nvmlDeviceGetUtilizationRates"), NvmlReturn::NotSupported);
    });
    bench.until_read("divvy_gpu_temperature_celsius{uuid=").await;
    bench
        .until_so("both probes", async || {
            let readings = bench.readings(&names()).await;
            (readings.iter().any(|line| line.ends_with(" 61.0")) && !readings.iter().any(|line| line.contains("GPU-b")))
                .then_some(())
        })
        .await;
    insta::assert_snapshot!("readings", bench.readings(&names()).await.join("\n"));
    assert_eq!(bench.page("/readyz").await.unwrap().0, 200);
}

#[tokio::test]
async fn hanging_sensor_takes_its_gpus_readings_off_the_page() {
    let mut bench = Bench::new().await;
    bench.until_read("divvy_gpu_power_watts{").await;
    let call = Call::about("nvmlDeviceGetPowerUsage", &Scenario::uuid(0));
    bench.change_scenario(|scenario| scenario.hangs.extend([(call, 3_600_000)]));
    bench
        .until_so("no readings of the first GPU", async || {
            let readings = bench.readings(&names()).await;
            let of = |name: &str| readings.iter().filter(|line| line.contains(name)).count();
            (of("GPU-a") == 0 && of("GPU-b") > 0).then_some(())
        })
        .await;
    let asked = Instant::now();
    let page = bench.metrics().await;
    assert!(asked.elapsed() < Duration::from_secs(1), "a scrape calls no driver: {:?}", asked.elapsed());
    let health = |uuid| {
        page.lines().any(|line| line.contains(&format!("divvy_gpu_healthy{{uuid=\"{uuid}\"")) && line.ends_with(" 0.0"))
    };
    assert_eq!([0, 1].map(|card| health(Scenario::uuid(card))), [true, false]);
    bench.change_scenario(|scenario| scenario.hangs.clear());
    bench.until_read(&format!("divvy_gpu_power_watts{{uuid=\"{}\"", Scenario::uuid(0))).await;
}

#[tokio::test]
async fn xids_are_counted_by_number_ignored_ones_too() {
    let mut bench = Bench::new().await;
    let line = |xid: u64, count: u64| {
        format!(
            "divvy_gpu_xid_errors_total{{uuid=\"{}\",model=\"NVIDIA L4\",xid=\"{xid}\"}} {count}",
            Scenario::uuid(1)
        )
    };
    for (xid, count) in [(31, 1), (31, 2), (79, 1)] {
        bench.change_scenario(|scenario| scenario.push_xid(Some(&Scenario::uuid(1)), xid));
        bench.until_read(&line(xid, count)).await;
    }
    let page = bench.metrics().await;
    assert_eq!(page.matches("\ndivvy_gpu_xid_errors_total").count(), 2, "{page}");
    bench.ready().await;
    bench.until_read(&line(31, 2)).await;
}

#[tokio::test]
async fn gpu_in_mig_mode_has_readings_its_instances_have_not() {
    let mut bench = Bench::stopped(json!({ "migStrategy": "single", "tier": "accounting" })).await;
    bench.change_scenario(|scenario| {
        scenario.cards[0].mig = Some(MigScenario::cut(&[("2g.8gb", 8192 * MIB), ("1g.4gb", 4096 * MIB)]));
    });
    let gpu = &bench.scenario.cards[0];
    let instances = gpu.mig.as_ref().unwrap().instances.iter().map(|instance| instance.uuid_on(gpu));
    let instances: Vec<String> = instances.collect();
    bench.start(Stderr::Log).await;
    bench.until_read("divvy_gpu_info{uuid=\"MIG-").await;
    bench.change_scenario(|scenario| {
        scenario.push_instance_xid(&Scenario::uuid(0), 2, Some(0), 13);
        scenario.push_instance_xid(&Scenario::uuid(0), 2, None, 31);
        scenario.push_xid(Some(&Scenario::uuid(0)), 43);
    });
    let names = [
        ("GPU-a", Scenario::uuid(0)),
        ("GPU-b", Scenario::uuid(1)),
        ("MIG-a", instances[0].clone()),
        ("MIG-b", instances[1].clone()),
    ];
    bench.until_read("xid=\"43\"").await;
    let readings = bench.readings(&names).await;
    let of = |uuid: &str| readings.iter().filter(|line| line.contains(uuid)).map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("MIG-a"), [""; 0]);
    let xid = |uuid: &str, model: &str, xid: u64| {
        format!("divvy_gpu_xid_errors_total{{uuid=\"{uuid}\",model=\"{model}\",xid=\"{xid}\"}} 1.0")
    };
    assert_eq!(of("MIG-b"), [xid("MIG-b", "NVIDIA L4 MIG 1g.4gb", 13)]);
    let own = of("GPU-a");
    assert!(
        own.contains(&&*xid("GPU-a", "NVIDIA L4", 31)) && own.contains(&&*xid("GPU-a", "NVIDIA L4", 43)),
        "{own:#?}"
    );
    assert!(own.iter().any(|line| line.starts_with("divvy_gpu_temperature_celsius")), "{own:#?}");
    assert!(!own.iter().any(|line| line.starts_with("divvy_gpu_utilization")), "NVML has none in MIG mode: {own:#?}");
    let page = bench.metrics().await;
    let info = page.lines().find(|line| line.starts_with("divvy_gpu_info") && line.contains(&instances[1])).unwrap();
    assert!(info.contains(&format!("parent_uuid=\"{}\"", Scenario::uuid(0))), "{info}");
    assert!(
        page.lines().any(|line| line.starts_with("divvy_gpu_memory_bytes") && line.contains(&instances[1])),
        "{page}"
    );
}

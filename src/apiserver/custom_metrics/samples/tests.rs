use proptest::prelude::*;

use super::super::page::Reader;
use super::*;
use crate::objects::PodName;

const LABELS: &str = r#"namespace="n",pod="p",container="c",uuid="GPU-a""#;

fn page(series: &[(&str, f64)]) -> Page {
    let mut reader = Reader::default();
    for (name, value) in series {
        reader.push(format!("divvy_{name}{{{LABELS}}} {value}\n").as_bytes()).unwrap();
    }
    reader.push(b"# EOF\n").unwrap();
    reader.finish().unwrap()
}

fn take(samples: &mut Samples, series: &[(&str, f64)], at: Instant) {
    samples.take(page(series), at, SystemTime::UNIX_EPOCH);
}

fn usage(samples: &Samples, now: Instant) -> Usage {
    let pod = PodName { namespace: "n".into(), pod: "p".into() };
    samples.usage(&Holder { pod, container: "c".to_owned(), card: "GPU-a".parse().unwrap() }, now)
}

/// Used and allocated.
fn pair(measured: Option<Measured>) -> Option<(f64, f64)> {
    measured.map(|of| (of.used, of.share))
}

#[test]
fn compute_is_the_rate_between_two_pages() {
    let (start, mut samples) = (Instant::now(), Samples::default());
    let busy = |seconds| [("container_busy_seconds_total", seconds), ("share_compute_ratio", 0.5)];
    take(&mut samples, &busy(100.0), start);
    assert_eq!(usage(&samples, start), Usage::default());
    let next = start + Duration::from_secs(15);
    take(&mut samples, &busy(104.5), next);
    let compute = usage(&samples, next).compute.unwrap();
    assert_eq!((compute.used, compute.share, compute.window), (0.3, 0.5, Duration::from_secs(15)));
    // Two processes that take turns count the time of both.
    take(&mut samples, &busy(204.5), next + Duration::from_secs(10));
    assert_eq!(pair(usage(&samples, next + Duration::from_secs(10)).compute), Some((1.0, 0.5)));
    // The daemon counts from its start.
    take(&mut samples, &busy(1.0), next + Duration::from_secs(20));
    assert_eq!(usage(&samples, next + Duration::from_secs(20)).compute, None);
    let late = next + Duration::from_secs(20) + LONGEST_WINDOW + Duration::from_secs(1);
    take(&mut samples, &busy(2.0), late);
    assert_eq!(usage(&samples, late).compute, None);
}

#[test]
fn memory_is_libdivvys_figure_or_the_drivers() {
    let (now, limit) = (Instant::now(), ("container_memory_limit_bytes", 1000.0));
    let memory = |series: &[(&str, f64)]| {
        let mut samples = Samples::default();
        take(&mut samples, series, now);
        pair(usage(&samples, now).memory)
    };
    let [used, overhead, driver] = ["used", "overhead", "driver"].map(|of| format!("container_memory_{of}_bytes"));
    assert_eq!(memory(&[limit, (&used, 100.0), (&overhead, 20.0), (&driver, 150.0)]), Some((120.0, 1000.0)));
    assert_eq!(memory(&[limit, (&used, 100.0)]), Some((100.0, 1000.0)));
    assert_eq!(memory(&[limit, (&driver, 150.0)]), Some((150.0, 1000.0)));
    assert_eq!(memory(&[limit]), None);
    assert_eq!(memory(&[(&used, 100.0)]), None);
}

#[test]
fn old_page_is_not_served() {
    let (start, mut samples) = (Instant::now(), Samples::default());
    let series = [("container_memory_limit_bytes", 2.0), ("container_memory_used_bytes", 1.0)];
    take(&mut samples, &series, start);
    assert_eq!(pair(usage(&samples, start + OLDEST).memory), Some((1.0, 2.0)));
    assert_eq!(usage(&samples, start + OLDEST + Duration::from_millis(1)), Usage::default());
}

#[test]
fn sum_is_of_what_is_known() {
    let measured = |used, share, age| Measured {
        used,
        share,
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(age),
        window: Duration::from_secs(age),
    };
    let one = Usage { memory: Some(measured(1.0, 4.0, 5)), compute: None };
    let other = Usage { memory: Some(measured(2.0, 4.0, 3)), compute: Some(measured(0.5, 1.0, 3)) };
    let both = Usage {
        memory: Some(Measured { window: Duration::from_secs(5), ..measured(3.0, 8.0, 3) }),
        compute: Some(measured(0.5, 1.0, 3)),
    };
    assert_eq!((one.plus(other), other.plus(one)), (both, both));
    assert_eq!(Usage::default().plus(one), one);
}

proptest! {
    #[test]
    fn compute_is_never_below_nothing_nor_above_a_gpu(
        pages in prop::collection::vec((0.0..1e9f64, 0u64..200_000), 1..6),
        later in 0u64..60_000,
    ) {
        let (mut at, mut samples) = (Instant::now(), Samples::default());
        for (busy, millis) in pages {
            at += Duration::from_millis(millis);
            take(&mut samples, &[("container_busy_seconds_total", busy), ("share_compute_ratio", 0.5)], at);
        }
        if let Some(compute) = usage(&samples, at + Duration::from_millis(later)).compute {
            prop_assert!((0.0..=1.0).contains(&compute.used), "{}", compute.used);
            prop_assert!(compute.window <= LONGEST_WINDOW && later <= 30_000);
        }
    }
}

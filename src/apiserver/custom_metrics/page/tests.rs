use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const PAGE: &str = r#"# HELP divvy_container_memory_limit_bytes GPU memory limit of the container.
# TYPE divvy_container_memory_limit_bytes gauge
divvy_container_memory_limit_bytes{namespace="team",pod="serve-0",container="main",uuid="GPU-a"} 8589934592.0
divvy_container_memory_used_bytes{namespace="team",pod="serve-0",container="main",uuid="GPU-a"} 3221225472.0 1767000000
divvy_container_memory_overhead_bytes{uuid="GPU-a",container="main",pod="serve-0",namespace="team",later="a}\"b\\"} 1024.0
divvy_container_memory_driver_bytes{namespace="team",pod="serve-0",container="side",uuid="GPU-a"} 1.5e3
divvy_share_compute_ratio{namespace="team",pod="serve-0",container="main",uuid="GPU-a"} 0.3
divvy_share_compute_ratio{namespace="other",pod="serve-0",container="main",uuid="GPU-b"} 1.0
divvy_container_busy_seconds_total{namespace="team",pod="serve-0",container="main",uuid="GPU-a"} 12.25 # {trace="x"} 1.0
divvy_gpu_healthy{uuid="GPU-a",model="NVIDIA {H100}"} 1.0
divvy_registered 1.0
# EOF
"#;

/// Read in parts of this size.
fn read(page: &[u8], part: usize) -> Result<Page, PageError> {
    let mut reader = Reader::default();
    page.chunks(part).try_for_each(|part| reader.push(part))?;
    reader.finish()
}

fn figures(page: &Page, namespace: &str, container: &str, card: &str) -> Option<Figures> {
    let pod = PodName { namespace: namespace.into(), pod: "serve-0".into() };
    page.get(&Holder { pod, container: container.to_owned(), card: card.parse().unwrap() }).copied()
}

#[test]
fn figures_are_those_of_each_containers_gpu() {
    let page = read(PAGE.as_bytes(), 4096).unwrap();
    let main = Figures {
        memory_limit: Some(8_589_934_592.0),
        memory_used: Some(3_221_225_472.0),
        memory_overhead: Some(1024.0),
        memory_driver: None,
        compute_share: Some(0.3),
        busy_seconds: Some(12.25),
    };
    assert_eq!(figures(&page, "team", "main", "GPU-a"), Some(main));
    let side = Figures { memory_driver: Some(1500.0), ..Figures::default() };
    assert_eq!(figures(&page, "team", "side", "GPU-a"), Some(side));
    assert_eq!(figures(&page, "team", "main", "GPU-b"), None);
    let other = Figures { compute_share: Some(1.0), ..Figures::default() };
    assert_eq!(figures(&page, "other", "main", "GPU-b"), Some(other));
}

#[test]
fn invalid_page_is_refused_with_the_reason() {
    let labels = r#"namespace="n",pod="p",container="c",uuid="GPU-a""#;
    let line = |rest: &str| read(format!("divvy_container_memory_used_bytes{{{rest}\n# EOF\n").as_bytes(), 64);
    for invalid in [
        format!("{labels}}} NaN"),
        format!("{labels}}} -1"),
        format!("{labels}}} +Inf"),
        format!("{labels}}}1"),
        format!("{labels}}}"),
        format!("{labels} 1"),
        format!("{labels}x=\"y\"}} 1"),
        r#"namespace="n",pod="p",uuid="GPU-a"} 1"#.to_owned(),
        r#"namespace="n",pod="p",container="c",uuid="0"} 1"#.to_owned(),
        r#"namespace="n\x",pod="p",container="c",uuid="GPU-a"} 1"#.to_owned(),
        r#"namespace="n"#.to_owned(),
    ] {
        let refused = line(&invalid).expect_err(&invalid);
        assert!(matches!(&refused, PageError::Series(text) if text.chars().count() <= SHOWN), "{invalid}: {refused}");
    }
    assert!(line(&format!("{labels}}} 1")).is_ok());
    assert_eq!(read(PAGE.trim_end_matches("# EOF\n").as_bytes(), 64), Err(PageError::CutShort));
    assert_eq!(read(b"", 64), Err(PageError::CutShort));
    assert_eq!(read(b"<html>\n# EOF\n\n", 64), Err(PageError::CutShort));
    assert_eq!(read(b"a\xff\n# EOF\n", 64), Err(PageError::NotText));
    assert_eq!(read(&b"x".repeat(LONGEST_LINE + 1), 4096), Err(PageError::LongLine));
    assert_eq!(read(&b"x\n".repeat(LONGEST_PAGE / 2 + 1), 1 << 20), Err(PageError::LongPage));
    let mut many = String::new();
    for number in 0..=MOST_SHARES {
        let labels = labels.replace("\"p\"", &format!("\"p{number}\""));
        writeln!(many, "divvy_share_compute_ratio{{{labels}}} 1").unwrap();
    }
    assert_eq!(read(many.as_bytes(), 4096), Err(PageError::ManyShares));
}

proptest! {
    #[test]
    fn any_bytes_in_any_parts_end_without_panic(bytes: Vec<u8>, part in 1usize..64) {
        drop(read(&bytes, part));
    }

    #[test]
    fn damaged_page_ends_without_panic_whatever_its_parts(
        changes in prop::collection::vec((0..PAGE.len(), prop::sample::select(b"\\\"{},=\n# 1ax".as_slice())), 0..8),
        part in 1usize..64,
    ) {
        let mut page = PAGE.as_bytes().to_vec();
        for (at, byte) in changes {
            page[at] = byte;
        }
        prop_assert_eq!(read(&page, part), read(&page, page.len()));
    }

    #[test]
    fn labels_are_read_as_they_were_escaped(namespace in "\\PC*|[\\\\\"\n,}{= ]*", value in 0.0..1e18f64) {
        let escaped = namespace.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        prop_assume!(escaped.len() < 4096);
        let line = format!(
            "divvy_container_busy_seconds_total{{namespace=\"{escaped}\",pod=\"serve-0\",container=\"c\",uuid=\"GPU-a\"}} {value}\n# EOF\n"
        );
        let page = read(line.as_bytes(), 7).unwrap();
        prop_assert_eq!(figures(&page, &namespace, "c", "GPU-a").and_then(|of| of.busy_seconds), Some(value));
    }
}

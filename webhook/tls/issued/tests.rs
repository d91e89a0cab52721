use super::*;

fn service(name: &str) -> Service {
    Service { name: name.to_owned(), namespace: "divvy-system".to_owned(), client: "divvy-scheduler" }
}

fn divvy() -> Service {
    service("divvy-webhook")
}

/// Days after some day in 2026.
fn day(days: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000) + DAY * u32::try_from(days).unwrap()
}

type Data = BTreeMap<String, ByteString>;

fn fresh(now: SystemTime) -> Data {
    decide(None, &divvy(), now).unwrap().wanted.unwrap().0
}

/// Why a Secret is to be replaced, if it is.
fn wants(data: &Data, service: &Service, now: SystemTime) -> Option<String> {
    settled(data, service, now).1.map(|(_, why)| why)
}

/// What a Secret is good for, and what is to replace it.
fn settled(data: &Data, service: &Service, now: SystemTime) -> (Option<Credentials>, Option<(Data, String)>) {
    let Decision { usable, wanted } = decide(Some(data), service, now).unwrap();
    (usable, wanted)
}

fn shown(credentials: &Credentials) -> CertificateDer<'static> {
    credentials.served().cert[0].clone()
}

#[test]
fn issued_certificate_covers_every_service_name() {
    let data = fresh(day(0));
    let (usable, wanted) = settled(&data, &divvy(), day(0));
    assert!(wanted.is_none());
    let usable = usable.unwrap();
    let names = ["", ".divvy-system", ".divvy-system.svc", ".divvy-system.svc.cluster.local"];
    let names = names.map(|rest| format!("divvy-webhook{rest}"));
    for (now, holds) in [(day(0) - BEHIND * 2, false), (day(0) - BEHIND, true), (day(29), true), (day(30), false)] {
        assert_eq!(usable.check(&names, now).is_ok(), holds);
    }
    usable.check(&service("other").names(), day(0)).unwrap_err();
    assert_eq!(dates(&shown(&usable)).map(|(_, until)| until), Some(day(30) - BEHIND));
    assert_eq!(data.keys().collect::<Vec<_>>(), ["ca.crt", "ca.key", "client.crt", "client.key", "tls.crt", "tls.key"]);
}

#[test]
fn certificate_renews_with_a_third_of_its_lifetime_left() {
    let data = fresh(day(0));
    assert_eq!(wants(&data, &divvy(), day(19)), None);
    let (usable, wanted) = settled(&data, &divvy(), day(20));
    let (renewed, why) = wanted.unwrap();
    assert_eq!(why, "the serving certificate has a third of its lifetime left");
    assert_eq!((&renewed["ca.crt"], &renewed["ca.key"]), (&data["ca.crt"], &data["ca.key"]));
    let (next, wanted) = settled(&renewed, &divvy(), day(20));
    assert!(wanted.is_none());
    let (usable, next) = (usable.unwrap(), next.unwrap());
    assert_ne!(shown(&usable), shown(&next));
    usable.verify(&shown(&next), day(20)).unwrap();
}

#[test]
fn unusable_secret_is_reissued_with_a_reason() {
    let good = fresh(day(0));
    let other = fresh(day(0));
    let with = |key: &str, value: &[u8]| {
        let mut data = good.clone();
        data.insert(key.to_owned(), ByteString(value.to_vec()));
        data
    };
    let without = |key: &str| {
        let mut data = good.clone();
        data.remove(key);
        data
    };
    let bad = [
        Data::new(),
        without("ca.key"),
        with("tls.crt", b""),
        with("tls.crt", b"rubbish"),
        with("tls.crt", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        with("tls.key", b"\xff\xfe"),
        with("tls.key", b"rubbish"),
        with("tls.key", &other["tls.key"].0),
        with("ca.crt", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        with("ca.crt", &other["ca.crt"].0),
        with("ca.key", b"rubbish"),
        with("ca.key", &other["ca.key"].0),
    ];
    let mut said = String::new();
    for data in bad {
        let (usable, wanted) = settled(&data, &divvy(), day(1));
        let (anew, why) = wanted.unwrap();
        assert!(usable.is_none(), "{why}");
        assert_eq!(wants(&anew, &divvy(), day(1)), None, "{why}");
        said += &(why + "\n");
    }
    insta::assert_snapshot!(said, @r"
    tls.crt is missing or empty
    ca.key is missing or empty
    tls.crt is missing or empty
    tls.crt is missing or empty
    certificate and key: invalid peer certificate: BadEncoding
    tls.key can't be read: invalid utf-8 sequence of 1 bytes from index 0
    tls.key can't be read: no items found
    certificate and key: keys may not be consistent: KeyMismatch
    ca.crt can't be read: Parsing Error: Der(UnexpectedTag { expected: Some(Tag(16)), actual: Tag(0) })
    ca.key is not the key of the first certificate in ca.crt
    ca.key can't be read: PEM error: malformedframing
    ca.key is not the key of the first certificate in ca.crt
    ");
}

#[test]
fn foreign_or_misnamed_certificate_is_reissued() {
    let (good, other) = (fresh(day(0)), fresh(day(0)));
    let mut foreign = good.clone();
    for key in ["tls.crt", "tls.key"] {
        foreign.insert(key.to_owned(), other[key].clone());
    }
    for (data, service, now) in
        [(&foreign, divvy(), day(0)), (&good, service("gpu"), day(0)), (&good, divvy(), day(40))]
    {
        let (mended, why) = settled(data, &service, now).1.unwrap();
        assert!(why.starts_with("the serving certificate isn't valid: "), "{why}");
        assert_eq!(mended["ca.crt"], good["ca.crt"]);
        assert_eq!(wants(&mended, &service, now), None, "{why}");
    }
}

#[test]
fn unusable_authority_is_replaced() {
    let powerless = params("no authority", day(0), AUTHORITY_LIFE);
    let mut for_others = params("another's", day(0), AUTHORITY_LIFE);
    for_others.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let names = vec![rcgen::GeneralSubtree::DnsName("example.com".to_owned())];
    for_others.name_constraints =
        Some(rcgen::NameConstraints { permitted_subtrees: names, excluded_subtrees: Vec::new() });
    for (authority, because) in [
        (powerless, "the first certificate in ca.crt may not sign others"),
        (for_others, "the serving certificate isn't valid: "),
    ] {
        let (key, mut data) = (KeyPair::generate().unwrap(), fresh(day(0)));
        data.insert("ca.crt".to_owned(), ByteString(authority.self_signed(&key).unwrap().pem().into_bytes()));
        data.insert("ca.key".to_owned(), ByteString(key.serialize_pem().into_bytes()));
        let (anew, why) = settled(&data, &divvy(), day(0)).1.unwrap();
        assert!(why.starts_with(because), "{why}");
        assert!(anew["ca.crt"] != data["ca.crt"], "{why}");
        assert_eq!(wants(&anew, &divvy(), day(0)), None, "{why}");
    }
}

#[test]
fn clock_jumps_reissue_valid_certificates() {
    let data = fresh(day(1000));
    for now in [day(0), day(900), day(5000)] {
        let (anew, _) = settled(&data, &divvy(), now).1.unwrap();
        assert_eq!(wants(&anew, &divvy(), now), None);
    }
    assert_eq!(wants(&data, &divvy(), day(1000) - BEHIND / 2), None, "a clock that is a little behind");
    let beginning = fresh(SystemTime::UNIX_EPOCH);
    assert_eq!(wants(&beginning, &divvy(), SystemTime::UNIX_EPOCH + BEHIND), None);
}

#[test]
fn bundle_of_an_hour_ago_verifies_for_sixteen_years() {
    let (mut data, mut now) = (fresh(day(0)), day(0));
    let mut known = settled(&data, &divvy(), now).0.unwrap();
    let (mut authorities, mut longest) = (vec![data["ca.key"].clone()], 0);
    for step in 0..5_000 {
        now += [DAY * 5, ANNOUNCED, DAY * 2, ANNOUNCED][step % 4];
        let (usable, wanted) = settled(&data, &divvy(), now);
        let usable = usable.expect("never anew");
        known.verify(&shown(&usable), now).unwrap();
        usable.check(&divvy().names(), now).unwrap();
        longest = longest.max(usable.bundle().len());
        known = usable;
        if let Some((replacement, _)) = wanted {
            data = replacement;
        }
        if authorities.last() != Some(&data["ca.key"]) {
            authorities.push(data["ca.key"].clone());
        }
        if now > day(16 * 365) {
            break;
        }
    }
    assert!(now > day(16 * 365));
    assert_eq!(authorities.len(), 3);
    let alone = settled(&fresh(now), &divvy(), now).0.unwrap().bundle().len();
    assert!(longest <= 2 * alone + 8, "at most two authorities at one time");
    assert!(known.bundle().len() <= alone + 8, "the old one is gone");
}

fn client(data: &Data) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&data["client.crt"].0).unwrap()
}

#[test]
fn scheduler_certificate_lasts_a_year_and_renews_in_time() {
    let data = fresh(day(0));
    let usable = settled(&data, &divvy(), day(0)).0.unwrap();
    let holds = |days| usable.verify_client(&client(&data), &[], unix(day(days))).is_ok();
    assert_eq!([holds(0), holds(364), holds(365)], [true, true, false]);
    usable.verify_client(&shown(&usable), &[], unix(day(0))).expect_err("that certificate is a server's");
    usable.verify(&client(&data), day(0)).expect_err("this certificate is a client's");
    let (renewed, why) = settled(&data, &divvy(), day(243) + DAY).1.unwrap();
    // The serving certificate goes first: it is a month old at most.
    assert!(why.starts_with("the serving certificate isn't valid: "), "{why}");
    assert_eq!(client(&renewed), client(&data));
    let (renewed, why) = settled(&renewed, &divvy(), day(243) + DAY).1.unwrap();
    assert_eq!(why, "the certificate of divvy-scheduler has a third of its lifetime left");
    assert_ne!(client(&renewed), client(&data));
}

#[test]
fn bad_scheduler_certificate_is_issued_without_touching_others() {
    let (good, other) = (fresh(day(0)), fresh(day(0)));
    let without = |key: &str| {
        let mut data = good.clone();
        data.remove(key);
        data
    };
    let mut foreign = good.clone();
    for key in ["client.crt", "client.key"] {
        foreign.insert(key.to_owned(), other[key].clone());
    }
    let none = "there was no certificate for divvy-scheduler";
    for (data, because) in [
        (without("client.crt"), none),
        (without("client.key"), none),
        (foreign, "the certificate of divvy-scheduler isn't valid: invalid peer certificate: BadSignature"),
    ] {
        let (usable, wanted) = settled(&data, &divvy(), day(0));
        let (mended, why) = wanted.unwrap();
        assert_eq!((usable.is_some(), &*why), (true, because));
        for key in ["tls.crt", "tls.key", "ca.crt", "ca.key"] {
            assert_eq!(mended[key], good[key], "{key}");
        }
        assert_eq!(wants(&mended, &divvy(), day(0)), None);
    }
}

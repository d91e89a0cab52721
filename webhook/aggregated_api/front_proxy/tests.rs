use std::time::{SystemTime, UNIX_EPOCH};

use fake_apiserver::pki::{self, Authority};
use rcgen::{ExtendedKeyUsagePurpose, KeyPair};

use super::*;

fn client(authority: &Authority, name: &str, usage: ExtendedKeyUsagePurpose) -> CertificateDer<'static> {
    let mut params = pki::certificate(name, &[]).unwrap();
    params.extended_key_usages = vec![usage];
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.signed_by(&KeyPair::generate().unwrap(), authority).unwrap().der().clone()
}

fn data(authorities: &[&Authority], names: &str) -> BTreeMap<String, String> {
    let bundle = authorities.iter().map(|authority| authority.pem()).collect();
    [(AUTHORITIES.to_owned(), bundle), (NAMES.to_owned(), names.to_owned())].into()
}

fn check(proxy: &FrontProxy, certificate: &CertificateDer<'_>) -> Result<(), String> {
    let now = UnixTime::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
    proxy.check(certificate, &[], now).map(drop).map_err(|error| error.to_string())
}

#[test]
fn certificate_needs_authority_allowed_name_and_client_usage() {
    let (ours, other) = (pki::authority("front-proxy").unwrap(), pki::authority("front-proxy").unwrap());
    let for_clients = ExtendedKeyUsagePurpose::ClientAuth;
    let good = client(&ours, "front-proxy-client", for_clients.clone());
    let proxy = FrontProxy::default();
    assert_eq!(check(&proxy, &good).unwrap_err(), "unexpected error: the front proxy isn't known yet");
    assert!(proxy.set(RequestHeader::read(&data(&[&ours], r#"["front-proxy-client"]"#)).unwrap()));
    check(&proxy, &good).unwrap();
    for (bad, why) in [
        (client(&ours, "kubelet", for_clients.clone()), "ApplicationVerificationFailure"),
        (client(&other, "front-proxy-client", for_clients), "BadSignature"),
        (client(&ours, "front-proxy-client", ExtendedKeyUsagePurpose::ServerAuth), "client authentication"),
    ] {
        let refused = check(&proxy, &bad).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn empty_list_of_names_allows_any() {
    let ours = pki::authority("front-proxy").unwrap();
    let proxy = FrontProxy::default();
    for names in ["[]", r#"["a"]"#] {
        proxy.set(RequestHeader::read(&data(&[&ours], names)).unwrap());
        let kubelet = client(&ours, "kubelet", ExtendedKeyUsagePurpose::ClientAuth);
        assert_eq!(check(&proxy, &kubelet).is_ok(), names == "[]");
    }
}

#[test]
fn bundle_of_two_authorities_accepts_both_until_one_leaves() {
    let (old, new) = (pki::authority("front-proxy").unwrap(), pki::authority("front-proxy").unwrap());
    let certificate = |authority| client(authority, "front-proxy-client", ExtendedKeyUsagePurpose::ClientAuth);
    let proxy = FrontProxy::default();
    assert!(proxy.set(RequestHeader::read(&data(&[&old, &new], "[]")).unwrap()));
    assert!(!proxy.set(RequestHeader::read(&data(&[&old, &new], "[]")).unwrap()), "no change");
    assert!([&old, &new].iter().all(|authority| check(&proxy, &certificate(authority)).is_ok()));
    assert!(proxy.set(RequestHeader::read(&data(&[&new], "[]")).unwrap()));
    assert!(check(&proxy, &certificate(&old)).is_err());
    check(&proxy, &certificate(&new)).unwrap();
}

#[test]
fn unreadable_config_map_is_refused_with_a_reason() {
    let ours = pki::authority("front-proxy").unwrap();
    let mut garbled = data(&[&ours], "[]");
    garbled.insert(AUTHORITIES.to_owned(), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned());
    let said = [BTreeMap::new(), data(&[], "[]"), garbled, data(&[&ours], "front-proxy-client")];
    let said = said.map(|data| RequestHeader::read(&data).unwrap_err().to_string()).join("\n");
    insta::assert_snapshot!(said, @"
    requestheader-client-ca-file is missing: kube-apiserver runs without --requestheader-client-ca-file, and aggregates no APIs
    requestheader-client-ca-file: no root trust anchors were provided
    requestheader-client-ca-file: invalid peer certificate: BadEncoding
    requestheader-allowed-names: expected ident at line 1 column 2
    ");
}

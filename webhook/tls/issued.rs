//! Certificates of our own making, as one Secret keeps them. Pure: what to do is decided from the Secret, the names and the
//! time.
//!
//! The authority signs the certificate that we serve, and the one by which our client, the scheduler, is known.
//! They tell each other apart by their extended key usage. The authority's key lies in the same Secret as the certificates that
//! it signed. One object is written in one piece: nobody ever sees a certificate without the authority that speaks for it. Who
//! can read the Secret can answer as our Service anyway, and nothing but the objects that send the API server to us, the
//! client and we trust the authority.
//!
//! A new authority is announced before it signs: it joins the bundle at once, and signs from the next certificate on. The old
//! one leaves the bundle when nothing that it signed can be valid any more.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Service;
use super::credentials::{Credentials, Unusable, dates, pem, unix};

/// Keys of the Secret. The first two are those of the type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CLIENT: &str = "client.crt";
const CLIENT_KEY: &str = "client.key";

const DAY: Duration = Duration::from_secs(86_400);
/// How long an authority lasts.
const AUTHORITY_LIFE: Duration = DAY.saturating_mul(3650);
/// How long a serving certificate lasts.
const CERTIFICATE_LIFE: Duration = DAY.saturating_mul(30);
/// How long the client's certificate lasts: as long as those that kubeadm issues, because it may be copied by hand.
const CLIENT_LIFE: Duration = DAY.saturating_mul(365);
/// Validity begins so long ago, for clients whose clocks are behind.
const BEHIND: Duration = Duration::from_secs(3600);
/// An authority is known for so long before it signs: time for every bundle to hold it.
const ANNOUNCED: Duration = Duration::from_secs(3600);

/// The Secret, understood.
pub(super) struct Issued {
    certificate: CertificateDer<'static>,
    key: String,
    /// The one that signs comes first.
    authorities: Vec<CertificateDer<'static>>,
    authority_key: String,
    /// The client's certificate and its key, PEM; an older version of the Secret has none.
    client: Option<(CertificateDer<'static>, String)>,
}

/// What the Secret should hold, and what of it can be served now.
pub(super) struct Decision {
    /// What the Secret holds, if it is of use.
    pub(super) usable: Option<Credentials>,
    /// What it should hold instead, and why.
    pub(super) wanted: Option<(BTreeMap<String, ByteString>, String)>,
}

/// Why a Secret says nothing.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("{0} is missing or empty")]
    Missing(&'static str),
    #[error("{0} can't be read: {1}")]
    Garbled(&'static str, String),
    #[error("{AUTHORITY_KEY} is not the key of the first certificate in {AUTHORITIES}")]
    Stranger,
    #[error("the first certificate in {AUTHORITIES} may not sign others")]
    Powerless,
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// What has come to its end, and why.
#[derive(Debug)]
enum Due {
    Certificate(String),
    Authority(String),
    Client(String),
}

/// Decides what becomes of a Secret. `None`: there is none.
pub(super) fn decide(
    data: Option<&BTreeMap<String, ByteString>>,
    service: &Service,
    now: SystemTime,
) -> Result<Decision, rcgen::Error> {
    let anew = |why: String| {
        let data = Issued::new(service, now)?.write();
        Ok(Decision { usable: None, wanted: Some((data, why)) })
    };
    let Some(data) = data else { return anew("there was none".to_owned()) };
    let issued = match Issued::read(data) {
        Ok(issued) => issued,
        Err(why) => return anew(why.to_string()),
    };
    let Some(signs) = issued.authorities.first().and_then(dates) else {
        return anew(Unreadable::Missing(AUTHORITIES).to_string());
    };
    if now < signs.0 || signs.1 <= now {
        return anew("its CA certificate isn't valid at this time".to_owned());
    }
    let usable = match issued.credentials() {
        Ok(usable) => usable,
        Err(why) => return anew(why.to_string()),
    };
    let wanted = match due(&usable, &issued, signs, service, now) {
        None => None,
        Some(Due::Authority(why)) => Some((issued.with_new_authority(service, now)?.write(), why)),
        Some(Due::Client(why)) => Some((issued.with_new_client(service, now)?.write(), why)),
        Some(Due::Certificate(why)) => {
            let renewed = issued.with_new_certificate(signs.0, service, now)?;
            // An authority that somebody else made may sign what nobody believes.
            match renewed.credentials().map(|renewed| renewed.check(&service.names(), now)) {
                Ok(Ok(())) => Some((renewed.write(), why)),
                _ => return anew(why),
            }
        }
    };
    Ok(Decision { usable: Some(usable), wanted })
}

fn due(
    served: &Credentials,
    issued: &Issued,
    authority: (SystemTime, SystemTime),
    service: &Service,
    now: SystemTime,
) -> Option<Due> {
    if let Err(error) = served.check(&service.names(), now) {
        return Some(Due::Certificate(format!("the serving certificate isn't valid: {error}")));
    }
    if is_old(authority, now) {
        return Some(Due::Authority("the CA certificate has a third of its lifetime left".to_owned()));
    }
    let announced = authority.0 + BEHIND + ANNOUNCED <= now;
    if announced && dates(&issued.certificate).is_none_or(|dates| is_old(dates, now)) {
        return Some(Due::Certificate("the serving certificate has a third of its lifetime left".to_owned()));
    }
    let name = service.client;
    let Some((client, _)) = &issued.client else {
        return Some(Due::Client(format!("there was no certificate for {name}")));
    };
    if let Err(error) = served.verify_client(client, &[], unix(now)) {
        return Some(Due::Client(format!("the certificate of {name} isn't valid: {error}")));
    }
    (announced && dates(client).is_none_or(|dates| is_old(dates, now)))
        .then(|| Due::Client(format!("the certificate of {name} has a third of its lifetime left")))
}

/// Whether two thirds of a life are over.
fn is_old((from, until): (SystemTime, SystemTime), now: SystemTime) -> bool {
    let life = until.duration_since(from).unwrap_or_default();
    now >= from + life * 2 / 3
}

// === impl Issued ===

impl Issued {
    fn new(service: &Service, now: SystemTime) -> Result<Self, rcgen::Error> {
        let (authority, authority_key) = new_authority(service, now)?;
        let (certificate, key) = new_certificate(&authority, &authority_key, service, now)?;
        Self { certificate, key, authorities: vec![authority], authority_key, client: None }
            .with_new_client(service, now)
    }

    fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, Unreadable> {
        let text = |name: &'static str| {
            let text = data.get(name).filter(|text| !text.0.is_empty()).ok_or(Unreadable::Missing(name))?;
            std::str::from_utf8(&text.0).map_err(|error| Unreadable::Garbled(name, error.to_string()))
        };
        let certificates = |name: &'static str| {
            let read = CertificateDer::pem_slice_iter(text(name)?.as_bytes()).collect::<Result<Vec<_>, _>>();
            let read = read.map_err(|error| Unreadable::Garbled(name, error.to_string()))?;
            if read.is_empty() { Err(Unreadable::Missing(name)) } else { Ok(read) }
        };
        let read = Self {
            certificate: certificates(CERTIFICATE)?.swap_remove(0),
            key: text(KEY)?.to_owned(),
            authorities: certificates(AUTHORITIES)?,
            authority_key: text(AUTHORITY_KEY)?.to_owned(),
            client: certificates(CLIENT)
                .ok()
                .zip(text(CLIENT_KEY).ok())
                .map(|(mut chain, key)| (chain.swap_remove(0), key.to_owned())),
        };
        let garbled = |name, error: &dyn ToString| Unreadable::Garbled(name, error.to_string());
        let key = KeyPair::from_pem(&read.authority_key).map_err(|error| garbled(AUTHORITY_KEY, &error))?;
        let authority =
            X509Certificate::from_der(&read.authorities[0]).map_err(|error| garbled(AUTHORITIES, &error))?.1;
        if authority.public_key().raw != key.subject_public_key_info() {
            return Err(Unreadable::Stranger);
        }
        // Some clients ask this of whom they are told to believe, others don't.
        if authority.is_ca() { Ok(read) } else { Err(Unreadable::Powerless) }
    }

    fn write(&self) -> BTreeMap<String, ByteString> {
        let texts = [
            (CERTIFICATE, pem(std::slice::from_ref(&self.certificate))),
            (KEY, self.key.clone()),
            (AUTHORITIES, pem(&self.authorities)),
            (AUTHORITY_KEY, self.authority_key.clone()),
        ];
        let client = self.client.iter();
        let client = client.flat_map(|(certificate, key)| {
            [(CLIENT, pem(std::slice::from_ref(certificate))), (CLIENT_KEY, key.clone())]
        });
        texts.into_iter().chain(client).map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))).collect()
    }

    fn credentials(&self) -> Result<Credentials, Unreadable> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        let key = key.map_err(|error| Unreadable::Garbled(KEY, error.to_string()))?;
        Ok(Credentials::new(vec![self.certificate.clone()], key, self.authorities.clone())?)
    }

    /// The certificate stays: what is shown must not change before all bundles know the new authority.
    fn with_new_authority(self, service: &Service, now: SystemTime) -> Result<Self, rcgen::Error> {
        let (authority, authority_key) = new_authority(service, now)?;
        // Of two that were replaced, only the younger can have signed what is shown.
        let authorities = [authority].into_iter().chain(self.authorities.into_iter().take(1)).collect();
        Ok(Self { authorities, authority_key, ..self })
    }

    fn with_new_certificate(
        mut self,
        authority_from: SystemTime,
        service: &Service,
        now: SystemTime,
    ) -> Result<Self, rcgen::Error> {
        if authority_from + BEHIND + CLIENT_LIFE.max(CERTIFICATE_LIFE) <= now {
            self.authorities.truncate(1);
        }
        (self.certificate, self.key) = new_certificate(&self.authorities[0], &self.authority_key, service, now)?;
        Ok(self)
    }

    fn with_new_client(mut self, service: &Service, now: SystemTime) -> Result<Self, rcgen::Error> {
        self.client = Some(new_client(&self.authorities[0], &self.authority_key, service.client, now)?);
        Ok(self)
    }
}

/// The certificate and the key, PEM.
fn new_authority(service: &Service, now: SystemTime) -> Result<(CertificateDer<'static>, String), rcgen::Error> {
    let mut params = params(&format!("{}-ca", service.name), now, AUTHORITY_LIFE);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.into(), key.serialize_pem()))
}

/// A serving certificate and its key, PEM.
fn new_certificate(
    authority: &CertificateDer<'_>,
    authority_key: &str,
    service: &Service,
    now: SystemTime,
) -> Result<(CertificateDer<'static>, String), rcgen::Error> {
    let mut params = params(&service.name, now, CERTIFICATE_LIFE);
    params.subject_alt_names = CertificateParams::new(service.names())?.subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    sign(params, authority, authority_key)
}

/// A client's certificate and its key, PEM.
fn new_client(
    authority: &CertificateDer<'_>,
    authority_key: &str,
    name: &str,
    now: SystemTime,
) -> Result<(CertificateDer<'static>, String), rcgen::Error> {
    let mut params = params(name, now, CLIENT_LIFE);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign(params, authority, authority_key)
}

/// A certificate with a new key, and the key, PEM.
fn sign(
    mut params: CertificateParams,
    authority: &CertificateDer<'_>,
    authority_key: &str,
) -> Result<(CertificateDer<'static>, String), rcgen::Error> {
    let issuer = Issuer::from_ca_cert_der(authority, KeyPair::from_pem(authority_key)?)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, &issuer)?.into(), key.serialize_pem()))
}

fn params(name: &str, now: SystemTime, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    // Dates before 1970 can't be read by everybody.
    let from = (now - BEHIND).max(SystemTime::UNIX_EPOCH);
    params.not_before = from.into();
    params.not_after = (from + life).into();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

#[cfg(test)]
mod tests;

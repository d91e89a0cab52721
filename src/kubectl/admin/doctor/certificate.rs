//! Certificate authorities that the API server trusts when it calls the webhook.

use std::fmt;

use k8s_openapi::jiff::Timestamp;
use x509_parser::pem::Pem;

/// Verdict on a `caBundle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Authority {
    /// Valid until then, and the one that signs.
    Sound(String),
    Missing,
    Unreadable(String),
    /// No certificate in it is valid now; the last one's times.
    Outdated {
        from: String,
        until: String,
    },
    /// Another one than that of the Secret.
    Another,
}

/// Judges a bundle in PEM; `own` is the certificate of the authority that signs for the webhook, if it is known.
pub(super) fn authority(bundle: &[u8], own: Option<&[u8]>, now: Timestamp) -> Authority {
    if bundle.iter().all(u8::is_ascii_whitespace) {
        return Authority::Missing;
    }
    let blocks = match certificates(bundle) {
        Ok(blocks) => blocks,
        Err(problem) => return Authority::Unreadable(problem),
    };
    let mut times = Vec::new();
    for block in &blocks {
        match block.parse_x509() {
            Err(error) => return Authority::Unreadable(error.to_string()),
            Ok(certificate) => {
                let validity = certificate.validity();
                times.push((validity.not_before.timestamp(), validity.not_after.timestamp()));
            }
        }
    }
    let has = |one: &Pem| blocks.iter().any(|block| block.contents == one.contents);
    let is_other = own.is_some_and(|own| !certificates(own).is_ok_and(|own| own.iter().all(has)));
    let now = now.as_second();
    match (times.iter().find(|(from, until)| (*from..=*until).contains(&now)), times.last()) {
        (Some(_), _) if is_other => Authority::Another,
        (Some((_, until)), _) => Authority::Sound(date(*until)),
        (None, Some((from, until))) => Authority::Outdated { from: date(*from), until: date(*until) },
        (None, None) => Authority::Missing,
    }
}

fn date(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_beyond| "the end of all calendars".to_owned(), |at| at.to_string())
}

fn certificates(pem: &[u8]) -> Result<Vec<Pem>, String> {
    let blocks: Vec<Pem> = Pem::iter_from_buffer(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if blocks.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(blocks) }
}

// === impl Authority ===

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound(until) => write!(f, "the authority in caBundle is valid until {until}"),
            Self::Missing => {
                f.write_str("caBundle is empty: the API server trusts no certificate, and every call fails")
            }
            Self::Unreadable(problem) => write!(f, "caBundle can't be read: {problem}"),
            Self::Outdated { from, until } => {
                write!(f, "the authority in caBundle is valid from {from} until {until}, and so not now")
            }
            Self::Another => {
                f.write_str("caBundle is another authority than ca.crt of the webhook's Secret: every call fails")
            }
        }
    }
}

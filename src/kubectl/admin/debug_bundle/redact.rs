//! Texts without what looks like a secret: a second net, as nothing that holds one is read on purpose.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};

/// What stands in place of a secret.
const LEFT_OUT: &str = "(left out)";

/// Patterns of secrets. What the first group of one has found stays.
static SECRETS: LazyLock<[Regex; 5]> = LazyLock::new(|| {
    [
        // PEM, in JSON too, and where the text breaks off.
        r"()-----BEGIN [A-Z0-9 ]+-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z0-9 ]+-----)?",
        // Tokens of Kubernetes and of others (RFC 7519).
        r"()eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/-]{8,}=*",
        // A name that says so, and no path of a file.
        r#"(?i)(\b[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|private[_-]?key|credential)[a-z0-9_.-]*["']?\s*[:=]\s*["']?)[^\s"',;&/][^\s"',;&]{3,}"#,
        // Base64 without an end, as of a certificate whose beginning is cut off; a digest in hexadecimal digits has 64.
        r"()[A-Za-z0-9+/]{80,}={0,2}",
    ]
    .map(|pattern| Regex::new(pattern).expect("the patterns are constants, and a test uses each"))
});

/// The text without secrets, and how many it had.
pub(super) fn redacted(text: &str) -> (Cow<'_, str>, usize) {
    let mut text = Cow::Borrowed(text);
    let mut count = 0;
    for secret in SECRETS.iter() {
        let found = secret.replace_all(&text, |captures: &Captures<'_>| {
            count += 1;
            format!("{}{LEFT_OUT}", &captures[1])
        });
        if let Cow::Owned(replaced) = found {
            text = Cow::Owned(replaced);
        }
    }
    (text, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_left_out() {
        let base64 = "MIIBkTCB+wIJAKHHIG".repeat(8);
        for (text, expected) in [
            ("a -----BEGIN PRIVATE KEY-----\nMIIE/+==\nabc\n-----END PRIVATE KEY----- b", "a (left out) b"),
            (r#"{"ca":"-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----\n"}"#, r#"{"ca":"(left out)\n"}"#),
            ("-----BEGIN CERTIFICATE-----\nMIIE", "(left out)"),
            ("got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl!", "got (left out)!"),
            ("Authorization: Bearer abcdefgh.ijkl==", "Authorization: Bearer (left out)"),
            ("DB_PASSWORD=hunter2 next", "DB_PASSWORD=(left out) next"),
            (r#""apiKey": "abcdefgh","#, r#""apiKey": "(left out)","#),
            (&*format!("x {base64}= y"), "x (left out) y"),
        ] {
            assert_eq!(redacted(text), (Cow::Borrowed(expected), 1), "{text}");
        }
    }

    #[test]
    fn paths_digests_and_messages_stay() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        for text in [
            "kubeletTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
            &digest,
            "Secret divvy-webhook-tls has no certificate",
            "GPU-1d97b7c2-0b1c-4e2a-9a51-3f1f5a1a0001::31",
        ] {
            assert_eq!(redacted(text), (Cow::Borrowed(text), 0));
        }
    }
}

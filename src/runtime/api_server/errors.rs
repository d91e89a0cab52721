//! Errors in words: the API server's own message where there is one.

use kube::core::Status;
use kube::runtime::watcher;

/// Most characters of an answer that isn't the API server's.
const LONGEST: usize = 200;

/// Description of a failed request.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => describe_status(status),
        // Its own text says nothing but "ServiceError".
        kube::Error::Service(cause) => chain(&**cause),
        other => chain(other),
    }
}

/// Description of a failed watch.
pub(super) fn describe_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error @ kube::Error::Api(status)) if status.code == 404 => {
            // An object that is missing is an empty list.
            format!("{}: the API server doesn't have this kind: apply its CustomResourceDefinition", describe(error))
        }
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => describe(error),
        watcher::Error::WatchError(status) => describe_status(status),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Description of any error, with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    // Some errors print their cause themselves.
    texts.dedup_by(|cause, whole| whole.contains(cause.as_str()));
    if texts.len() > 1 {
        // hyper's name for the step that failed: the failure itself follows.
        texts.retain(|text| !text.starts_with("client error ("));
    }
    texts.join(": ")
}

fn describe_status(Status { code, reason, message, .. }: &Status) -> String {
    // kube's reason for an answer of somebody else, a proxy perhaps, whose message is all that was sent.
    if reason == "Failed to parse error data" {
        let line: String = message.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect();
        return format!("{code} without a Status: {line}");
    }
    format!("{code} {reason}: {message}")
}

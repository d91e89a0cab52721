//! Errors in words: the API server's own message where there is one.

use kube::core::Status;
use kube::runtime::watcher;

/// Description of a failed request.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => describe_status(status),
        other => chain(other),
    }
}

/// Description of a failed watch.
pub fn describe_watch(error: &watcher::Error) -> String {
    match error {
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
    texts.join(": ")
}

fn describe_status(Status { code, reason, message, .. }: &Status) -> String {
    format!("{code} {reason}: {message}")
}

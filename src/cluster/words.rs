//! Errors in words: what the API server says is told as it says it.

use kube::core::Status;
use kube::runtime::watcher;

/// Of a request.
pub fn causes(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => said(status),
        other => chain(other),
    }
}

/// Of a watch.
pub fn why(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => causes(error),
        watcher::Error::WatchError(status) => said(status),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Of anything, with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    // Some errors print their cause themselves.
    texts.dedup_by(|cause, whole| whole.contains(cause.as_str()));
    texts.join(": ")
}

fn said(Status { code, reason, message, .. }: &Status) -> String {
    format!("{code} {reason}: {message}")
}

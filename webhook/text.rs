//! Words for people.

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    // Some errors print their cause themselves.
    texts.dedup_by(|cause, whole| whole.contains(cause.as_str()));
    texts.join(": ")
}

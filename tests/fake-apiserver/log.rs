//! What was asked, so that a test can count it.

/// A request that was let in, or that failed for its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// As RBAC names it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; in lower case
    /// the HTTP method of what isn't about a resource.
    pub verb: String,
    /// Without the query.
    pub path: String,
    /// Whose token it came with; empty if nobody's.
    pub user: String,
    /// `pods`, `gpunodes.divvy.dev`; empty for what isn't about a resource.
    pub resource: String,
    /// `status`, `binding`; empty for the object itself.
    pub subresource: String,
    /// HTTP status of the answer; 0 if there is none.
    pub code: u16,
}

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::functions::FUNCTIONS;

/// A function of NVML, for all cards (`nvmlDeviceGetName`) or for one (`nvmlDeviceGetName@GPU-…`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Call {
    function: String,
    card: Option<String>,
}

// === impl Call ===

impl Call {
    /// Every function that the library has and that a scenario can make fail or hang.
    pub fn functions() -> impl Iterator<Item = &'static str> {
        FUNCTIONS.iter().copied()
    }

    /// Any call of the function.
    pub fn any(function: &str) -> Self {
        Self { function: function.to_owned(), card: None }
    }

    /// A call of the function about this card.
    pub fn about(function: &str, card: &str) -> Self {
        Self { function: function.to_owned(), card: Some(card.to_owned()) }
    }
}

impl TryFrom<String> for Call {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let call = match text.split_once('@') {
            Some((function, card)) => Self::about(function, card),
            None => Self::any(&text),
        };
        if Self::functions().any(|function| function == call.function) {
            Ok(call)
        } else {
            Err(format!("{:?} is no function of this library", call.function))
        }
    }
}

impl From<Call> for String {
    fn from(call: Call) -> Self {
        call.to_string()
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.card {
            Some(card) => write!(f, "{}@{card}", self.function),
            None => f.write_str(&self.function),
        }
    }
}

use std::error::Error;
use std::fmt::{self, Display};

use cudarc::driver::sys::CUresult;

/// A `CUresult`. A number, because a driver may answer with one that cudarc's enumeration doesn't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[repr(transparent)]
pub struct Code(pub u32);

macro_rules! codes {
    ($($name:ident = $code:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($code), "`")]
            pub const $name: Code = Code(CUresult::$code as u32);
        )*
    };
}

codes! {
    SUCCESS = CUDA_SUCCESS;
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE;
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY;
    DEVICE_UNAVAILABLE = CUDA_ERROR_DEVICE_UNAVAILABLE;
    NOT_FOUND = CUDA_ERROR_NOT_FOUND;
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE;
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT;
    NOT_READY = CUDA_ERROR_NOT_READY;
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS;
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED;
    STREAM_CAPTURE_UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    STREAM_CAPTURE_INVALIDATED = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    STREAM_CAPTURE_UNJOINED = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    STREAM_CAPTURE_IMPLICIT = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    CAPTURED_EVENT = CUDA_ERROR_CAPTURED_EVENT;
}

// === impl Code ===

impl Code {
    /// An error unless it is [`SUCCESS`].
    pub fn ok(self) -> Result<(), Self> {
        if self == SUCCESS { Ok(()) } else { Err(self) }
    }
}

impl Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA answers {}", self.0)
    }
}

impl Error for Code {}

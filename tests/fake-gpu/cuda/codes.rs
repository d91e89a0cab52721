//! CUDA's result codes.

use std::ffi::CStr;

use cudarc::driver::sys::CUresult;

/// A `CUresult` that isn't `CUDA_SUCCESS`, or is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

macro_rules! codes {
    ($($name:ident = $code:ident $text:literal;)*) => {
        #[allow(dead_code, reason = "a machine's faults can name those that we never answer")]
        impl Code {
            $(pub(crate) const $name: Self = Self(CUresult::$code as u32);)*
        }

        /// Codes, with their names as C has them, and what `cuGetErrorString` says.
        const CODES: &[(Code, &str, &CStr)] = &[$((Code::$name, concat!(stringify!($code), "\0"), $text)),*];
    };
}

codes! {
    SUCCESS = CUDA_SUCCESS c"no error";
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE c"invalid argument";
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY c"out of memory";
    NOT_INITIALIZED = CUDA_ERROR_NOT_INITIALIZED c"initialization error";
    DEINITIALIZED = CUDA_ERROR_DEINITIALIZED c"driver shutting down";
    DEVICE_UNAVAILABLE = CUDA_ERROR_DEVICE_UNAVAILABLE c"CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE = CUDA_ERROR_NO_DEVICE c"no CUDA-capable device is detected";
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE c"invalid device ordinal";
    INVALID_IMAGE = CUDA_ERROR_INVALID_IMAGE c"device kernel image is invalid";
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT c"invalid device context";
    MAP_FAILED = CUDA_ERROR_MAP_FAILED c"mapping of buffer object failed";
    ALREADY_MAPPED = CUDA_ERROR_ALREADY_MAPPED c"resource already mapped";
    NOT_MAPPED = CUDA_ERROR_NOT_MAPPED c"resource not mapped";
    FILE_NOT_FOUND = CUDA_ERROR_FILE_NOT_FOUND c"file not found";
    OPERATING_SYSTEM = CUDA_ERROR_OPERATING_SYSTEM c"OS call failed or operation not supported on this OS";
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE c"invalid resource handle";
    ILLEGAL_STATE = CUDA_ERROR_ILLEGAL_STATE c"the operation cannot be performed in the present state";
    NOT_FOUND = CUDA_ERROR_NOT_FOUND c"named symbol not found";
    NOT_READY = CUDA_ERROR_NOT_READY c"device not ready";
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS c"an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES c"too many resources requested for launch";
    LAUNCH_TIMEOUT = CUDA_ERROR_LAUNCH_TIMEOUT c"the launch timed out and was terminated";
    PRIMARY_CONTEXT_ACTIVE = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE c"cannot set while device is active";
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED c"context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED c"memory is already registered";
    HOST_MEMORY_NOT_REGISTERED = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED c"memory is not registered";
    LAUNCH_FAILED = CUDA_ERROR_LAUNCH_FAILED c"unspecified launch failure";
    NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED c"operation not permitted";
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED c"operation not supported";
    SYSTEM_NOT_READY = CUDA_ERROR_SYSTEM_NOT_READY c"system not yet initialized";
    STREAM_CAPTURE_UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        c"operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        c"operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = CUDA_ERROR_STREAM_CAPTURE_MERGE
        c"operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
        c"capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = CUDA_ERROR_STREAM_CAPTURE_UNJOINED c"capturing stream has unjoined work";
    STREAM_CAPTURE_IMPLICIT = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
        c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = CUDA_ERROR_CAPTURED_EVENT
        c"operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
        c"attempt to terminate a thread-local capture sequence from another thread";
    GRAPH_EXEC_UPDATE_FAILURE = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
        c"the graph differs too much from the executable one";
    UNKNOWN = CUDA_ERROR_UNKNOWN c"unknown error";
}

// === impl Code ===

impl Code {
    /// The code of this name, for a description of the machine.
    pub(crate) fn named(name: &str) -> Option<Self> {
        CODES.iter().find(|(_, known, _)| known.trim_end_matches('\0') == name).map(|(code, ..)| *code)
    }

    /// The code's name and explanation.
    pub(crate) fn texts(self) -> Option<(&'static CStr, &'static CStr)> {
        let (_, name, text) = CODES.iter().find(|(code, ..)| *code == self)?;
        Some((CStr::from_bytes_with_nul(name.as_bytes()).ok()?, text))
    }
}

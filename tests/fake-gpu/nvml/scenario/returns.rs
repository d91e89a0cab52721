use std::ffi::CStr;

use serde::{Deserialize, Serialize};

/// One table for the names and codes of nvml.h and the texts of `nvmlErrorString`.
macro_rules! returns {
    ($($variant:ident = $code:literal $name:literal $text:literal)*) => {
        /// An error of NVML, written by its name in nvml.h.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum NvmlReturn {
            $(
                #[doc = concat!("`", $name, "`")]
                #[serde(rename = $name)]
                $variant = $code,
            )*
        }

        impl NvmlReturn {
            /// Every error.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// What `nvmlErrorString` says.
            pub(crate) fn text(self) -> &'static CStr {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

returns! {
    Uninitialized = 1 "NVML_ERROR_UNINITIALIZED" c"Uninitialized"
    InvalidArgument = 2 "NVML_ERROR_INVALID_ARGUMENT" c"Invalid Argument"
    NotSupported = 3 "NVML_ERROR_NOT_SUPPORTED" c"Not Supported"
    NoPermission = 4 "NVML_ERROR_NO_PERMISSION" c"Insufficient Permissions"
    NotFound = 6 "NVML_ERROR_NOT_FOUND" c"Not Found"
    InsufficientSize = 7 "NVML_ERROR_INSUFFICIENT_SIZE" c"Insufficient Size"
    DriverNotLoaded = 9 "NVML_ERROR_DRIVER_NOT_LOADED" c"Driver Not Loaded"
    Timeout = 10 "NVML_ERROR_TIMEOUT" c"Timeout"
    IrqIssue = 11 "NVML_ERROR_IRQ_ISSUE" c"Interrupt Request Issue"
    FunctionNotFound = 13 "NVML_ERROR_FUNCTION_NOT_FOUND" c"Function Not Found"
    GpuIsLost = 15 "NVML_ERROR_GPU_IS_LOST" c"GPU is lost"
    ResetRequired = 16 "NVML_ERROR_RESET_REQUIRED" c"GPU requires reset"
    OperatingSystem = 17 "NVML_ERROR_OPERATING_SYSTEM" c"The operating system has blocked the request"
    LibRmVersionMismatch = 18 "NVML_ERROR_LIB_RM_VERSION_MISMATCH" c"Driver/library version mismatch"
    InUse = 19 "NVML_ERROR_IN_USE" c"In use by another client"
    Memory = 20 "NVML_ERROR_MEMORY" c"Insufficient Memory"
    NoData = 21 "NVML_ERROR_NO_DATA" c"No data"
    Unknown = 999 "NVML_ERROR_UNKNOWN" c"Unknown Error"
}

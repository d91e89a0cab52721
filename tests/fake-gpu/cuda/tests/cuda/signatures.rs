//! The library's signatures beside those of cudarc's bindings.

use std::collections::BTreeMap;

use cudarc::driver::sys;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc::Ptx;

use crate::program::Site;
use cudarc::driver::sys::CUresult;

/// A function's arguments, by their sizes in bytes.
trait Arguments {
    fn sizes(&self) -> Vec<usize>;
}

macro_rules! arguments {
    ($(($($argument:ident),*))*) => {
        $(impl<$($argument),*> Arguments for unsafe fn($($argument),*) -> CUresult {
            fn sizes(&self) -> Vec<usize> {
                vec![$(size_of::<$argument>()),*]
            }
        })*
    };
}

arguments! {
    () (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G) (A, B, C, D, E, F, G, H)
    (A, B, C, D, E, F, G, H, I) (A, B, C, D, E, F, G, H, I, J) (A, B, C, D, E, F, G, H, I, J, K)
}

macro_rules! bindings {
    ($($arguments:tt: $($name:ident)*;)*) => {
        BTreeMap::from([$($((stringify!($name), bindings!(@ $name $arguments))),*),*])
    };
    (@ $name:ident ($($argument:tt),*)) => { (sys::$name as unsafe fn($($argument),*) -> CUresult).sizes() };
}

#[test]
fn functions_take_what_the_drivers_take() {
    #[rustfmt::skip]
    let bindings: BTreeMap<&str, Vec<usize>> = bindings! {
        (): cuCtxSynchronize cuProfilerStart cuProfilerStop;
        (_): cuArrayDestroy cuCtxDestroy_v2 cuCtxDisablePeerAccess cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetDevice 
        cuCtxGetFlags cuCtxGetSharedMemConfig cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxSetCacheConfig cuCtxSetCurrent 
        cuCtxSetFlags cuCtxSetSharedMemConfig cuCtxSynchronize_v2 cuDestroyExternalMemory cuDeviceGetCount 
        cuDeviceGraphMemTrim cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDriverGetVersion cuEventDestroy_v2 
        cuEventQuery cuEventSynchronize cuFuncLoad cuGraphDestroy cuGraphDestroyNode cuGraphExecDestroy cuGreenCtxDestroy 
        cuInit cuIpcCloseMemHandle cuLaunch cuLibraryUnload cuLinkDestroy cuMemFreeHost cuMemFree_v2 cuMemHostUnregister 
        cuMemPoolDestroy cuMemRelease cuMemcpy2DUnaligned_v2 cuMemcpy2D_v2 cuMemcpy3D_v2 cuMipmappedArrayDestroy 
        cuModuleGetLoadingMode cuModuleUnload cuStreamDestroy_v2 cuStreamQuery cuStreamSynchronize 
        cuThreadExchangeStreamCaptureMode;
        (_, _): cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayCreate_v2 cuArrayGetDescriptor_v2 
        cuCtxEnablePeerAccess cuCtxFromGreenCtx cuCtxGetApiVersion cuCtxGetDevice_v2 cuCtxGetId cuCtxGetLimit 
        cuCtxGetStreamPriorityRange cuCtxRecordEvent cuCtxSetLimit cuDeviceGet cuDeviceGetByPCIBusId 
        cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceGetUuid_v2 cuDevicePrimaryCtxRetain 
        cuDevicePrimaryCtxSetFlags_v2 cuDeviceSetMemPool cuDeviceTotalMem_v2 cuEventCreate cuEventRecord cuFuncGetModule 
        cuFuncGetName cuFuncIsLoaded cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuFuncSetSharedSize cuGetErrorName 
        cuGetErrorString cuGetExportTable cuGraphChildGraphNodeGetGraph cuGraphClone cuGraphCreate cuGraphExecGetFlags 
        cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2 cuGraphLaunch cuGraphMemAllocNodeGetParams 
        cuGraphMemFreeNodeGetParams cuGraphNodeGetType cuGraphUpload cuImportExternalMemory cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenEventHandle 
        cuKernelGetFunction cuKernelGetName cuLibraryGetModule cuMemAddressFree cuMemAllocHost_v2 cuMemAlloc_v2 
        cuMemFreeAsync cuMemGetAllocationPropertiesFromHandle cuMemGetInfo_v2 cuMemHostGetFlags cuMemPoolCreate 
        cuMemPoolExportPointer cuMemPoolTrimTo cuMemRetainAllocationHandle cuMemUnmap cuMemcpy2DAsync_v2 cuMemcpy3DAsync_v2 
        cuModuleGetFunctionCount cuModuleLoad cuModuleLoadData cuModuleLoadFatBinary cuMulticastAddDevice cuMulticastCreate 
        cuParamSetSize cuStreamBeginCapture_v2 cuStreamCreate cuStreamEndCapture cuStreamGetCtx cuStreamGetDevice 
        cuStreamGetFlags cuStreamGetId cuStreamGetPriority cuStreamIsCapturing;
        (_, _, _): cuArrayGetMemoryRequirements cuDevResourceGenerateDesc cuDeviceCanAccessPeer 
        cuDeviceComputeCapability cuDeviceGetAttribute cuDeviceGetDevResource cuDeviceGetGraphMemAttribute cuDeviceGetName 
        cuDeviceGetPCIBusId cuDevicePrimaryCtxGetState cuDeviceSetGraphMemAttribute cuEventElapsedTime_v2 
        cuEventRecordWithFlags cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuFuncGetAttribute 
        cuFuncSetAttribute cuGraphExecHostNodeSetParams cuGraphExecKernelNodeSetParams_v2 cuGraphExecUpdate_v2 
        cuGraphGetNodes cuGraphGetRootNodes cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphNodeGetEnabled 
        cuGraphNodeSetEnabled cuIpcOpenMemHandle_v2 cuLaunchCooperativeKernelMultiDevice cuLaunchGrid cuLaunchHostFunc 
        cuLibraryGetKernel cuLinkComplete cuMemAllocAsync cuMemAllocManaged cuMemGetAccess cuMemGetAddressRange_v2 
        cuMemGetAllocationGranularity cuMemGetDefaultMemPool cuMemGetMemPool cuMemHostAlloc cuMemHostGetDevicePointer_v2 
        cuMemHostRegister_v2 cuMemImportFromShareableHandle cuMemMapArrayAsync cuMemPoolGetAccess cuMemPoolGetAttribute 
        cuMemPoolImportPointer cuMemPoolSetAccess cuMemPoolSetAttribute cuMemSetMemPool cuMemcpy cuMemcpyDtoD_v2 
        cuMemcpyDtoH_v2 cuMemcpyHtoD_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD8_v2 cuMipmappedArrayCreate 
        cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements cuModuleGetFunction cuMulticastGetGranularity 
        cuPointerGetAttribute cuPointerSetAttribute cuStreamCreateWithPriority cuStreamGetCtx_v2 cuStreamWaitEvent;
        (_, _, _, _): cuCtxCreate_v4 cuDeviceGetP2PAttribute cuFuncSetBlockShape cuGraphAddEmptyNode 
        cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams cuGreenCtxCreate cuGreenCtxStreamCreate 
        cuKernelGetAttribute cuKernelSetAttribute cuLaunchGridAsync cuLaunchKernelEx cuLibraryGetGlobal cuLibraryGetManaged 
        cuLinkCreate_v2 cuMemAdvise_v2 cuMemAllocFromPoolAsync cuMemCreate cuMemExportToShareableHandle 
        cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemSetAccess cuMemcpyAsync cuMemcpyAtoD_v2 
        cuMemcpyAtoH_v2 cuMemcpyDtoA_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyHtoA_v2 cuMemcpyHtoDAsync_v2 
        cuMemsetD16Async cuMemsetD32Async cuMemsetD8Async cuModuleGetGlobal_v2 cuMulticastUnbind 
        cuOccupancyMaxActiveBlocksPerMultiprocessor cuParamSetv cuPointerGetAttributes cuStreamAddCallback 
        cuStreamAttachMemAsync cuStreamWaitValue32_v2 cuStreamWriteValue32_v2;
        (_, _, _, _, _): cuGetProcAddress_v2 cuGraphAddChildGraphNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode 
        cuGraphAddHostNode cuGraphAddKernelNode_v2 cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuMemAddressReserve 
        cuMemAllocPitch_v2 cuMemMap cuMemPrefetchAsync_v2 cuMemcpyPeer cuMemsetD2D16_v2 cuMemsetD2D32_v2 cuMemsetD2D8_v2 
        cuModuleLoadDataEx cuMulticastBindAddr cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
        (_, _, _, _, _, _): cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphAddNode_v2 cuMemcpyPeerAsync 
        cuMemsetD2D16Async cuMemsetD2D32Async cuMemsetD2D8Async cuMulticastBindMem cuOccupancyMaxPotentialBlockSize 
        cuStreamBeginCaptureToGraph;
        (_, _, _, _, _, _, _): cuStreamGetCaptureInfo_v3;
        (_, _, _, _, _, _, _, _): cuLibraryLoadData cuLibraryLoadFromFile cuLinkAddData_v2 cuMemcpyBatchAsync_v2;
        (_, _, _, _, _, _, _, _, _, _): cuLaunchCooperativeKernel;
        (_, _, _, _, _, _, _, _, _, _, _): cuLaunchKernel;
    };
    let ours: BTreeMap<&str, Vec<usize>> =
        fake_cuda::signatures().map(|(name, sizes)| (name, sizes.to_vec())).collect();
    let differing = bindings.iter().filter(|(name, sizes)| ours.get(**name) != Some(sizes));
    assert_eq!(differing.collect::<Vec<_>>(), [], "beside ours");
}

/// A function for the per-thread default stream takes the same as the other.
#[test]
fn twins_take_the_same() {
    let ours: BTreeMap<&str, &[usize]> = fake_cuda::signatures().collect();
    let twins = ours.iter().filter_map(|(name, sizes)| {
        let plain = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"))?;
        Some((plain, *sizes))
    });
    let twins: Vec<(&str, &[usize])> = twins.collect();
    assert!(twins.len() > 60, "{}", twins.len());
    for (plain, sizes) in twins {
        assert_eq!(ours.get(plain), Some(&sizes), "{plain}");
    }
}

#[test]
fn cudarc_finds_the_library_and_launches() {
    let site = Site::small();
    let mut program = site.worker("bindings 1000");
    assert!(program.wait().unwrap());
    assert!(program.usage(site.card(0)).memory_peak >= 4000);
}

/// Allocates, copies and launches through the safe side of cudarc, as programs do.
pub(crate) fn use_bindings(count: usize) {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let sent: Vec<u32> = (0..).take(count).collect();
    let there = stream.clone_htod(&sent).unwrap();
    let function = context.load_module(Ptx::from_src("any")).unwrap().load_function("busy_ns").unwrap();
    let grid = LaunchConfig { grid_dim: (5_000_000, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    let timed = sys::CUevent_flags::CU_EVENT_DEFAULT;
    // SAFETY: kernels of the stand-in touch no memory.
    let (start, end) = unsafe { stream.launch_builder(&function).record_kernel_launch(timed).arg(&there).launch(grid) }
        .unwrap()
        .unwrap();
    assert!(start.elapsed_ms(&end).unwrap() >= 4.999);
    assert_eq!(stream.clone_dtoh(&there).unwrap(), sent);
    stream.synchronize().unwrap();
}

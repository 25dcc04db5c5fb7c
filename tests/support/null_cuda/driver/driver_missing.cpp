// Functions of CUDA's driver, and of NCCL for code on devices, that torch looks for and that nothing here needs. They
// refuse, whatever their arguments are, which NVIDIA's header would have them declare.

namespace {

constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

}  // namespace

#define TITAN_NOT_SUPPORTED(name) \
  extern "C" int name() { return kNotSupported; }

TITAN_NOT_SUPPORTED(cuCtxFromGreenCtx)
TITAN_NOT_SUPPORTED(cuDevResourceGenerateDesc)
TITAN_NOT_SUPPORTED(cuDevSmResourceSplitByCount)
TITAN_NOT_SUPPORTED(cuDeviceGetDevResource)
TITAN_NOT_SUPPORTED(cuGreenCtxCreate)
TITAN_NOT_SUPPORTED(cuGreenCtxDestroy)
TITAN_NOT_SUPPORTED(cuGreenCtxStreamCreate)
TITAN_NOT_SUPPORTED(cuMemExportToShareableHandle)
TITAN_NOT_SUPPORTED(cuMemImportFromShareableHandle)
TITAN_NOT_SUPPORTED(cuMemGetAllocationPropertiesFromHandle)
TITAN_NOT_SUPPORTED(cuMemRetainAllocationHandle)
TITAN_NOT_SUPPORTED(cuMulticastAddDevice)
TITAN_NOT_SUPPORTED(cuMulticastBindMem)
TITAN_NOT_SUPPORTED(cuMulticastBindAddr)
TITAN_NOT_SUPPORTED(cuMulticastCreate)
TITAN_NOT_SUPPORTED(cuMulticastUnbind)
TITAN_NOT_SUPPORTED(cuMulticastGetGranularity)
TITAN_NOT_SUPPORTED(cuStreamWriteValue32_v2)
TITAN_NOT_SUPPORTED(cuStreamWaitValue32_v2)
TITAN_NOT_SUPPORTED(cuFuncSetCacheConfig)
TITAN_NOT_SUPPORTED(cuLaunchCooperativeKernel)
TITAN_NOT_SUPPORTED(cuLinkAddData_v2)
TITAN_NOT_SUPPORTED(cuLinkComplete)
TITAN_NOT_SUPPORTED(cuLinkCreate_v2)
TITAN_NOT_SUPPORTED(cuModuleLoad)
TITAN_NOT_SUPPORTED(cuModuleLoadDataEx)
TITAN_NOT_SUPPORTED(cuTensorMapEncodeTiled)

extern "C" {

int ncclDevCommCreate() { return 5; }  // ncclInvalidUsage
int ncclDevCommDestroy() { return 0; }

}  // extern "C"

// The compiler of kernels at run time: torch compiles a few of its kernels (erfinv) when they are first called. Here it
// makes nothing. This is a library of its own, libnvrtc.so.13, because torch asks that one for its functions by name.
#include <cuda.h>
#include <nvrtc.h>

#include <cstddef>
#include <cstring>

namespace {

constexpr char kCode[] = "no code";

nvrtcResult copy_code(char* to) {
  std::memcpy(to, kCode, sizeof(kCode));
  return NVRTC_SUCCESS;
}

nvrtcResult size_of_code(std::size_t* size) {
  *size = sizeof(kCode);
  return NVRTC_SUCCESS;
}

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = CUDA_VERSION / 1000;
  *minor = CUDA_VERSION % 1000 / 10;
  return NVRTC_SUCCESS;
}

const char* nvrtcGetErrorString(nvrtcResult) { return "null CUDA: no error of nvrtc"; }

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int, const char* const*,
                               const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(const_cast<char*>(kCode));
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char*) { return NVRTC_SUCCESS; }

nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char* expression, const char** name) {
  *name = expression;  // the caller keeps it until the program is destroyed
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram, size_t* size) { return size_of_code(size); }
nvrtcResult nvrtcGetPTX(nvrtcProgram, char* to) { return copy_code(to); }
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t* size) { return size_of_code(size); }
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* to) { return copy_code(to); }
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t* size) { return size_of_code(size); }
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* to) { return copy_code(to); }

}  // extern "C"

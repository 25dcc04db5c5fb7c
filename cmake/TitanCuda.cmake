# Decides whether the CUDA module is built (TITAN_BUILD_CUDA), enables the language for it, and
# imports the CUDA part of the torch wheel as titan::torch_cuda. Used only by src/cuda and its tests.

set(TITAN_BUILD_CUDA OFF)
set(titan_cuda_missing "") # the program says it too, so it holds no paths of this machine
set(titan_cuda_where "")
if(NOT TITAN_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TITAN_CUDA is '${TITAN_CUDA}'; expected AUTO, ON or OFF")
elseif(TITAN_CUDA STREQUAL "OFF")
  set(titan_cuda_missing "TITAN_CUDA is OFF")
elseif(NOT EXISTS ${TITAN_TORCH_DIR}/lib/libtorch_cuda.so)
  set(titan_cuda_missing "the torch wheel has no CUDA part")
  set(titan_cuda_where " (${TITAN_TORCH_DIR})")
else()
  find_program(TITAN_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT TITAN_NVCC)
    set(titan_cuda_missing "no nvcc in PATH, CUDA_HOME or /usr/local/cuda")
  else()
    set(titan_cuda_where " (${TITAN_NVCC})")
  endif()
endif()

if(NOT titan_cuda_missing)
  # Kernels are launched through the wheel's CUDA runtime, so the toolkit must have the same major version.
  execute_process(COMMAND ${TITAN_NVCC} --version OUTPUT_VARIABLE titan_nvcc_version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" ignored "${titan_nvcc_version}")
  if(NOT CMAKE_MATCH_1)
    set(titan_cuda_missing "nvcc --version names no release")
  elseif(NOT CMAKE_MATCH_1 STREQUAL titan_torch_cuda_major)
    set(titan_cuda_missing "nvcc is of CUDA ${CMAKE_MATCH_1}, the torch wheel of CUDA ${titan_torch_cuda_major}")
  endif()
endif()

if(NOT titan_cuda_missing)
  # T4, A100, H100/H200 and, if nvcc supports it, B200. Later GPUs run the PTX that is embedded with each.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    execute_process(COMMAND ${TITAN_NVCC} --list-gpu-arch OUTPUT_VARIABLE titan_nvcc_archs ERROR_QUIET)
    set(CMAKE_CUDA_ARCHITECTURES 75 80 90)
    if(titan_nvcc_archs MATCHES "compute_100")
      list(APPEND CMAKE_CUDA_ARCHITECTURES 100)
    endif()
  endif()
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(ENV{CUDACXX} ${TITAN_NVCC})
  include(CheckLanguage)
  check_language(CUDA)  # a toolkit that cannot compile must not stop the rest of the configuration
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(TITAN_BUILD_CUDA ON)
  else()
    set(titan_cuda_missing "nvcc cannot compile")
    set(titan_cuda_where " (${TITAN_NVCC}, see the logs in ${CMAKE_BINARY_DIR}/CMakeFiles)")
  endif()
endif()

if(NOT TITAN_BUILD_CUDA)
  if(TITAN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TITAN_CUDA is ON, but ${titan_cuda_missing}${titan_cuda_where}")
  endif()
  message(STATUS "The CUDA module is left out: ${titan_cuda_missing}${titan_cuda_where}")
  return()
endif()
message(STATUS "The CUDA module is built with ${TITAN_NVCC} for ${CMAKE_CUDA_ARCHITECTURES}")
set(CMAKE_CUDA_STANDARD 17)  # the latest that CMake 3.25 supports for nvcc; headers that kernels include stick to it
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # use the wheel's runtime, like torch itself

# The CUDA and NCCL wheels that the torch wheel depends on are installed beside it.
get_filename_component(titan_nvidia ${TITAN_TORCH_DIR}/../nvidia ABSOLUTE)
set(titan_cuda_wheel ${titan_nvidia}/cu${titan_torch_cuda_major})
file(GLOB titan_cudart ${titan_cuda_wheel}/lib/libcudart.so.*)
if(NOT titan_cudart OR NOT EXISTS ${titan_nvidia}/nccl/include/nccl.h)
  message(FATAL_ERROR "The CUDA runtime or NCCL of the torch wheel is not below ${titan_nvidia}. Run scripts/setup.sh, or set TITAN_CUDA=OFF.")
endif()
add_library(titan_torch_cuda INTERFACE)
target_link_libraries(
  titan_torch_cuda
  INTERFACE titan::torch_cpu
            # torch's CUDA part registers itself on loading, so it is linked although none of its symbols is used.
            -Wl,--no-as-needed
            ${TITAN_TORCH_DIR}/lib/libtorch_cuda.so
            ${TITAN_TORCH_DIR}/lib/libc10_cuda.so
            ${TITAN_TORCH_DIR}/lib/libtorch.so
            ${titan_cudart}
            ${titan_nvidia}/nccl/lib/libnccl.so.2)
target_include_directories(titan_torch_cuda SYSTEM INTERFACE ${titan_cuda_wheel}/include ${titan_nvidia}/nccl/include)
add_library(titan::torch_cuda ALIAS titan_torch_cuda)

# Imported targets for the torch wheel's own libraries. The wheel's find_package(Torch) requires a
# CUDA toolkit at configure time; a CPU program needs only libtorch_cpu and libc10, and starts in a
# fraction of the time without the rest.

# The series of torch that titan-train can be built with. The first is the default: requirements.txt pins a version of it.
set(TITAN_TORCH_SUPPORTED 2.11 2.14 2.15)

file(GLOB titan_torch_candidates ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
list(APPEND titan_torch_candidates "")
list(GET titan_torch_candidates 0 titan_torch_default)
set(TITAN_TORCH_DIR "${titan_torch_default}" CACHE PATH "The torch package of a wheel (…/site-packages/torch)")
if(NOT EXISTS ${TITAN_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No torch wheel at '${TITAN_TORCH_DIR}'. Run scripts/setup.sh, or set TITAN_TORCH_DIR.")
endif()
file(READ ${TITAN_TORCH_DIR}/version.py titan_torch_version_file)
string(REGEX MATCH "cuda: [^=]*= '(([0-9]+)\\.([0-9]+)[^']*)'" ignored "${titan_torch_version_file}")
set(titan_cuda_version "${CMAKE_MATCH_1}")
set(titan_torch_cuda_major "${CMAKE_MATCH_2}")
set(titan_cuda_needed 0) # minimum driver version, as cuDriverGetVersion reports it
if(titan_cuda_version)
  math(EXPR titan_cuda_needed "1000 * ${CMAKE_MATCH_2} + 10 * ${CMAKE_MATCH_3}")
endif()
string(REGEX MATCH "__version__ = '(([0-9]+\\.[0-9]+)[^']*)'" ignored "${titan_torch_version_file}")
set(TITAN_TORCH_VERSION "${CMAKE_MATCH_1}")
# The program accepts this series at run time, and no other: the C++ interface differs between them.
set(TITAN_TORCH_SERIES "${CMAKE_MATCH_2}")
if(NOT TITAN_TORCH_SERIES IN_LIST TITAN_TORCH_SUPPORTED)
  list(JOIN TITAN_TORCH_SUPPORTED ", " titan_torch_names)
  message(FATAL_ERROR "The wheel at ${TITAN_TORCH_DIR} is torch ${TITAN_TORCH_VERSION}; titan-train builds with ${titan_torch_names}. Run scripts/setup.sh, or set TITAN_TORCH_DIR to such a wheel.")
endif()

# Gloo's headers are not in the wheel; Debian's libgloo-dev has the same interface. Only its headers are used.
find_path(TITAN_GLOO_INCLUDE gloo/context.h REQUIRED)

# The wheel ships fmt 12, but Debian's spdlog is built on the system's fmt, which must therefore be found first.
set(TITAN_FMT_FIRST ${CMAKE_BINARY_DIR}/fmt_first)
file(MAKE_DIRECTORY ${TITAN_FMT_FIRST})
find_path(TITAN_FMT_INCLUDE fmt/core.h PATHS /usr/include REQUIRED)
file(CREATE_LINK ${TITAN_FMT_INCLUDE}/fmt ${TITAN_FMT_FIRST}/fmt SYMBOLIC)

add_library(titan_torch_headers INTERFACE)
target_include_directories(
  titan_torch_headers SYSTEM INTERFACE ${TITAN_FMT_FIRST} ${TITAN_TORCH_DIR}/include
                                       ${TITAN_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(titan_torch_headers INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)

add_library(titan_torch_cpu INTERFACE)
target_link_libraries(titan_torch_cpu INTERFACE titan_torch_headers ${TITAN_TORCH_DIR}/lib/libtorch_cpu.so
                                                ${TITAN_TORCH_DIR}/lib/libc10.so)
add_library(titan::torch_cpu ALIAS titan_torch_cpu)

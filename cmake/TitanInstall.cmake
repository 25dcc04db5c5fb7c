# `cmake --install build/release --prefix DIR` makes a folder that runs wherever it is copied to, on a machine with the
# same series of torch. It contains everything except LibTorch, CUDA, the C++ compiler's and the C library; see
# cmake/install_readme.txt.in. scripts/make_wheel.py makes a wheel of such a folder.
#
#   bin/titan-train   finds torch (apps/installed_torch.h) and loads the engine
#   lib/              the engine, the CUDA module, and the distribution's libraries unless they come from .deps
#   README.txt  LICENSE  licenses/ (of the libraries inside)
#   include/  lib/cmake/Titan/   for programs that use the engine as a library (src/library/titan.h)
#   configs/  assets/  deploy/  examples/  scripts/  tests/   at their places in the repository, where they find each other

configure_file(${CMAKE_CURRENT_LIST_DIR}/install_readme.txt.in ${CMAKE_BINARY_DIR}/install/README.txt @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/assets_readme.txt.in ${CMAKE_BINARY_DIR}/install/assets/README.txt @ONLY)

# The lib/ of a wheel lies in site-packages/titan_train, beside torch and the wheels with CUDA and NCCL.
set(titan_packages "$ORIGIN/../..")
set(titan_library_path "$ORIGIN:${titan_packages}/torch/lib")
# In the build folder, too: CMake would fill the place of the installed path with empty entries, which mean the current
# folder.
set_target_properties(titan-train PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
install(TARGETS titan-train RUNTIME_DEPENDENCY_SET titan_dependencies RUNTIME DESTINATION bin)
set_target_properties(titan_engine PROPERTIES INSTALL_RPATH "${titan_library_path}")
install(TARGETS titan_engine RUNTIME_DEPENDENCY_SET titan_dependencies LIBRARY DESTINATION lib)
set(titan_stripped bin/titan-train lib/$<TARGET_FILE_NAME:titan_engine>)
if(TITAN_BUILD_CUDA)
  string(APPEND titan_library_path ":${titan_packages}/nvidia/cu${titan_torch_cuda_major}/lib:${titan_packages}/nvidia/nccl/lib")
  set_target_properties(titan_cuda PROPERTIES INSTALL_RPATH "${titan_library_path}")
  install(TARGETS titan_cuda LIBRARY DESTINATION lib)
  list(APPEND titan_stripped lib/$<TARGET_FILE_NAME:titan_cuda>)
  if(TITAN_TESTS)
    # scripts/gpu_check.sh starts it with torch's libraries.
    set_target_properties(cuda_device_test PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS cuda_device_test RUNTIME_DEPENDENCY_SET titan_dependencies RUNTIME DESTINATION tests)
    list(APPEND titan_stripped tests/cuda_device_test)
  endif()
endif()
if(NOT TITAN_DEPS)
  install(
    RUNTIME_DEPENDENCY_SET
    titan_dependencies
    PRE_EXCLUDE_REGEXES
    "^lib(torch|c10|gomp)" # the wheel's
    "^lib(c|m|dl|rt|pthread|util|stdc\\+\\+|gcc_s)\\.so" "^ld-linux" # present on every machine that runs torch
    LIBRARY
    DESTINATION
    lib)
endif()

# This target builds what cmake --install needs.
add_custom_target(titan_installed DEPENDS titan-train titan_engine)
if(TITAN_BUILD_CUDA)
  add_dependencies(titan_installed titan_cuda)
  if(TITAN_TESTS)
    add_dependencies(titan_installed cuda_device_test)
  endif()
endif()

# Keep the symbols that the dynamic loader and the CUDA module need.
foreach(file ${titan_stripped})
  install(
    CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\" COMMAND_ERROR_IS_FATAL ANY)"
  )
endforeach()

# The engine as a library: find_package(Titan), and its public headers.
string(REPLACE "." "\\\\." TITAN_TORCH_SERIES_REGEX ${TITAN_TORCH_SERIES})
configure_file(${CMAKE_CURRENT_LIST_DIR}/TitanConfig.cmake.in ${CMAKE_BINARY_DIR}/install/TitanConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/install/TitanConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/install/TitanConfig.cmake ${CMAKE_BINARY_DIR}/install/TitanConfigVersion.cmake
        DESTINATION lib/cmake/Titan)
install(
  CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DSOURCE=${CMAKE_SOURCE_DIR}/src\"
    \"-DDESTINATION=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/include/titan\" -P \"${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake\"
    COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY examples DESTINATION .)

install(DIRECTORY configs DESTINATION .)
install(DIRECTORY deploy DESTINATION . USE_SOURCE_PERMISSIONS)
install(PROGRAMS scripts/gpu_check.sh scripts/gpu_check_ranks.sh scripts/gpu_check_runs.sh scripts/gpu_check_rows.py
        DESTINATION scripts)
install(
  DIRECTORY tests/reference
  DESTINATION tests
  FILES_MATCHING
  PATTERN "*.py"
  PATTERN "__pycache__" EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/install/README.txt LICENSE DESTINATION .)
if(TITAN_DEPS)
  install(DIRECTORY ${TITAN_DEPS}/licenses DESTINATION .)
endif()
# Checked when installing: scripts/setup.sh may have run after this build was configured.
install(
  CODE "if(NOT EXISTS \"${CMAKE_SOURCE_DIR}/assets/tokenizer/tokenizer.model\")
  message(FATAL_ERROR \"${CMAKE_SOURCE_DIR}/assets has no tokenizer and corpus. Run scripts/setup.sh, then install again.\")
endif()")
install(DIRECTORY assets/tokenizer DESTINATION assets)
install(FILES ${CMAKE_BINARY_DIR}/install/assets/README.txt DESTINATION assets)
install(DIRECTORY assets/corpus/train assets/corpus/validation DESTINATION assets/corpus)
file(GLOB titan_corpus_license ${TITAN_TORCH_DIR}-*.dist-info/licenses/LICENSE)
install(FILES ${titan_corpus_license} DESTINATION assets/corpus)

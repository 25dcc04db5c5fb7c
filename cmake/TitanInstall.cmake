# `cmake --install build/release --prefix DIR` makes a folder that runs wherever it is copied to, on
# a machine whose python3 has the same torch wheel. It contains everything except LibTorch, CUDA,
# the C++ compiler's and the C library; see cmake/install_readme.txt.in.
#
#   bin/titan-train, tests/cuda_device_test   find torch and start the program of that name in libexec/ (cmake/find_torch.sh.in)
#   libexec/  lib/                            programs; the engine, the CUDA module and the distribution's libraries
#   configs/  assets/  scripts/  tests/       at their places in the repository, so that scripts and configurations find them

string(REGEX MATCH "__version__ = '([^']+)'" ignored "${titan_torch_version_file}")
set(TITAN_TORCH_VERSION "${CMAKE_MATCH_1}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/find_torch.sh.in ${CMAKE_BINARY_DIR}/install/find_torch.sh @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/install_readme.txt.in ${CMAKE_BINARY_DIR}/install/README.txt @ONLY)

# titan_install_program(TARGET FOLDER): FOLDER/TARGET starts libexec/TARGET.
function(titan_install_program target folder)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  install(TARGETS ${target} RUNTIME_DEPENDENCY_SET titan_dependencies RUNTIME DESTINATION libexec)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/install/find_torch.sh DESTINATION ${folder} RENAME ${target})
  set_property(GLOBAL APPEND PROPERTY TITAN_STRIPPED libexec/${target})
endfunction()

titan_install_program(titan-train bin)
set_target_properties(titan_engine PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS titan_engine RUNTIME_DEPENDENCY_SET titan_dependencies LIBRARY DESTINATION lib)
set_property(GLOBAL APPEND PROPERTY TITAN_STRIPPED lib/$<TARGET_FILE_NAME:titan_engine>)
if(TITAN_BUILD_CUDA)
  set_target_properties(titan_cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS titan_cuda LIBRARY DESTINATION lib)
  set_property(GLOBAL APPEND PROPERTY TITAN_STRIPPED lib/$<TARGET_FILE_NAME:titan_cuda>)
  if(TITAN_TESTS)
    titan_install_program(cuda_device_test tests)
  endif()
endif()
install(
  RUNTIME_DEPENDENCY_SET
  titan_dependencies
  PRE_EXCLUDE_REGEXES
  "^lib(torch|c10|gomp)" # the wheel's
  "^lib(c|m|dl|rt|pthread|util|stdc\\+\\+|gcc_s)\\.so" "^ld-linux" # present on every machine that runs torch
  LIBRARY
  DESTINATION
  lib)

# Keep the symbols that the dynamic loader and the CUDA module need.
get_property(titan_stripped GLOBAL PROPERTY TITAN_STRIPPED)
foreach(file ${titan_stripped})
  install(
    CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\" COMMAND_ERROR_IS_FATAL ANY)"
  )
endforeach()

install(DIRECTORY configs DESTINATION .)
install(PROGRAMS scripts/gpu_check.sh scripts/gpu_check_runs.sh scripts/gpu_check_rows.py DESTINATION scripts)
install(
  DIRECTORY tests/reference
  DESTINATION tests
  FILES_MATCHING
  PATTERN "*.py"
  PATTERN "__pycache__" EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/install/README.txt DESTINATION share/titan-train)
# Checked when installing: scripts/setup.sh may have run after this build was configured.
install(
  CODE "if(NOT EXISTS \"${CMAKE_SOURCE_DIR}/assets/tokenizer/tokenizer.model\")
  message(FATAL_ERROR \"${CMAKE_SOURCE_DIR}/assets has no tokenizer and corpus. Run scripts/setup.sh, then install again.\")
endif()")
install(DIRECTORY assets/tokenizer DESTINATION assets)
install(DIRECTORY assets/corpus/train assets/corpus/validation DESTINATION assets/corpus)

# Compiler flags, build accelerators, and titan_library(), which declares the library of a folder.

find_program(TITAN_CCACHE ccache)
if(TITAN_CCACHE)
  # ccache supports a precompiled header only with these settings (its manual, "Precompiled headers").
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TITAN_CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
                      "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
# Use lld, or else GNU's linker, which takes longer. Not mold: before 2.4 (Debian 12 has 1.10) it
# can place what the loader makes read-only where nothing is mapped, so that the program does not
# start (its issue 1151), and with -z norelro it may never terminate.
find_program(TITAN_LLD ld.lld)
if(TITAN_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# Headers that a file shares with its neighbors take most of its compile time, so a full build in groups
# takes half as long as file by file. An incremental build takes longer: switch this off to work on the code.
string(COMPARE EQUAL "${CMAKE_BUILD_TYPE}" "Release" titan_is_release)
option(TITAN_UNITY "Compile the files of a target in groups" ${titan_is_release})
set(CMAKE_UNITY_BUILD ${TITAN_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 10)

# Paths of this machine would make the same source give other bytes in another folder: names of files are relative.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)

# These flags are only for C++: nvcc (src/cuda) has its own.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Woverloaded-virtual>")
# GCC 12 reports these two falsely on plain std::string concatenation (GCC bugs 105329, 105651).
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict$<SEMICOLON>-Wno-stringop-overflow>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # It takes every function that gets a temporary and returns a reference for one that returns the temporary.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # Line tables only: backtraces and profiles name the line, at no cost in speed.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-g1>)
endif()
if(TITAN_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TITAN_SANITIZE};-fno-omit-frame-pointer>")
  # Objects of the wheel have its own type information, which this check takes for that of another type.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr>)
  add_link_options(-fsanitize=${TITAN_SANITIZE})
endif()

# The engine's includes are rooted at src/, those of plug-ins (models/, data/) at the repository.
set(TITAN_ENGINE_INCLUDE ${CMAKE_SOURCE_DIR}/src)
set(TITAN_PLUGIN_INCLUDE ${CMAKE_SOURCE_DIR})

# For targets that take no significant part of a run's time: -O1 compiles in two thirds of the time of -O3.
set(TITAN_QUICK_OPTIONS -O1)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
   AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13
   AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # These are on at -O3, with which the precompiled header is made, and files without them cannot use the header.
  list(APPEND TITAN_QUICK_OPTIONS -munroll-only-small-loops -mvzeroupper)
endif()
function(titan_compile_quickly)
  foreach(name ${ARGN})
    if(CMAKE_BUILD_TYPE STREQUAL "Release")
      target_compile_options(${name} PRIVATE ${TITAN_QUICK_OPTIONS})
    endif()
  endforeach()
endfunction()

# titan_library(NAME [TORCH] [PLUGIN] SOURCES ... DEPS ...)
#   TORCH   compiles against torch through the shared precompiled header
#   PLUGIN  may also include from the repository root (models/, data/)
function(titan_library name)
  cmake_parse_arguments(arg "TORCH;PLUGIN" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${TITAN_ENGINE_INCLUDE})
  if(arg_PLUGIN)
    target_include_directories(${name} PUBLIC ${TITAN_PLUGIN_INCLUDE})
  endif()
  target_link_libraries(${name} PUBLIC ${arg_DEPS})
  if(arg_TORCH)
    target_link_libraries(${name} PUBLIC titan::torch_cpu)
    target_precompile_headers(${name} REUSE_FROM titan_pch)
  endif()
endfunction()

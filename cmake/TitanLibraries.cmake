# Chooses where the libraries come from (spdlog, SentencePiece, PCRE2, ...): .deps, where scripts/dependencies.py builds
# them, if it exists when a build folder is made; else the distribution.

if(EXISTS ${CMAKE_SOURCE_DIR}/.deps/dependencies.stamp)
  set(titan_deps_default ${CMAKE_SOURCE_DIR}/.deps)
else()
  set(titan_deps_default OFF)
endif()
set(TITAN_DEPS ${titan_deps_default} CACHE PATH "Prefix of libraries that scripts/dependencies.py built, or OFF: the distribution's")

if(TITAN_DEPS)
  if(NOT EXISTS ${TITAN_DEPS}/dependencies.stamp)
    message(FATAL_ERROR "The libraries in ${TITAN_DEPS} are not there, or not whole. Run scripts/dependencies.py, or set TITAN_DEPS=OFF for the distribution's.")
  endif()
  message(STATUS "Libraries come from ${TITAN_DEPS}")
  list(PREPEND CMAKE_PREFIX_PATH ${TITAN_DEPS})
  # torch contains some of these libraries in other versions and exports them: each must use its own.
  file(GLOB titan_archives RELATIVE ${TITAN_DEPS}/lib ${TITAN_DEPS}/lib/*.a)
  list(JOIN titan_archives ":" titan_archives)
  add_link_options(-Wl,--exclude-libs=${titan_archives})
endif()

# Copies the public headers to DESTINATION: library/titan.h and all that it includes. Includes of the engine get the
# folder's name in front, so that users write <titan/titan.h> and no name of ours hides one of theirs.
#
#   cmake -DSOURCE=src -DDESTINATION=include/titan -P install_headers.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${DESTINATION})
set(wanted library/titan.h)
set(copied "")
while(wanted)
  list(POP_FRONT wanted header)
  if(header IN_LIST copied)
    continue()
  endif()
  list(APPEND copied ${header})
  file(READ ${SOURCE}/${header} text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  list(TRANSFORM includes REPLACE "#include \"([^\"]+)\"" "\\1" OUTPUT_VARIABLE included)
  list(APPEND wanted ${included})
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include \"titan/\\1\"" text "${text}")
  file(WRITE ${DESTINATION}/${header} "${text}")
endwhile()
file(RENAME ${DESTINATION}/library/titan.h ${DESTINATION}/titan.h)

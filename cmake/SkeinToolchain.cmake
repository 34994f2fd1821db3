# Language level, warnings, sanitizers and the compiler cache: what every target of Skein shares.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(SKEIN_TESTS "Build the tests" ON)
option(SKEIN_BENCH "Build the benchmarks" ON)
option(SKEIN_LONG_TESTS "Run the long forms of tests: hours" OFF)
option(SKEIN_UNITY "Compile the sources of a room at once, where names permit it" OFF)
set(SKEIN_TEST_OPTIMISATION "" CACHE STRING
    "Compiler option for the tests' own sources, behind those of the build: -O1")
set(SKEIN_CAF_OPTIMISATION "" CACHE STRING
    "The same for the libraries that include CAF: slow to compile, and seldom busy")
set(SKEIN_COLD_OPTIMISATION "" CACHE STRING
    "The same for libraries that are COLD, but not for their HOT rooms: see their CMakeLists.txt")
option(SKEIN_SWEEP "Sweep the invariants of all state machines after every event" OFF)
option(SKEIN_FUZZ "Build the fuzzers (clang only)" OFF)
option(SKEIN_WERROR "Treat warnings as errors" ON)
set(SKEIN_MARCH "native" CACHE STRING
    "Instruction set of the host kernels (-march); use x86-64-v3 for binaries that travel")
set(SKEIN_SANITIZER "" CACHE STRING "Sanitizers, as given to -fsanitize=")

# What most files include, and CAF for those that use it, is precompiled (cmake/SkeinTargets.cmake);
# the compiler cache must be told that this is safe.
find_program(SKEIN_CCACHE ccache)
if(SKEIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${SKEIN_CCACHE})
endif()

find_program(SKEIN_LLD ld.lld)
if(SKEIN_LLD)
  add_link_options(-fuse-ld=lld)
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # -fpch-preprocess: the compiler cache needs it with precompiled headers. -Wrestrict: g++ 12 sees
  # overlaps in every literal + string (its bug 105651). Nor does it know any more that a precompiled
  # header is the system's: it warns of the insides of std::string.
  add_compile_options(-fpch-preprocess -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
                      -Wno-stringop-overread)
endif()
if(SKEIN_SWEEP)
  add_compile_definitions(SKEIN_SWEEP)
endif()
if(SKEIN_WERROR)
  add_compile_options(-Werror)
endif()
if(SKEIN_SANITIZER)
  # GCC 12 takes members of std::regex for uninitialised when it is instrumented (GCC bug 105562).
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # CAF's headers bind null references; every other check of -fsanitize=undefined stays on.
  add_compile_options(-fsanitize=${SKEIN_SANITIZER} -fno-sanitize=null -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  if(SKEIN_SANITIZER MATCHES "undefined")
    # Half of what the compiler spends on undefined behaviour; the address sanitizer sees most of it,
    # and the fuzzers' clang has these checks.
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=alignment,object-size,vptr>)
  endif()
  add_link_options(-fsanitize=${SKEIN_SANITIZER})
endif()

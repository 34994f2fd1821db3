# The functions by which targets of Skein are declared.

# Precompiled headers: the standard library and Abseil for all; Cap'n Proto, CAF, JSON and
# GoogleTest for those who use them. A header belongs here if it is slow to read and seldom changes;
# none of ours is. Sources still include what they use: the headers here are only read faster.
set(SKEIN_PCH_BASE
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <deque> <functional> <limits> <map> <memory>
  <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <tuple> <utility> <variant>
  <vector> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_split.h>)
set(SKEIN_PCH_NET <capnp/message.h> <capnp/serialize.h> <kj/async-io.h>)
set(SKEIN_PCH_CAF
  <caf/actor_system.hpp> <caf/actor_system_config.hpp> <caf/allowed_unsafe_message_type.hpp>
  <caf/scoped_actor.hpp> <caf/send.hpp> <caf/stateful_actor.hpp> <caf/typed_actor.hpp>
  <caf/typed_event_based_actor.hpp>)
set(SKEIN_PCH_JSON <nlohmann/json.hpp>)
set(SKEIN_PCH_TEST <gmock/gmock.h> <gtest/gtest.h>)

# skein_precompiled(NAME base KIND library|test|program HEADERS ... LINK ...)
# Declares the precompiled headers skein_pch_<name>. Programs and libraries need their own, as the
# compiler makes other code for them; tests, too, with SKEIN_TEST_OPTIMISATION.
function(skein_precompiled)
  cmake_parse_arguments(ARG "" "NAME;KIND" "HEADERS;LINK" ${ARGN})
  set(target skein_pch_${ARG_NAME})
  if(ARG_KIND MATCHES "test|program")
    add_executable(${target} ${PROJECT_SOURCE_DIR}/cmake/empty_program.cpp)
    if(ARG_KIND STREQUAL "test")
      target_compile_options(${target} PRIVATE ${SKEIN_TEST_OPTIMISATION})
    endif()
  else()
    add_library(${target} STATIC ${PROJECT_SOURCE_DIR}/cmake/empty.cpp)
    if(ARG_NAME STREQUAL "caf")
      target_compile_options(${target} PRIVATE ${SKEIN_CAF_OPTIMISATION})
    endif()
  endif()
  target_link_libraries(${target} PRIVATE ${ARG_LINK})
  target_precompile_headers(${target} PRIVATE ${ARG_HEADERS})
endfunction()

skein_precompiled(NAME base KIND library HEADERS ${SKEIN_PCH_BASE} LINK absl::status absl::statusor
                  absl::strings)
skein_precompiled(NAME net KIND library HEADERS ${SKEIN_PCH_BASE} ${SKEIN_PCH_NET}
                  LINK absl::status absl::statusor absl::strings CapnProto::capnp CapnProto::kj-async)
skein_precompiled(NAME caf KIND library
                  HEADERS ${SKEIN_PCH_BASE} ${SKEIN_PCH_NET} ${SKEIN_PCH_CAF} ${SKEIN_PCH_JSON}
                  LINK absl::status absl::statusor absl::strings CapnProto::capnp CapnProto::kj-async
                       CAF::core nlohmann_json::nlohmann_json)
if(SKEIN_TESTS)
  skein_precompiled(NAME test KIND test HEADERS ${SKEIN_PCH_BASE} ${SKEIN_PCH_TEST}
                    LINK absl::status absl::statusor absl::strings GTest::gmock GTest::gtest)
  skein_precompiled(NAME caf_test KIND test
                    HEADERS ${SKEIN_PCH_BASE} ${SKEIN_PCH_NET} ${SKEIN_PCH_CAF} ${SKEIN_PCH_JSON}
                            ${SKEIN_PCH_TEST}
                    LINK absl::status absl::statusor absl::strings CapnProto::capnp
                         CapnProto::kj-async CAF::core nlohmann_json::nlohmann_json GTest::gmock
                         GTest::gtest)
endif()
if(SKEIN_BENCH)
  skein_precompiled(NAME bench KIND program HEADERS ${SKEIN_PCH_BASE}
                    LINK absl::status absl::statusor absl::strings)
endif()

# skein_library(NAME plans SOURCES a.cpp b.cpp PRECOMPILED base LINK absl::status [UNITY room ...]
#               [COLD] [HOT room ...])
# Declares the library skein_<name> with the alias skein::<name>. Sources are listed by hand. With
# SKEIN_UNITY the sources of each room of UNITY are compiled as one: a third of the time where they
# include CAF. Names in their unnamed namespaces must then differ, or SKIP_UNITY_BUILD_INCLUSION be set.
# SKEIN_COLD_OPTIMISATION is for all of a library that is COLD but the rooms of HOT, and
# SKEIN_CAF_OPTIMISATION for all of one that includes CAF but these.
function(skein_library)
  cmake_parse_arguments(ARG "COLD" "NAME;PRECOMPILED" "SOURCES;LINK;UNITY;HOT" ${ARGN})
  set(library skein_${ARG_NAME})
  foreach(source ${ARG_SOURCES})
    cmake_path(GET source PARENT_PATH room)
    if(room IN_LIST ARG_HOT)
      list(APPEND hot ${source})
    else()
      list(APPEND sources ${source})
    endif()
    if(room IN_LIST ARG_UNITY)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${room})
    endif()
  endforeach()
  add_library(${library} STATIC ${sources})
  add_library(skein::${ARG_NAME} ALIAS ${library})
  set(targets ${library})
  if(hot)
    add_library(${library}_hot OBJECT ${hot})
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:${library}_hot>)
    list(APPEND targets ${library}_hot)
  endif()
  if(ARG_PRECOMPILED STREQUAL "caf")
    target_compile_options(${library} PRIVATE ${SKEIN_CAF_OPTIMISATION})
  elseif(ARG_COLD)
    target_compile_options(${library} PRIVATE ${SKEIN_COLD_OPTIMISATION})
  endif()
  foreach(target ${targets})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PUBLIC ${ARG_LINK})
    # Those of CAF are compiled as its users are, and do not fit other optimisation.
    if(target STREQUAL library OR NOT ARG_PRECOMPILED STREQUAL "caf")
      target_precompile_headers(${target} REUSE_FROM skein_pch_${ARG_PRECOMPILED})
    endif()
    if(SKEIN_UNITY)
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    endif()
  endforeach()
endfunction()

# Gives a program of tests the precompiled headers that suit what it links. They were compiled with
# GoogleTest's definitions and SKEIN_TEST_OPTIMISATION, so they are for programs that have these, too:
# most of the time of a build goes into tests, which need not be fast.
function(skein_use_test_headers target)
  target_compile_options(${target} PRIVATE ${SKEIN_TEST_OPTIMISATION})
  target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest)
  if("${ARGN}" MATCHES "skein::(actors|cli)")
    target_precompile_headers(${target} REUSE_FROM skein_pch_caf_test)
  else()
    target_precompile_headers(${target} REUSE_FROM skein_pch_test)
  endif()
endfunction()

# skein_tests_<label> builds what the tests of that label need, and no more. `words` are commands and
# variables that may name targets.
function(skein_build_for_label label words)
  if(NOT TARGET skein_tests_${label})
    add_custom_target(skein_tests_${label})
  endif()
  foreach(word ${words})
    if(word MATCHES "TARGET_FILE:([^>]+)>")
      add_dependencies(skein_tests_${label} ${CMAKE_MATCH_1})
    elseif(TARGET ${word})
      add_dependencies(skein_tests_${label} ${word})
    endif()
  endforeach()
endfunction()

# skein_test(NAME plans_student_t SOURCES plans/base/student_t_test.cpp LABELS unit LINK skein::plans
#            [TIMEOUT 60] [ARGS ...] [ENVIRONMENT A=1])
# Declares one GoogleTest program that ctest runs whole.
function(skein_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;LABELS;LINK;ARGS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${ARG_NAME}_test ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME}_test PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest
                        GTest::gtest_main)
  skein_use_test_headers(${ARG_NAME}_test ${ARG_LINK})
  skein_add_test(${ARG_NAME} ${ARG_NAME}_test "${ARG_LABELS}" ${ARG_ARGS})
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "${SKEIN_TEST_ENVIRONMENT};${ARG_ENVIRONMENT}")
  skein_label_subject(ARG_LABELS ${ARG_NAME})
  foreach(label ${ARG_LABELS})
    skein_build_for_label(${label} "${ARG_ENVIRONMENT}")
  endforeach()
endfunction()

# Appends to the labels in `variable`, those of a unit test, what it tests: decisions, which are
# calculations on values (plans/), or effects, which touch memory, threads, files or links.
function(skein_label_subject variable name)
  set(list ${${variable}})
  if("unit" IN_LIST list)
    if(name MATCHES "^plans_")
      list(APPEND list decisions)
    else()
      list(APPEND list effects)
    endif()
  endif()
  set(${variable} ${list} PARENT_SCOPE)
endfunction()

# Has ctest run a GoogleTest program as the test `name` with these labels and arguments.
function(skein_add_test name program labels)
  skein_label_subject(labels ${name})
  add_test(NAME ${name} COMMAND ${program} ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 120
                       ENVIRONMENT "${SKEIN_TEST_ENVIRONMENT}")
  foreach(label ${labels})
    skein_build_for_label(${label} ${program})
  endforeach()
endfunction()

# skein_unit_tests(plans ROOM sync UNITS sdpipe prague [WITH sync/policy_driver.cpp]
#                  [LABELS threads] LINK skein::plans)
# Declares the test plans_<unit> of each <room>/<unit>_test.cpp, linked with the sources of WITH,
# which are compiled once for all tests. The label threads: the thread sanitizer watches it, too.
# With SKEIN_UNITY the tests of a room are compiled as one program, and each runs its suites there;
# names in their unnamed namespaces must then differ.
function(skein_unit_tests folder)
  cmake_parse_arguments(ARG "" "ROOM" "UNITS;WITH;LABELS;LINK" ${ARGN})
  set(shared)
  foreach(source ${ARG_WITH})
    skein_shared_source(object ${source} "${ARG_LINK}")
    list(APPEND shared ${object})
  endforeach()
  foreach(unit ${ARG_UNITS})
    set(source ${ARG_ROOM}/${unit}_test.cpp)
    if(SKEIN_UNITY)
      skein_room_program(program ${folder} ${ARG_ROOM} "${ARG_LINK}")
      target_sources(${program} PRIVATE ${source})
      target_link_libraries(${program} PRIVATE ${shared})
      skein_suites_of(suites ${source})
      skein_add_test(${folder}_${unit} ${program} "unit;${ARG_LABELS}" --gtest_filter=${suites})
    else()
      skein_test(NAME ${folder}_${unit} SOURCES ${source}
        LABELS unit ${ARG_LABELS} LINK ${shared} ${ARG_LINK})
    endif()
  endforeach()
endfunction()

# Sets `result` to the program of all unit tests of a room that link the same libraries:
# plans_elastic_tests, net_tests; plans_profile_gpu_tests for those that link another folder's.
function(skein_room_program result folder room libraries)
  string(REPLACE "skein::" "" others "${libraries}")
  if(folder MATCHES "^${others}")
    set(others)
  endif()
  string(REGEX REPLACE "[.;_]+" "_" program "${folder};${room};${others};tests")
  if(NOT TARGET ${program})
    add_executable(${program})
    target_link_libraries(${program} PRIVATE ${libraries} GTest::gmock GTest::gtest
                          GTest::gtest_main)
    skein_use_test_headers(${program} "${libraries}")
    set_target_properties(${program} PROPERTIES UNITY_BUILD ON)
  endif()
  set(${result} ${program} PARENT_SCOPE)
endfunction()

# Sets `result` to GoogleTest's filter for the suites of a source, which is read again when it changes.
function(skein_suites_of result source)
  file(STRINGS ${source} lines REGEX "^(TYPED_)?TEST(_F|_P)?\\(")
  set(suites)
  foreach(line ${lines})
    string(REGEX REPLACE "^[A-Z_]*\\(([A-Za-z0-9_]+).*" "\\1" suite ${line})
    list(APPEND suites "${suite}.*" "*/${suite}.*" "${suite}/*")
  endforeach()
  if(NOT suites)
    message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/${source} has no tests.")
  endif()
  list(REMOVE_DUPLICATES suites)
  string(REPLACE ";" ":" suites "${suites}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  set(${result} ${suites} PARENT_SCOPE)
endfunction()

# Sets `result` to a target that brings the object of a source that several tests use.
function(skein_shared_source result source libraries)
  cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  string(MAKE_C_IDENTIFIER shared_${source} target)
  if(NOT TARGET ${target})
    add_library(${target} OBJECT ${PROJECT_SOURCE_DIR}/${source})
    target_link_libraries(${target} PRIVATE ${libraries})
    # As programs are compiled, or their precompiled headers do not fit.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIE)
    skein_use_test_headers(${target} ${libraries})
  endif()
  set(${result} ${target} PARENT_SCOPE)
endfunction()

# skein_program_test(NAME e2e_layouts COMMAND bash e2e/layouts.sh LABELS e2e [TIMEOUT 120]
#                    [PROCESSORS 4])
# Declares a test that is a program or a script. Exit code 77 means skipped, and is shown as such.
# With PROCESSORS it takes so many places among the tests that run side by side, of which tests/run.sh
# has two for each processor in a release: with 4, no test runs beside it on two.
function(skein_program_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT;PROCESSORS" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  if(SKEIN_LONG_TESTS)
    set(ARG_TIMEOUT 7200)
  elseif(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  skein_label_subject(ARG_LABELS ${ARG_NAME})
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests)
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                       SKIP_RETURN_CODE 77
                       ENVIRONMENT "${SKEIN_TEST_ENVIRONMENT};${ARG_ENVIRONMENT}")
  if(ARG_PROCESSORS)
    set_tests_properties(${ARG_NAME} PROPERTIES PROCESSORS ${ARG_PROCESSORS})
  endif()
  foreach(label ${ARG_LABELS})
    skein_build_for_label(${label} "${ARG_COMMAND};${ARG_ENVIRONMENT}")
  endforeach()
endfunction()

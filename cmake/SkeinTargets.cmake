# The functions by which targets of Skein are declared.

# skein_library(NAME plans SOURCES a.cpp b.cpp LINK absl::status)
# Declares the library skein_<name> with the alias skein::<name>. Sources are listed by hand.
function(skein_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${PROJECT_SOURCE_DIR}/cmake/empty.cpp)
  endif()
  add_library(skein_${ARG_NAME} STATIC ${ARG_SOURCES})
  add_library(skein::${ARG_NAME} ALIAS skein_${ARG_NAME})
  target_include_directories(skein_${ARG_NAME} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(skein_${ARG_NAME} PUBLIC ${ARG_LINK})
endfunction()

# skein_test(NAME plans_split SOURCES plans/split_test.cpp LABELS unit LINK skein::plans
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
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME}_test ${ARG_ARGS}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "${SKEIN_TEST_ENVIRONMENT};${ARG_ENVIRONMENT}")
endfunction()

# skein_program_test(NAME e2e_layouts COMMAND bash e2e/layouts.sh LABELS e2e [TIMEOUT 120])
# Declares a test that is a program or a script. Exit code 77 means skipped, and is shown as such.
function(skein_program_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests)
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                       SKIP_RETURN_CODE 77
                       ENVIRONMENT "${SKEIN_TEST_ENVIRONMENT};${ARG_ENVIRONMENT}")
endfunction()

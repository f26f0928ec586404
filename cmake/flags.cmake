# flags.cmake - language, hardening, warnings, sanitizers.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(type RelWithDebInfo)
    if(SNIB_SANITIZE)
        set(type Debug)
    endif()
    set(CMAKE_BUILD_TYPE ${type} CACHE STRING "Debug keeps the assertions" FORCE)
endif()
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")

add_compile_options(-fstack-protector-strong)
add_link_options(-Wl,-z,relro -Wl,-z,now)
if(SNIB_SANITIZE)
    # With assertions, and hardly optimized, which takes half the time to compile.  A report needs functions and lines; the
    # debug information of types and variables takes another eighth of the time.
    add_compile_options(-fsanitize=${SNIB_SANITIZE} -fno-sanitize-recover=all -O1 -g1 -UNDEBUG -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${SNIB_SANITIZE})
else()
    # Some compilers predefine another level, which must be undefined first.  One group: of equal options CMake keeps one.
    add_compile_options("$<$<NOT:$<CONFIG:Debug>>:SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>")
endif()

# What tests do takes no time, and compiling it took a third of all the time of a run: so the programs of tests are not
# optimized, except simulators.  Optimization sees more to warn about: with SNIB_TEST_ALL in the environment they are.
option(SNIB_TESTS_OPTIMIZED "Optimize the programs of tests" OFF)
add_library(snib_test_code INTERFACE)
if(NOT SNIB_TESTS_OPTIMIZED AND "$ENV{SNIB_TEST_ALL}" STREQUAL "")
    target_compile_options(snib_test_code INTERFACE -O0 -U_FORTIFY_SOURCE -Wno-format-truncation)
endif()

# Half of what compiling with sanitizers takes is the checks for undefined behaviour: the core has them, what tests do in
# addition only with SNIB_TEST_ALL.
add_library(snib_test_lenient INTERFACE)
if(SNIB_SANITIZE MATCHES undefined AND "$ENV{SNIB_TEST_ALL}" STREQUAL "")
    target_compile_options(snib_test_lenient INTERFACE -fno-sanitize=undefined)
endif()
target_link_libraries(snib_test_code INTERFACE snib_test_lenient)

# ./dev coverage: the core's branches are counted as they are written, without those of its assertions.
option(SNIB_COVERAGE "Count what the core executes" OFF)
add_library(snib_counted INTERFACE)
if(SNIB_COVERAGE)
    target_compile_options(snib_counted INTERFACE
        --coverage -fprofile-update=atomic -O0 -DNDEBUG -U_FORTIFY_SOURCE)
    add_link_options(--coverage)
endif()

# A hundred programs contain the core; gold, where it is installed, links them in half the time.
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=gold SNIB_GOLD)
if(SNIB_GOLD AND SNIB_SANITIZE)
    add_link_options(-fuse-ld=gold)
elseif(SNIB_GOLD)
    target_link_options(snib_test_code INTERFACE -fuse-ld=gold)
endif()

# For hand-written code; generated code is compiled without these.  Errors they are without sanitizers only: with them the
# compiler warns of what it has itself inserted.
set(warnings_are_errors OFF)
if(SNIB_WERROR AND NOT SNIB_SANITIZE)
    set(warnings_are_errors ON)
endif()
add_library(snib_warnings INTERFACE)
target_compile_options(snib_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wno-overlength-strings -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    $<$<BOOL:${warnings_are_errors}>:-Werror>)

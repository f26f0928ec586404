# testing.cmake - the test kit: memory servers in a library of its own, so that the core needs no Lua.
#
# It needs liblua5.1 and exports only the functions of snib_testing.h.  Without Lua it is left out.
# Wheels have it as snib/libsnib-testing.so, which snib.testing loads.
find_path(SNIB_LUA_INCLUDE lua.h PATH_SUFFIXES lua5.1)
find_library(SNIB_LUA_LIBRARY NAMES lua5.1)
mark_as_advanced(SNIB_LUA_INCLUDE SNIB_LUA_LIBRARY)
set(SNIB_TESTING OFF)
if(NOT SNIB_LUA_INCLUDE OR NOT SNIB_LUA_LIBRARY)
    message(STATUS "No Lua 5.1 (Debian: liblua5.1-0-dev): the test kit is left out")
    return()
endif()
set(SNIB_TESTING ON)

file(GLOB testing_sources CONFIGURE_DEPENDS core/testing/*.c)
add_library(snib_testing SHARED ${testing_sources})
target_compile_definitions(snib_testing PRIVATE _GNU_SOURCE)
target_include_directories(snib_testing
    PRIVATE ${PROJECT_SOURCE_DIR}/core ${SNIB_LUA_INCLUDE}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/core/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(snib_testing PRIVATE snib_warnings ${SNIB_LUA_LIBRARY} m Threads::Threads)
target_link_options(snib_testing PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/snib.map -Wl,-z,nodelete)
set_target_properties(snib_testing PROPERTIES OUTPUT_NAME snib-testing EXPORT_NAME testing)

if(SKBUILD)
    target_compile_definitions(snib_testing PRIVATE SNIB_TESTING_APART)
    install(TARGETS snib_testing LIBRARY DESTINATION snib COMPONENT python)
else()
    set_target_properties(snib_testing PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()

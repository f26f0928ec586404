# install.cmake - the C package: header, libraries, pkg-config, CMake package, command, manual page.
#
# No installed file contains the prefix, so the tree can be moved.

include(CMakePackageConfigHelpers)

install(TARGETS snib_shared snib_static EXPORT snibTargets)
install(FILES core/include/snib.h core/include/snib_fencing.h TYPE INCLUDE)

# Requires.private would ask every user for the .pc files of hiredis and uuid and leak their flags
# into --cflags, though the header needs neither; so snib.pc lists plain private libraries.
file(RELATIVE_PATH to_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
configure_file(cmake/snib.pc.in snib.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/snib.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(SNIB_TESTING)
    install(TARGETS snib_testing EXPORT snibTargets)
    install(FILES core/include/snib_testing.h TYPE INCLUDE)
    configure_file(cmake/snib-testing.pc.in snib-testing.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/snib-testing.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/snib)
write_basic_package_version_file(snibConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(cmake/snibConfig.cmake.in snibConfig.cmake COPYONLY)
install(FILES ${PROJECT_BINARY_DIR}/snibConfig.cmake ${PROJECT_BINARY_DIR}/snibConfigVersion.cmake
        DESTINATION ${package})
install(EXPORT snibTargets NAMESPACE snib:: DESTINATION ${package})

if(SNIB_CLI)
    install(TARGETS snib_command)
    install(FILES core/cli/snib.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(DIRECTORY core/cli/schemas DESTINATION ${CMAKE_INSTALL_DATADIR}/snib)
endif()

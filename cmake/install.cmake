# make install: headers, libraries, pkg-config file and CMake package.
include(CMakePackageConfigHelpers)

if(NOT CT_TOP_LEVEL)
    # A project that embeds the library decides itself what it installs.
    return()
endif()

set(ct_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Cotangent)
install(FILES include/cotangent.h include/cotangent.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/cotangent DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CT_GENERATED_DIR}/include/cotangent/ops.h ${CT_GENERATED_DIR}/include/cotangent/enums.h
    ${CT_GENERATED_DIR}/include/cotangent/layouts.h ${CT_GENERATED_DIR}/include/cotangent/ops.hpp ${CT_OPTION_HEADERS}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cotangent)
# The reference of the ops, as the build has written it: one page, and a manual page for each.
install(FILES ${CT_GENERATED_DIR}/docs/ops.html DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/cotangent)
install(DIRECTORY ${CT_GENERATED_DIR}/docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 FILES_MATCHING PATTERN "*.3")
install(FILES ${CT_GENERATED_DIR}/docs/man/cotangent-ops.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)
install(TARGETS cotangent cotangent_static EXPORT CotangentTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT CotangentTargets NAMESPACE Cotangent:: DESTINATION ${ct_package_dir})

configure_package_config_file(cmake/CotangentConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/CotangentConfig.cmake
    INSTALL_DESTINATION ${ct_package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/CotangentConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/CotangentConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/CotangentConfigVersion.cmake
    DESTINATION ${ct_package_dir})

# The file finds its prefix from its own place, so that an installed tree can be moved.
file(RELATIVE_PATH ct_prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/cotangent.pc.in ${CMAKE_CURRENT_BINARY_DIR}/cotangent.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cotangent.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

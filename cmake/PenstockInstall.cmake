# Installs the libraries, headers and tools, and the package that find_package(penstock) reads.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY PENSTOCK_LIBRARIES)
install(TARGETS ${libraries} penstock
        EXPORT penstockTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/penstock)

get_property(tools GLOBAL PROPERTY PENSTOCK_TOOL_TARGETS)
if(tools)
  install(TARGETS ${tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/penstock)
install(EXPORT penstockTargets NAMESPACE penstock:: DESTINATION ${package_dir})
configure_package_config_file(cmake/penstockConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/penstockConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/penstockConfig.cmake
              ${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake
              cmake/FindNCCL.cmake
        DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# cmake --install: the libraries, the headers, the command, and what finds them: the CMake package `cistern`
# and pkg-config's `cistern`. Both are relocatable: they find the rest from where they are.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(CISTERN_PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/cistern)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cistern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
# In two lists: the shared library needs nothing of the consumer, the archive needs fmt to be found.
install(TARGETS cistern cistern_include EXPORT cisternTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS cistern_archive EXPORT cisternStaticTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(targets IN ITEMS cisternTargets cisternStaticTargets)
  install(EXPORT ${targets} NAMESPACE cistern:: DESTINATION ${CISTERN_PACKAGE_FOLDER})
endforeach()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/cisternConfig.cmake.in
  ${PROJECT_BINARY_DIR}/package/cisternConfig.cmake INSTALL_DESTINATION ${CISTERN_PACKAGE_FOLDER}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change what programs are written against.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/cisternConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/cisternConfig.cmake ${PROJECT_BINARY_DIR}/package/cisternConfigVersion.cmake
  DESTINATION ${CISTERN_PACKAGE_FOLDER})

file(RELATIVE_PATH CISTERN_PREFIX_FROM_PKG_CONFIG
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/cistern.pc.in ${PROJECT_BINARY_DIR}/package/cistern.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/cistern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET cistern_command AND CISTERN_BUILD_TOOLS)
  install(TARGETS cistern_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

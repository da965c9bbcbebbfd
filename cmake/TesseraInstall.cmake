# Installs Tessera with `cmake --install build --prefix P`. Your own project then uses
#   find_package(Tessera REQUIRED)
#   target_link_libraries(app PRIVATE tessera::training)      # or ::tessera (models, objectives), ::data, ::evaluation
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY TESSERA_LIBRARIES)
get_property(programs GLOBAL PROPERTY TESSERA_PROGRAMS)
foreach(library IN LISTS libraries)
  string(REGEX REPLACE "^tessera_" "" exported ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${exported})
  add_library(tessera::${exported} ALIAS ${library})
endforeach()

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(TARGETS ${libraries} EXPORT TesseraTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
get_property(behind GLOBAL PROPERTY TESSERA_PROGRAMS_BEHIND)
if(behind)
  # The front ends look for ../libexec/tessera relative to their own folder.
  install(TARGETS ${behind} RUNTIME DESTINATION libexec/tessera)
endif()
# `ninja programs` builds the programs that the quick start needs, without the tests, and all that is installed.
add_custom_target(programs DEPENDS ${programs} ${behind} ${libraries})
foreach(library tessera_arrow tessera_shared)
  if(TARGET ${library})
    add_dependencies(programs ${library})
  endif()
endforeach()
if(TARGET tessera_shared)
  install(TARGETS tessera_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})  # for python/tessera
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Installs docs and configurations next to each other, because the pages refer to the configurations by relative paths. The operators look
# for tuning tables there, too.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/tuning
        DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
# Next to the configurations, where trainer --from-open-clip looks for it.
install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/log_to_wandb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/scripts)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera
        FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/VERSION "${PROJECT_VERSION}\n")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/VERSION DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(EXPORT TesseraTargets NAMESPACE tessera:: DESTINATION ${config_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TesseraConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/TesseraConfig.cmake
                              INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TesseraConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/TesseraConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/TesseraPackages.cmake
        DESTINATION ${config_dir})

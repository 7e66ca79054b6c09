# The cotangent command. It links the archive: `check` and `bench` look at internals, and one file is easy to copy.
# `check` is the same sweep over the op table as in the tests (cmake/support.cmake).
include(cmake/assets.cmake)
file(GLOB CT_CLI_SOURCES CONFIGURE_DEPENDS cli/*.c cli/*/*.c)
add_executable(cotangent_cli ${CT_CLI_SOURCES} ${CT_ASSETS_C})
set_target_properties(cotangent_cli PROPERTIES OUTPUT_NAME cotangent)
ct_target_flags(cotangent_cli)
ct_foreign_definitions(cotangent_cli)
target_link_libraries(cotangent_cli PRIVATE ct_test_support cotangent_internal m)
if(CT_TOP_LEVEL)
    install(TARGETS cotangent_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(FILES ${CT_RECIPES} DESTINATION ${CMAKE_INSTALL_DATADIR}/cotangent/recipes)
    install(FILES docs/man/cotangent.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES tools/completion/cotangent.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME cotangent)
    install(FILES tools/completion/_cotangent DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES tools/completion/cotangent.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

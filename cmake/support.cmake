# What the tests share: the harness, whose main a test program gets by not having its own, and the sweep over the op
# table, which `cotangent check` runs too, and AMX in software. An archive, so that a program with a main of its own takes none from it.
file(GLOB CT_SUPPORT_SOURCES CONFIGURE_DEPENDS tests/harness*.c tests/opcheck*.c tests/amx_*.c)
add_library(ct_test_support STATIC ${CT_SUPPORT_SOURCES})
ct_target_flags(ct_test_support)
set_target_properties(ct_test_support PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
target_link_libraries(ct_test_support PUBLIC cotangent_internal m)

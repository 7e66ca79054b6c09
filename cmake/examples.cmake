# One executable a file. They link the shared library, as a user's program would.
file(GLOB CT_EXAMPLE_SOURCES CONFIGURE_DEPENDS examples/*.c)
foreach(source ${CT_EXAMPLE_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/examples)
    ct_target_flags(example_${name})
    target_link_libraries(example_${name} PRIVATE cotangent m)
endforeach()

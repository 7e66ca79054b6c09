# Runs mkops, which turns ops/ into the op table, ops.h, glue, kernel lists and elementwise kernels.
set(CT_GENERATED_DIR ${CMAKE_CURRENT_BINARY_DIR}/generated)
set(CT_MKOPS "" CACHE FILEPATH "A ready mkops to run (for cross compiling without an emulator)")

# Only files of these names are written; mkops splits the elementwise kernels into a fixed number of parts so
# that they compile in parallel.
set(CT_GENERATED_SOURCES)
set(CT_GENERATED_ISA_SOURCES)
foreach(name ops_api.c ops_table.c elementwise.c layers_table.c)
    list(APPEND CT_GENERATED_SOURCES ${CT_GENERATED_DIR}/gen/${name})
endforeach()
foreach(part RANGE 0 7)
    list(APPEND CT_GENERATED_ISA_SOURCES ${CT_GENERATED_DIR}/gen/cpu/elementwise_${part}.c)
    list(APPEND CT_GENERATED_CUDA_SOURCES ${CT_GENERATED_DIR}/gen/cuda/elementwise_${part}.cu)
endforeach()
# Public headers whose functions take options by name: the macros for that are written from them, and the table of layers.
set(CT_HEADERS_WITH_OPTIONS nn optim train data io dist)
set(CT_OPTION_HEADERS)
set(ct_option_sources)
foreach(name ${CT_HEADERS_WITH_OPTIONS})
    list(APPEND CT_OPTION_HEADERS ${CT_GENERATED_DIR}/include/cotangent/${name}_options.h)
    list(APPEND ct_option_sources ${CMAKE_CURRENT_SOURCE_DIR}/include/cotangent/${name}.h)
endforeach()
set(CT_GENERATED_HEADERS
    ${CT_GENERATED_DIR}/include/cotangent/enums.h
    ${CT_GENERATED_DIR}/include/cotangent/layouts.h
    ${CT_GENERATED_DIR}/include/cotangent/ops.h
    ${CT_GENERATED_DIR}/include/cotangent/ops.hpp
    ${CT_OPTION_HEADERS}
    ${CT_GENERATED_DIR}/gen/ops_decl.h
    ${CT_GENERATED_DIR}/gen/ops_short.h
    ${CT_GENERATED_DIR}/gen/kernels_cpu.inc
    ${CT_GENERATED_DIR}/gen/kernels_cuda.inc
    ${CT_GENERATED_DIR}/gen/kernels_webgpu.inc
    ${CT_GENERATED_DIR}/gen/cuda/elementwise.inc
    ${CT_GENERATED_DIR}/gen/cuda/formulas.inc
    ${CT_GENERATED_DIR}/gen/webgpu/elementwise.inc
    ${CT_GENERATED_CUDA_SOURCES}
    ${CT_GENERATED_DIR}/docs/ops.md
    ${CT_GENERATED_DIR}/docs/ops.html)

file(GLOB CT_MKOPS_SOURCES CONFIGURE_DEPENDS tools/mkops/*.c tools/mkops/*.h)
file(GLOB CT_OP_FILES CONFIGURE_DEPENDS ops/*/*.def)
# Kernels are found by place: what counts of their files is that they are there, so mkops runs again when this list changes.
file(GLOB ct_kernel_files CONFIGURE_DEPENDS ops/*/*/*.c ops/*/*/*.cu)
file(CONFIGURE OUTPUT ${CT_GENERATED_DIR}/kernel_files CONTENT "${ct_kernel_files}\n" @ONLY)
list(APPEND CT_OP_FILES ${CT_GENERATED_DIR}/kernel_files)

if(CT_MKOPS)
    set(ct_mkops_command ${CT_MKOPS})
else()
    add_executable(mkops ${CT_MKOPS_SOURCES})
    set_target_properties(mkops PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF)
    target_compile_definitions(mkops PRIVATE _GNU_SOURCE)
    target_compile_options(mkops PRIVATE -O1 -Wall -Wextra -Wshadow -Wpedantic -Wno-overlength-strings)
    target_include_directories(mkops PRIVATE tools/mkops)
    set(ct_mkops_command mkops)
endif()

# The stamp is the output and the files are byproducts because mkops leaves a file alone when its text would
# not change: editing one op then recompiles what that op touches, not the library.
add_custom_command(
    OUTPUT ${CT_GENERATED_DIR}/mkops.stamp
    BYPRODUCTS ${CT_GENERATED_SOURCES} ${CT_GENERATED_ISA_SOURCES} ${CT_GENERATED_HEADERS}
    COMMAND ${CMAKE_COMMAND} -E make_directory
        ${CT_GENERATED_DIR}/gen ${CT_GENERATED_DIR}/docs ${CT_GENERATED_DIR}/include/cotangent
    COMMAND ${ct_mkops_command} ${CMAKE_CURRENT_SOURCE_DIR}/ops ${CT_GENERATED_DIR}
        ${CMAKE_CURRENT_SOURCE_DIR}/include/cotangent ${CT_HEADERS_WITH_OPTIONS}
    COMMAND ${CMAKE_COMMAND} -E touch ${CT_GENERATED_DIR}/mkops.stamp
    DEPENDS ${ct_mkops_command} ${CT_OP_FILES} ${ct_option_sources}
    COMMENT "Generating the op table from ops/"
    VERBATIM)
add_custom_target(ct_generated DEPENDS ${CT_GENERATED_DIR}/mkops.stamp)

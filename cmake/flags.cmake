# Compiler flags of everything that is built here, in one place. Applied target by target, so that a project
# which uses add_subdirectory keeps its own flags, and so that mkops, a tool of the build, is never instrumented.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)

set(CT_SANITIZE "" CACHE STRING "Sanitizers to build with, as for -fsanitize= (address,undefined or thread)")
option(CT_WERROR "Treat warnings as errors" OFF)
find_package(Threads REQUIRED)

# Kernels: what -O3 gives that they use, the vectorizer and the unrolling of short loops. Its other copies of loops (for
# strides, conditions, constant arguments, the ends of vectors) made the library half as large again and no faster.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(CT_KERNEL_OPTIMIZATION -O2 -ftree-vectorize -fvect-cost-model=dynamic -fpeel-loops --param=vect-epilogues-nomask=0)
else()
    # Clang unrolls loops whose length it does not know, and by four those it has vectorized: the ends of all these made kernels a
    # third larger. Where unrolling pays it is asked for by name.
    set(CT_KERNEL_OPTIMIZATION -O2)
    set(CT_LOOPS_ONCE "")
    foreach(option unroll-runtime=false unroll-allow-partial=false force-vector-interleave=1)
        string(MAKE_C_IDENTIFIER "CT_COMPILES_${option}" known)
        check_c_compiler_flag("-mllvm -${option}" ${known})
        if(${known})
            list(APPEND CT_LOOPS_ONCE "SHELL:-mllvm -${option}")
        endif()
    endforeach()
    list(APPEND CT_KERNEL_OPTIMIZATION ${CT_LOOPS_ONCE})
endif()

# ct_target_flags(TARGET [KERNEL]): KERNEL is for the loops that want the vectorizer and use vector extensions.
function(ct_target_flags target)
    cmake_parse_arguments(ARG "KERNEL" "" "" ${ARGN})
    set_target_properties(${target} PROPERTIES
        C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
        C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE $<$<CONFIG:Debug>:CT_DEBUG=1>)
    target_include_directories(${target} PRIVATE
        ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include ${CT_GENERATED_DIR} ${CT_GENERATED_DIR}/include)

    # -ffp-contract=off: a*b+c must not become one rounding on some ISAs and two on others; kernels that want a
    # fused multiply-add say so. The other two cost nothing that this library promises and let loops vectorize.
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wshadow -Wstrict-prototypes
        -ffp-contract=off -fno-math-errno -fno-trapping-math -ftls-model=initial-exec)
    if(NOT ARG_KERNEL)
        target_compile_options(${target} PRIVATE -Wpedantic -Wmissing-prototypes)
    endif()
    if(CT_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()

    if(CT_SANITIZE)
        target_compile_options(${target} PRIVATE
            -O1 -g -fno-omit-frame-pointer -fsanitize=${CT_SANITIZE} -fno-sanitize-recover=all)
        target_link_libraries(${target} PRIVATE -fsanitize=${CT_SANITIZE})
    elseif(ARG_KERNEL)
        # Nothing is thrown through a kernel, so it carries no tables for unwinding.
        target_compile_options(${target} PRIVATE
            "$<$<NOT:$<CONFIG:Debug>>:${CT_KERNEL_OPTIMIZATION};-fno-asynchronous-unwind-tables>")
    else()
        target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O2>)
    endif()
endfunction()

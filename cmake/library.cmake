# libcotangent, shared and static, from the same objects.

file(GLOB CT_ONCE_SOURCES CONFIGURE_DEPENDS
    core/*.c core/passes/*.c ops/*.c ops/*/*.c ops/*/cpu/once/*.c backends/cpu/*.c backends/cpu/gemm/*.c
    support/*.c nn/*.c nn/*/*.c optim/*.c data/*.c io/*.c metrics/*.c dist/*.c)
# CPU kernels lie in ops/NAME/cpu/ and are compiled for each level of vector instructions, but for those in its once/.
file(GLOB CT_ISA_SOURCES CONFIGURE_DEPENDS ops/*/cpu/*.c ops/*/cpu/*/*.c backends/cpu/kernels.c backends/cpu/isa/*.c)
list(FILTER CT_ISA_SOURCES EXCLUDE REGEX "/cpu/once/")
# The GEMM micro-kernels alone also have versions for products of bf16.
file(GLOB CT_GEMM_ISA_SOURCES CONFIGURE_DEPENDS backends/cpu/gemm/kernel*.c)
list(REMOVE_ITEM CT_ONCE_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/backends/cpu/kernels.c ${CT_GEMM_ISA_SOURCES})

# What runs once per call is built to be small: checks of shapes, derivatives and lowerings (ops/NAME/), layers and files.
# What runs once per element or per chunk is built to be fast: kernels and their drivers (ops/NAME/cpu/), and the core and the
# machinery of the backend, which every call passes through.
set(ct_small_sources ${CT_ONCE_SOURCES} ${CT_GENERATED_SOURCES})
list(FILTER ct_small_sources INCLUDE REGEX
    "/(ops|gen|nn|io|dist|support)/|/optim/(schedule|state|lbfgs)|/data/(dataset|combine|folder|csv_state|transform_table|vocabulary)")
list(FILTER ct_small_sources EXCLUDE REGEX # these have loops over pixels or numbers, or are passed by what every layer calls
    "/ops/[^/]*/cpu/|/ops/geometry|/(io/image|support/resample|nn/orthogonal|nn/forward|nn/cache|nn/module)")
set_source_files_properties(${ct_small_sources} PROPERTIES COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-Os>")

# Kernels with a version for every dtype, whose short loops are not where their time goes (the polynomials of vector functions are unrolled by
# name): peeled, they would be half as large again, and filled up between loops a twentieth.
set(ct_plain_sources
    ops/scan/cpu/scan.c ops/reduce/cpu/extrema.c ops/reduce/cpu/arg.c ops/reduce/cpu/prod.c ops/index/cpu/rows_sum.c
    ops/index/cpu/mask.c ops/sort/cpu/bins.c ops/softmax/cpu/softmax.c ops/softmax/cpu/logsumexp.c ops/cast/cpu/cast.c
    ops/reduce/cpu/truth.c ops/create/cpu/create.c ops/create/cpu/sequence.c ops/check/cpu/check.c ops/loss/cpu/ctc.c
    ops/random/cpu/multinomial.c ops/index/cpu/scatter.c)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set_source_files_properties(${ct_plain_sources} ${CT_GENERATED_ISA_SOURCES} PROPERTIES COMPILE_OPTIONS
        "$<$<NOT:$<CONFIG:Debug>>:-fno-peel-loops;-falign-loops=1;-falign-jumps=1;-falign-labels=1;-falign-functions=16>")
    # Here the short loops are the ends of vectorized ones, which gcc would write out up to fifteen times.
    set_source_files_properties(
        ops/random/cpu/random.c ops/random/cpu/truncated.c ops/index/cpu/scatter_add.c
        ops/reduce/cpu/norm.c ops/matmul/cpu/matmul.c ops/view/cpu/strided.c ops/pad/cpu/pad_constant.c
        backends/cpu/gemm/kernel_finish.c backends/cpu/gemm/kernel_pack.c
        PROPERTIES COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-fno-peel-loops>")
else()
    # Clang's -Os still has vectorized copies of loops, which the baseline can do without; above it, it has none where they are wanted.
    set(ct_base "$<STREQUAL:$<TARGET_PROPERTY:NAME>,ct_cpu_base>")
    set_source_files_properties(${ct_plain_sources} ${CT_GENERATED_ISA_SOURCES} PROPERTIES COMPILE_OPTIONS
        "$<$<AND:$<NOT:$<CONFIG:Debug>>,${ct_base}>:-Oz>")
    # Loops that wait for memory are no slower where they are small.
    set_property(SOURCE ops/index/cpu/scatter.c APPEND PROPERTY COMPILE_OPTIONS
        "$<$<NOT:$<OR:$<CONFIG:Debug>,${ct_base}>>:-Os>")
    # Loops of vectors, unrolled by hand: what clang adds to them is a third of their size and no speed.
    set_property(SOURCE ops/softmax/cpu/softmax.c ops/softmax/cpu/logsumexp.c ops/reduce/cpu/extrema.c ops/attention/cpu/sdpa_backward.c
        APPEND PROPERTY COMPILE_OPTIONS "$<$<NOT:$<OR:$<CONFIG:Debug>,${ct_base}>>:-Os>")
    # These want what -O3 does beyond -O2: choices that are the same for a whole loop outside of it.
    set_property(SOURCE ops/sort/cpu/bins.c ops/reduce/cpu/arg.c ops/cast/cpu/cast.c ops/scan/cpu/scan.c
        APPEND PROPERTY COMPILE_OPTIONS "$<$<NOT:$<OR:$<CONFIG:Debug>,${ct_base}>>:-O3>")
endif()

# Clang 16 ends in endless recursion where it asks what it costs to broadcast a pair of bf16.
if(CMAKE_C_COMPILER_ID STREQUAL "Clang" AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 16 AND CMAKE_C_COMPILER_VERSION VERSION_LESS 17)
    set_property(SOURCE ops/conv/cpu/grouped/grouped.c backends/cpu/gemm/kernel_bf16.c
        APPEND PROPERTY COMPILE_OPTIONS -mllvm -disable-vector-combine)
endif()

# Kernels that wait for memory, for one another or for branches: vectors of 512 bits bring them nothing, so that level has those of AVX2.
set(ct_narrow_sources
    ops/index/cpu/scatter.c ops/index/cpu/scatter_add.c ops/index/cpu/gather.c ops/index/cpu/mask.c ops/sort/cpu/bins.c ops/sort/cpu/sort.c
    ops/loss/cpu/ctc.c ops/random/cpu/multinomial.c ops/random/cpu/truncated.c ops/reduce/cpu/truth.c
    ops/reduce/cpu/prod.c ops/scan/cpu/scan.c)
set(ct_narrow_names "")
foreach(source ${ct_narrow_sources})
    string(REGEX REPLACE "^ops/([^/]*)/cpu/([^/]*)\\.c$" "ct__kernels_\\1_\\2" name ${source})
    string(APPEND ct_narrow_names "#define ${name}_avx512 ${name}_avx2\n")
endforeach()
file(CONFIGURE OUTPUT ${CT_GENERATED_DIR}/gen/narrow_kernels.h @ONLY
    CONTENT "/* The kernels of avx512 that are those of avx2. Written by cmake/library.cmake. */\n${ct_narrow_names}")
list(TRANSFORM ct_narrow_sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)

# A function of an op that its .def does not state would be left out of the table, so it is an error.
set(ct_op_sources ${CT_ONCE_SOURCES})
list(FILTER ct_op_sources INCLUDE REGEX "/ops/")
set_property(SOURCE ${ct_op_sources} APPEND PROPERTY COMPILE_OPTIONS -Werror=missing-prototypes)

add_library(ct_once OBJECT ${CT_ONCE_SOURCES} ${CT_GENERATED_SOURCES})
ct_target_flags(ct_once)
# No tables for unwinding, as kernels have none: nothing is thrown through C, and they are 70 kB. Debuggers have their own (-g).
target_compile_options(ct_once PRIVATE "$<$<NOT:$<CONFIG:Debug>>:-fno-asynchronous-unwind-tables;${CT_LOOPS_ONCE}>")
# Room between branches, that their targets may begin a line, is a twentieth of such code, and nothing here waits for it.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(ct_once PRIVATE -falign-jumps=1 -falign-labels=1)
endif()
# What every call clears or copies is some hundred bytes: gcc's `rep stos` takes longer over that than the C library. The option
# that names strategies by size would be finer, but gcc forgets it where it builds to be small.
check_c_compiler_flag(-mstringop-strategy=libcall CT_COMPILES_STRINGOPS)
if(CT_COMPILES_STRINGOPS)
    target_compile_options(ct_once PRIVATE -mstringop-strategy=libcall)
endif()
# A section for each function: a program that takes in the static library links what it calls, and what that calls (-Wl,--gc-sections).
target_compile_options(ct_once PRIVATE -ffunction-sections -fdata-sections)
add_dependencies(ct_once ct_generated)
set(CT_OBJECTS $<TARGET_OBJECTS:ct_once>)
set(CT_OBJECT_TARGETS ct_once)

include(cmake/foreign.cmake)
ct_foreign_definitions(ct_once)

# Which levels exist, for the code that fills the kernel tables at start-up: CT_HAVE_AVX2 and so on.
foreach(level ${CT_ISA_LEVELS})
    string(TOUPPER ${level} upper)
    target_compile_definitions(ct_once PRIVATE CT_HAVE_${upper}=1)
endforeach()

foreach(level ${CT_ISA_LEVELS})
    set(sources ${CT_GEMM_ISA_SOURCES})
    if(level STREQUAL "avx512amx")
        list(FILTER sources INCLUDE REGEX "kernel_(amx|table)")
    elseif(level MATCHES "bf16$")
        list(FILTER sources INCLUDE REGEX "kernel_(bf16|i8|table)")
    else()
        list(APPEND sources ${CT_ISA_SOURCES} ${CT_GENERATED_ISA_SOURCES})
        if(level STREQUAL "avx512")
            list(REMOVE_ITEM sources ${ct_narrow_sources})
        endif()
    endif()
    if(sources)
        add_library(ct_cpu_${level} OBJECT ${sources})
        ct_target_flags(ct_cpu_${level} KERNEL)
        target_compile_definitions(ct_cpu_${level} PRIVATE CT_ISA=${level} CT_WITHOUT_OPS=1)
        target_compile_options(ct_cpu_${level} PRIVATE ${CT_ISA_FLAGS_${level}})
        add_dependencies(ct_cpu_${level} ct_generated)
        list(APPEND CT_OBJECTS $<TARGET_OBJECTS:ct_cpu_${level}>)
        list(APPEND CT_OBJECT_TARGETS ct_cpu_${level})
    endif()
endforeach()

add_library(cotangent SHARED ${CT_OBJECTS})
# For the tests and the command, which look at internals; never installed.
add_library(cotangent_internal STATIC EXCLUDE_FROM_ALL ${CT_OBJECTS})
set_target_properties(cotangent_internal PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
# An archive knows no visibility: every function that one file takes from another would be a name that a program must
# not use. So the objects are joined into one, in which the hidden names become local.
if(CMAKE_OBJCOPY AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT CT_SANITIZE)
    set(ct_joined ${CMAKE_CURRENT_BINARY_DIR}/cotangent_joined.o)
    add_custom_command(OUTPUT ${ct_joined}
        COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${ct_joined} ${CT_OBJECTS}
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${ct_joined}
        DEPENDS ${CT_OBJECT_TARGETS} ${CT_OBJECTS}
        COMMENT "Joining the objects of the archive"
        COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${ct_joined} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    add_library(cotangent_static STATIC ${ct_joined})
else()
    add_library(cotangent_static STATIC ${CT_OBJECTS})
endif()
add_library(Cotangent::cotangent ALIAS cotangent)
add_library(Cotangent::cotangent_static ALIAS cotangent_static)

set_target_properties(cotangent cotangent_static PROPERTIES OUTPUT_NAME cotangent)
foreach(target cotangent cotangent_static cotangent_internal)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
    target_include_directories(${target} INTERFACE
        $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
        $<BUILD_INTERFACE:${CT_GENERATED_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    # ops.h has to be there before a user of the library is compiled.
    add_dependencies(${target} ct_generated)
endforeach()
set_target_properties(cotangent PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

# PRIVATE for the shared library, which carries its own dependencies; INTERFACE for users of the archive.
check_linker_flag(C -Wl,-z,pack-relative-relocs CT_LINKS_PACKED_RELOCATIONS)
if(CT_LINKS_PACKED_RELOCATIONS)
    target_link_options(cotangent PRIVATE -Wl,-z,pack-relative-relocs) # the op table is full of them
endif()
target_link_libraries(cotangent PRIVATE m Threads::Threads ${CMAKE_DL_LIBS})
target_link_libraries(cotangent_static INTERFACE m Threads::Threads ${CMAKE_DL_LIBS})
target_link_libraries(cotangent_internal INTERFACE m Threads::Threads ${CMAKE_DL_LIBS})
if(CT_SANITIZE)
    target_link_libraries(cotangent PRIVATE -fsanitize=${CT_SANITIZE})
    target_link_libraries(cotangent_static INTERFACE -fsanitize=${CT_SANITIZE})
    target_link_libraries(cotangent_internal INTERFACE -fsanitize=${CT_SANITIZE})
endif()

# The library's calls of its own public functions go straight to them, not through the table by which a program could put
# others in their place: less to do per call, and 30 kB less.
check_linker_flag(C -Wl,-Bsymbolic-functions CT_LINKS_SYMBOLIC)
if(CT_LINKS_SYMBOLIC)
    target_link_options(cotangent PRIVATE -Wl,-Bsymbolic-functions)
endif()

# After dlclose threads of the pool may still be parked in the library, and threads that used it have something to do
# here when they end: so it stays in memory, and the next dlopen finds it as it was.
check_linker_flag(C -Wl,-z,nodelete CT_LINKS_NODELETE)
if(CT_LINKS_NODELETE)
    target_link_options(cotangent PRIVATE -Wl,-z,nodelete)
endif()

# Visibility decides what is exported; the version script keeps everything else in as well (symbols of the
# compiler's runtime, say) and puts a version on what remains.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(ct_map ${CMAKE_CURRENT_SOURCE_DIR}/cmake/cotangent.map)
    target_link_options(cotangent PRIVATE -Wl,--version-script=${ct_map})
    set_target_properties(cotangent PROPERTIES LINK_DEPENDS ${ct_map})
    if(NOT CT_SANITIZE)
        target_link_options(cotangent PRIVATE -Wl,--no-undefined)
    endif()
endif()

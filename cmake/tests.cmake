# Every tests/test_*.c is a program, every tests/check_*.sh a script; both end with `N passed, N failed`, which
# tests/run.sh collects.
enable_testing()
set(CT_TEST_DIR ${CMAKE_CURRENT_BINARY_DIR}/tests)
find_program(CT_BASH bash)

# ct_add_test(NAME COMMAND...): run.sh stores the counts of each for the sum at the end.
function(ct_add_test name)
    add_test(NAME ${name} COMMAND ${CT_BASH} ${PROJECT_SOURCE_DIR}/tests/run.sh one ${CT_TEST_DIR}/results ${name} ${ARGN})
    set_tests_properties(${name} PROPERTIES TIMEOUT 1800 ENVIRONMENT
        "CT_SOURCE_DIR=${PROJECT_SOURCE_DIR};CT_BUILD_DIR=${CMAKE_CURRENT_BINARY_DIR};CC=${CMAKE_C_COMPILER};CMAKE=${CMAKE_COMMAND};CT_SANITIZE=${CT_SANITIZE}")
endfunction()

function(ct_test_program name)
    cmake_parse_arguments(ARG "KERNEL" "" "" ${ARGN})
    add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CT_TEST_DIR})
    if(ARG_KERNEL)
        ct_target_flags(${name} KERNEL)
    else()
        ct_target_flags(${name})
    endif()
    # A test may use assert, whatever the build type.
    target_compile_options(${name} PRIVATE -UNDEBUG)
    target_link_libraries(${name} PRIVATE ct_test_support cotangent_internal m)
endfunction()

file(GLOB CT_TEST_SOURCES CONFIGURE_DEPENDS tests/test_*.c tests/fuzz_*.c)

# The SIMD wrapper is static code, so its test is compiled for each level, like a kernel, and once more for main.
set(simd_test ${CMAKE_CURRENT_SOURCE_DIR}/tests/test_simd_math.c)
if(simd_test IN_LIST CT_TEST_SOURCES)
    list(REMOVE_ITEM CT_TEST_SOURCES ${simd_test})
    set(simd_objects)
    set(simd_levels ${CT_ISA_LEVELS})
    list(REMOVE_ITEM simd_levels avx512amx neonbf16) # they add products alone
    foreach(level ${simd_levels})
        add_library(test_simd_math_${level} OBJECT ${simd_test})
        ct_target_flags(test_simd_math_${level} KERNEL)
        target_compile_definitions(test_simd_math_${level} PRIVATE CT_ISA=${level})
        target_compile_options(test_simd_math_${level} PRIVATE ${CT_ISA_FLAGS_${level}} -UNDEBUG)
        add_dependencies(test_simd_math_${level} ct_generated)
        list(APPEND simd_objects $<TARGET_OBJECTS:test_simd_math_${level}>)
    endforeach()
    ct_test_program(test_simd_math KERNEL ${simd_test} ${simd_objects})
    target_compile_definitions(test_simd_math PRIVATE TEST_SIMD_MAIN)
    ct_add_test(test_simd_math ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:test_simd_math>)
endif()

# The calls of the public functions are written from their headers.
find_program(CT_AWK awk)
if(CT_AWK)
    file(GLOB CT_PUBLIC_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/cotangent.h
        ${PROJECT_SOURCE_DIR}/include/cotangent/*.h)
    list(APPEND CT_PUBLIC_HEADERS ${CT_GENERATED_DIR}/include/cotangent/enums.h ${CT_GENERATED_DIR}/include/cotangent/ops.h)
    add_custom_command(OUTPUT ${CT_TEST_DIR}/fuzz_api.inc
        COMMAND ${CT_AWK} -f ${PROJECT_SOURCE_DIR}/tools/headers.awk -f ${PROJECT_SOURCE_DIR}/tests/fuzz_api.awk
            ${CT_PUBLIC_HEADERS} >${CT_TEST_DIR}/fuzz_api.inc
        DEPENDS ${PROJECT_SOURCE_DIR}/tools/headers.awk ${PROJECT_SOURCE_DIR}/tests/fuzz_api.awk ${CT_PUBLIC_HEADERS} ${CT_GENERATED_DIR}/mkops.stamp
        COMMENT "Writing calls of the public functions")
else()
    list(REMOVE_ITEM CT_TEST_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz_api.c)
endif()

foreach(source ${CT_TEST_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    ct_test_program(${name} ${source})
    ct_add_test(${name} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}>)
endforeach()
if(TARGET fuzz_api)
    target_sources(fuzz_api PRIVATE ${CT_TEST_DIR}/fuzz_api.inc)
    target_include_directories(fuzz_api PRIVATE ${CT_TEST_DIR})
    # what is drawn for an enum may be no value of it, and constructors' results may be of no use
    target_compile_options(fuzz_api PRIVATE -Wno-unused-function)
endif()
if(TARGET test_amx_trap AND "avx512amx" IN_LIST CT_ISA_LEVELS)
    target_compile_definitions(test_amx_trap PRIVATE CT_TEST_AMX=1)
    target_compile_options(test_amx_trap PRIVATE -mamx-tile -mamx-bf16 -mamx-int8)
endif()
# The readers of recipes belong to the command.
include(cmake/assets.cmake)
foreach(name fuzz_recipe test_recipe_text)
    if(TARGET ${name})
        target_sources(${name} PRIVATE cli/args.c cli/train/buffer.c cli/train/tree.c cli/train/tree_yaml.c cli/train/recipe.c cli/train/init.c
            cli/train/settings.c cli/train/models.c cli/train/evaluate.c cli/train/exchange.c cli/train/learner.c cli/train/data.c ${CT_ASSETS_C})
        ct_foreign_definitions(${name})
    endif()
endforeach()
# What an instrumented build runs for every change (make sanitize-quick), for which the whole suite would take too long.
set(quick_programs ${CT_TEST_SOURCES})
list(FILTER quick_programs INCLUDE REGEX "/fuzz_[^/]*$")
list(TRANSFORM quick_programs REPLACE ".*/([^/]*)\\.c$" "\\1")
if(quick_programs)
    set_tests_properties(${quick_programs} PROPERTIES LABELS quick)
endif()
if(TARGET test_cuda_choices) # of the module for NVIDIA devices, but plain C
    target_sources(test_cuda_choices PRIVATE backends/cuda/choices.c backends/cuda/cache.c)
endif()
if(TARGET test_cuda_measured AND TARGET cotangent_cuda) # of the module too
    target_sources(test_cuda_measured PRIVATE backends/cuda/tune.c backends/cuda/choices.c backends/cuda/cache.c backends/cuda/branch.c
        backends/cuda/recorded.c)
    target_include_directories(test_cuda_measured SYSTEM PRIVATE ${CT_CUDA_INCLUDE})
    target_compile_definitions(test_cuda_measured PRIVATE CT_TEST_CUDA_HEADERS)
endif()
foreach(name test_cuda_fused test_cuda_fused_rows) # of the module too
    if(TARGET ${name} AND TARGET cotangent_cuda)
        target_sources(${name} PRIVATE ops/fused/cuda/fused/text.c ops/fused/cuda/fused/steps.c ops/fused/cuda/fused/rows.c
            ops/fused/cuda/fused/headers.c backends/cuda/nvrtc.c ${CT_TEXT_OBJECTS})
        target_include_directories(${name} SYSTEM PRIVATE ${CT_CUDA_INCLUDE})
        target_compile_definitions(${name} PRIVATE CT_TEST_FUSED CT_TEST_SOURCE="${CMAKE_CURRENT_SOURCE_DIR}"
            CT_TEST_GENERATED="${CT_GENERATED_DIR}")
    endif()
endforeach()
if(TARGET test_cuda_cores AND TARGET cotangent_cuda) # of the module too
    target_sources(test_cuda_cores PRIVATE ops/conv/cuda/cores/plan.c)
    target_include_directories(test_cuda_cores SYSTEM PRIVATE ${CT_CUDA_INCLUDE})
    target_compile_definitions(test_cuda_cores PRIVATE CT_TEST_CORES CT_TEST_SOURCE="${CMAKE_CURRENT_SOURCE_DIR}"
        CT_TEST_GENERATED="${CT_GENERATED_DIR}")
endif()
if(TARGET test_charts)
    target_sources(test_charts PRIVATE cli/train/buffer.c cli/train/chart.c cli/train/number.c)
endif()
add_custom_target(quick_tests DEPENDS ${quick_programs})
if(TARGET test_opcheck)
    add_dependencies(quick_tests test_opcheck)
    # The longest, on two processes of its own: it goes first.
    set_tests_properties(test_opcheck PROPERTIES COST 1000 PROCESSORS 2 TIMEOUT 3600)
endif()
if(CT_SANITIZE AND TARGET test_opcheck)
    ct_add_test(opcheck_smallest $<TARGET_FILE:test_opcheck> --smallest)
    set_tests_properties(opcheck_smallest PROPERTIES LABELS quick COST 1000 PROCESSORS 2)
endif()

# What a cross build runs (make test-arm): in an emulator all would take hours. Left out are larger samples, what
# captures and threads change in the ops, and the programs that test one op each in more shapes than its samples have.
if(CMAKE_CROSSCOMPILING)
    ct_add_test(opcheck_smallest ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:test_opcheck> --smallest --values --gradients)
    set_tests_properties(opcheck_smallest PROPERTIES COST 1000 PROCESSORS 2 TIMEOUT 3600)
    set_tests_properties(opcheck_smallest test_simd_math test_integers PROPERTIES LABELS arm)
    add_custom_target(arm_tests DEPENDS test_opcheck test_simd_math test_integers)
endif()

# The scripts run what was built, which a cross build cannot.
if(NOT CMAKE_CROSSCOMPILING)
    file(GLOB CT_CHECK_SCRIPTS CONFIGURE_DEPENDS tests/check_*.sh)
endif()
foreach(script ${CT_CHECK_SCRIPTS})
    get_filename_component(name ${script} NAME_WE)
    ct_add_test(${name} ${CT_BASH} ${script})
    list(APPEND CT_CHECK_NAMES ${name})
endforeach()
# It compiles the library once more, so it should not be the last to start.
if("check_outside" IN_LIST CT_CHECK_NAMES)
    set_tests_properties(check_outside PROPERTIES COST 900)
endif()

# Backends that only the tests use: modules that the library opens, found by CT_BACKEND_PATH.
add_library(cotangent_guard MODULE tests/guard/guard.c tests/guard/queue.c tests/guard/record.c)
ct_target_flags(cotangent_guard)
set_target_properties(cotangent_guard PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CT_TEST_DIR})
target_include_directories(cotangent_guard PRIVATE . include ${CT_GENERATED_DIR}/include)
add_dependencies(cotangent_guard ct_generated)
foreach(name test_capture test_capture_change test_devices test_devices_train test_graph_file test_passes_layout test_passes_memory test_passes_random test_streams test_train_step)
    target_compile_definitions(${name} PRIVATE CT_TEST_MODULES="${CT_TEST_DIR}")
    add_dependencies(${name} cotangent_guard)
endforeach()
# Programs that tests/dist.sh runs under mpirun, several processes each.
file(GLOB CT_DIST_PROGRAMS CONFIGURE_DEPENDS tests/dist/*.c)
add_custom_target(dist_tests DEPENDS cotangent_cli cotangent_guard ct_modules)
foreach(source ${CT_DIST_PROGRAMS})
    get_filename_component(name ${source} NAME_WE)
    ct_test_program(dist_${name} ${source})
    add_dependencies(dist_tests dist_${name})
endforeach()
if(TARGET example_10_gpt_many)
    add_dependencies(dist_tests example_10_gpt_many)
endif()
# The way of CUDA tensors by NCCL where there is neither: the guarded device under CUDA's name, and a library that stands in for NCCL's and the
# driver's.
if(TARGET cotangent_nccl)
    add_library(ct_test_nccl_device MODULE EXCLUDE_FROM_ALL tests/guard/guard.c tests/guard/queue.c tests/guard/record.c)
    target_compile_definitions(ct_test_nccl_device PRIVATE GUARD_NAME="cuda")
    set_target_properties(ct_test_nccl_device PROPERTIES PREFIX "lib" OUTPUT_NAME cotangent_cuda)
    add_dependencies(ct_test_nccl_device ct_generated)
    foreach(library nccl:2 cuda:1)
        string(REPLACE ":" ";" library ${library})
        list(GET library 0 name)
        list(GET library 1 version)
        add_library(ct_test_nccl_${name} SHARED EXCLUDE_FROM_ALL tests/dist/standin/nccl.c)
        target_include_directories(ct_test_nccl_${name} SYSTEM PRIVATE ${CT_NCCL_INCLUDE} ${CT_CUDA_INCLUDE})
        set_target_properties(ct_test_nccl_${name} PROPERTIES OUTPUT_NAME ${name} SOVERSION ${version})
    endforeach()
    foreach(target ct_test_nccl_device ct_test_nccl_nccl ct_test_nccl_cuda)
        ct_target_flags(${target})
        target_include_directories(${target} PRIVATE . include ${CT_GENERATED_DIR}/include)
        set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CT_TEST_DIR}/standin)
    endforeach()
    add_dependencies(dist_tests cotangent_nccl ct_test_nccl_device ct_test_nccl_nccl ct_test_nccl_cuda)
endif()
# The module for NVIDIA devices, if `make cuda` has built it; otherwise these skip.
set(cuda_programs ${CT_TEST_SOURCES})
list(FILTER cuda_programs INCLUDE REGEX "/test_cuda[^/]*$")
list(TRANSFORM cuda_programs REPLACE ".*/([^/]*)\\.c$" "\\1")
foreach(name ${cuda_programs})
    target_compile_definitions(${name} PRIVATE CT_TEST_MODULES="${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
endforeach()
# With one rank NCCL is tested where the devices are.
add_custom_target(cuda_tests DEPENDS dist_nccl ${cuda_programs} fuzz_ops cotangent_cli)
# A driver that is found in place of NVIDIA's by LD_LIBRARY_PATH; and, in a folder of their own, libraries that have none of the
# functions that are looked for, as if they were not installed.
if(TARGET cotangent_cuda)
    add_library(ct_test_cuda_driver SHARED EXCLUDE_FROM_ALL tests/cuda/driver.c tests/cuda/missing.c)
    ct_target_flags(ct_test_cuda_driver)
    target_compile_options(ct_test_cuda_driver PRIVATE -fvisibility=default)
    target_include_directories(ct_test_cuda_driver SYSTEM PRIVATE ${CT_CUDA_INCLUDE})
    target_link_libraries(ct_test_cuda_driver PRIVATE Threads::Threads)
    set_target_properties(ct_test_cuda_driver PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY ${CT_TEST_DIR}/cuda)
    foreach(library cublasLt.so.13 cublasLt.so.12 cublasLt.so cudnn.so.9 cudnn.so.8 cudnn.so nvrtc.so.13 nvrtc.so.12 nccl.so.2)
        add_custom_command(TARGET ct_test_cuda_driver POST_BUILD COMMAND ${CMAKE_COMMAND} -E make_directory ${CT_TEST_DIR}/cuda/without
            COMMAND ${CMAKE_COMMAND} -E create_symlink ../libcuda.so.1 ${CT_TEST_DIR}/cuda/without/lib${library})
    endforeach()
    add_dependencies(cuda_tests ct_test_cuda_driver)
endif()
# The module for WebGPU, if there is one; otherwise these skip.
set(webgpu_programs ${CT_TEST_SOURCES})
list(FILTER webgpu_programs INCLUDE REGEX "/test_webgpu[^/]*$")
list(TRANSFORM webgpu_programs REPLACE ".*/([^/]*)\\.c$" "\\1")
foreach(name ${webgpu_programs})
    target_compile_definitions(${name} PRIVATE CT_TEST_MODULES="${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
    add_dependencies(${name} ct_modules)
endforeach()
if(TARGET test_webgpu_adopt AND TARGET cotangent_webgpu AND ct_webgpu_beside) # a program that has a device of its own
    target_include_directories(test_webgpu_adopt SYSTEM PRIVATE ${ct_webgpu_header})
    target_compile_definitions(test_webgpu_adopt PRIVATE CT_TEST_WEBGPU_RUNTIME="${ct_webgpu_beside}")
endif()
add_custom_target(webgpu_tests DEPENDS ${webgpu_programs} fuzz_ops cotangent_cli ct_modules)
# The same with work that the device holds back until somebody waits for it.
ct_add_test(test_devices_train_queued ${CMAKE_COMMAND} -E env CT_GUARD_QUEUE=1
    ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:test_devices_train>)

# libcotangent_cuda.so, the module for NVIDIA devices. It is built where nvcc is found, links against nothing of ours and nothing of
# NVIDIA's: the driver and the libraries are opened at run time.
option(CT_CUDA "Build the module for NVIDIA devices where nvcc is found" ON)
set(CT_CUDA_MISSING "")
if(NOT CT_CUDA)
    set(CT_CUDA_MISSING "CT_CUDA is off")
    return()
endif()
find_program(CT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda/bin)
if(NOT CT_NVCC)
    set(CT_CUDA_MISSING "nvcc was not found")
    return()
endif()
get_filename_component(ct_cuda_bin ${CT_NVCC} REALPATH)
get_filename_component(ct_cuda_bin ${ct_cuda_bin} DIRECTORY)
find_path(CT_CUDA_INCLUDE cuda.h HINTS ${ct_cuda_bin}/../include ${ct_cuda_bin}/../targets/x86_64-linux/include
    ${ct_cuda_bin}/../targets/sbsa-linux/include)
if(NOT CT_CUDA_INCLUDE)
    set(CT_CUDA_MISSING "cuda.h was not found beside nvcc")
    return()
endif()

# Machine code for the generations with Tensor Cores for bf16, and PTX, which the driver translates for those to come.
set(CT_CUDA_ARCHITECTURES "80;90" CACHE STRING "Compute capabilities that get machine code; PTX is of the last")
execute_process(COMMAND ${CT_NVCC} --help OUTPUT_VARIABLE ct_nvcc_help ERROR_QUIET)
set(ct_cuda_compression)
if(ct_nvcc_help MATCHES "--compress-mode")
    set(ct_cuda_compression --compress-mode=size) # from CUDA 12.8 on
endif()
set(ct_cuda_codes)
foreach(arch ${CT_CUDA_ARCHITECTURES})
    list(APPEND ct_cuda_codes -gencode=arch=compute_${arch},code=sm_${arch})
    set(ct_cuda_last ${arch})
endforeach()
list(APPEND ct_cuda_codes -gencode=arch=compute_${ct_cuda_last},code=compute_${ct_cuda_last})

# Products of warpgroups are of one capability alone; files named hopper.cu have them, and nothing for others.
set(ct_cuda_hopper_codes)
if(ct_nvcc_help MATCHES "compute_90a" AND "90" IN_LIST CT_CUDA_ARCHITECTURES)
    set(ct_cuda_hopper_codes -gencode=arch=compute_90a,code=sm_90a)
endif()

file(GLOB CT_CUDA_SOURCES CONFIGURE_DEPENDS backends/cuda/*.c ops/*/cuda/*.c ops/*/cuda/*/*.c)
file(GLOB CT_CUDA_DEVICE_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} backends/cuda/*.cu ops/*/cuda/*.cu)
file(GLOB CT_CUDA_HEADERS CONFIGURE_DEPENDS backends/cuda/*.h backends/cuda/*.cuh ops/*/cuda/*.h ops/*/cuda/*.cuh)

# ct_fatbin(NAME SOURCE): the device code of a file as an object with the symbol ct_fatbin_NAME.
set(CT_FATBIN_OBJECTS)
function(ct_fatbin name source)
    set(codes ${ct_cuda_codes})
    if(source MATCHES "/hopper\\.cu$")
        set(codes ${ct_cuda_hopper_codes})
    endif()
    set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.fatbin)
    add_custom_command(OUTPUT ${fatbin}
        COMMAND ${CT_NVCC} -fatbin ${codes} -std=c++17 -O3 -diag-suppress=186 ${ct_cuda_compression} --expt-relaxed-constexpr
            --extended-lambda -fmad=false -I${CMAKE_CURRENT_SOURCE_DIR} -I${CT_GENERATED_DIR} -I${CT_GENERATED_DIR}/include
            -I${CMAKE_CURRENT_SOURCE_DIR}/include -o ${fatbin} ${source}
        DEPENDS ${source} ${CT_CUDA_HEADERS} ct_generated
        COMMENT "Compiling device code ${name}" VERBATIM)
    set(assembly ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.S)
    file(CONFIGURE OUTPUT ${assembly} CONTENT [[
    .section .rodata
    .balign 64
    .global ct_fatbin_@name@
    .hidden ct_fatbin_@name@
ct_fatbin_@name@:
    .incbin "@fatbin@"
    .section .note.GNU-stack,"",%progbits
]] @ONLY)
    set_source_files_properties(${assembly} PROPERTIES OBJECT_DEPENDS ${fatbin} LANGUAGE ASM)
    set(CT_FATBIN_OBJECTS ${CT_FATBIN_OBJECTS} ${assembly} PARENT_SCOPE)
endfunction()

enable_language(ASM)

# ct_text(NAME SOURCE): a file as text, with the symbol ct_text_NAME, for what is compiled while a program runs.
set(CT_TEXT_OBJECTS)
function(ct_text name source)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set(assembly ${CMAKE_CURRENT_BINARY_DIR}/cuda/text_${name}.S)
    file(CONFIGURE OUTPUT ${assembly} CONTENT [[
    .section .rodata
    .global ct_text_@name@
    .hidden ct_text_@name@
ct_text_@name@:
    .incbin "@source@"
    .byte 0
    .section .note.GNU-stack,"",%progbits
]] @ONLY)
    set_source_files_properties(${assembly} PROPERTIES OBJECT_DEPENDS ${source} LANGUAGE ASM)
    set(CT_TEXT_OBJECTS ${CT_TEXT_OBJECTS} ${assembly} PARENT_SCOPE)
endfunction()
ct_text(alone backends/cuda/alone.cuh)
ct_text(words backends/cuda/words.cuh)
ct_text(convert backends/cuda/convert.cuh)
ct_text(thread backends/cuda/thread.cuh)
ct_text(view backends/cuda/view.h)
ct_text(philox ops/random/cuda/philox.cuh)
ct_text(arguments ops/fused/cuda/fused.h)
ct_text(fused ops/fused/cuda/fused.cuh)
ct_text(dropout ops/fused/cuda/dropout.cuh)
ct_text(rows ops/fused/cuda/rows.cuh)
ct_text(row backends/cuda/row.cuh)
ct_text(row_division backends/cuda/row.h)
ct_text(lanes backends/cuda/lanes.cuh)
ct_text(number backends/cuda/number.cuh)
ct_text(row_norm ops/norm/cuda/row_norm.cuh)
ct_text(row_norm_arguments ops/norm/cuda/row_norm.h)
if(NOT ct_cuda_hopper_codes)
    list(FILTER CT_CUDA_DEVICE_SOURCES EXCLUDE REGEX "/hopper\\.cu$")
endif()
foreach(source ${CT_CUDA_DEVICE_SOURCES})
    string(REGEX REPLACE "^backends/cuda/(.*)\\.cu$" "backend_\\1" name ${source})
    string(REGEX REPLACE "^ops/([^/]*)/cuda/(.*)\\.cu$" "\\1_\\2" name ${name})
    ct_fatbin(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${source})
endforeach()
foreach(part RANGE 0 7)
    ct_fatbin(elementwise_${part} ${CT_GENERATED_DIR}/gen/cuda/elementwise_${part}.cu)
endforeach()

# cuDNN's headers may be missing: convolutions then run by tiles of our own alone.
find_path(CT_CUDNN_INCLUDE cudnn_graph.h HINTS ENV CUDNN_HOME ENV CUDNN_PATH ${CT_CUDA_INCLUDE} PATH_SUFFIXES include)
if(CT_CUDNN_INCLUDE)
    set(CT_CUDNN_FOUND "with cuDNN")
else()
    set(CT_CUDNN_FOUND "without cuDNN: cudnn_graph.h was not found")
endif()

# Not part of everything: its device code takes minutes. `make cuda` builds it.
add_library(cotangent_cuda MODULE EXCLUDE_FROM_ALL ${CT_CUDA_SOURCES} ${CT_FATBIN_OBJECTS} ${CT_TEXT_OBJECTS})
add_dependencies(cotangent_cuda ct_generated)
ct_target_flags(cotangent_cuda)
if(ct_cuda_hopper_codes)
    target_compile_definitions(cotangent_cuda PRIVATE CT_CUDA_HOPPER)
endif()
target_include_directories(cotangent_cuda SYSTEM PRIVATE ${CT_CUDA_INCLUDE})
if(CT_CUDNN_INCLUDE)
    target_include_directories(cotangent_cuda SYSTEM PRIVATE ${CT_CUDNN_INCLUDE})
    target_compile_definitions(cotangent_cuda PRIVATE CT_CUDA_DNN=1)
endif()
target_link_libraries(cotangent_cuda PRIVATE m ${CMAKE_DL_LIBS})
set_target_properties(cotangent_cuda PROPERTIES PREFIX "lib")
if(CT_TOP_LEVEL)
    install(PROGRAMS $<TARGET_FILE:cotangent_cuda> DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL) # if it was built
endif()

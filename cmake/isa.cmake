# The levels of vector instructions that CPU kernels are compiled for. CT_ISA_LEVELS lists those that this
# compiler can build; which one runs is decided at start-up. A new level is one line here and one SIMD header.
set(CT_LEVELS all CACHE STRING "Levels to compile beside the baseline: all, or a list, as avx2,avx512")
string(REPLACE "," ";" ct_levels "${CT_LEVELS}")
set(CT_ISA_LEVELS base)
set(CT_ISA_FLAGS_base "")

# ct_isa_level(NAME BELOW FLAGS...) adds a level if it is wanted, the one below it is there, and the compiler takes its flags.
macro(ct_isa_level name below)
    set(CT_ISA_FLAGS_${name} ${ARGN})
    if(("all" IN_LIST ct_levels OR "${name}" IN_LIST ct_levels) AND "${below}" IN_LIST CT_ISA_LEVELS)
        string(REPLACE ";" " " ct_isa_flag_text "${ARGN}")
        check_c_compiler_flag("${ct_isa_flag_text}" CT_COMPILES_${name})
        if(CT_COMPILES_${name})
            list(APPEND CT_ISA_LEVELS ${name})
        endif()
    endif()
endmacro()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    # Here the baseline is for processors of before 2013: it may be small rather than fast.
    set(CT_ISA_FLAGS_base -Os)
    set(CT_ISA_FLAGS_base "$<$<NOT:$<CONFIG:Debug>>:${CT_ISA_FLAGS_base}>")
    set(CT_AVX2 -mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt)
    set(CT_AVX512 ${CT_AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
    ct_isa_level(avx2 base ${CT_AVX2})
    ct_isa_level(avx512 avx2 ${CT_AVX512})
    ct_isa_level(avx512bf16 avx512 ${CT_AVX512} -mavx512bf16 -mavx512vnni)
    ct_isa_level(avx512amx avx512bf16 ${CT_AVX512} -mavx512bf16 -mavx512vnni -mamx-tile -mamx-bf16 -mamx-int8)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    # NEON is part of every aarch64: the level exists to choose the SIMD header, not for its flags.
    if("all" IN_LIST ct_levels OR "neon" IN_LIST ct_levels)
        list(APPEND CT_ISA_LEVELS neon)
    endif()
    set(CT_ISA_FLAGS_neon "")
    # Products of pairs of bf16 and of four bytes, as processors of Armv8.6 have them.
    ct_isa_level(neonbf16 neon -march=armv8.2-a+bf16+i8mm)
endif()

# A library that has every public function and no code, from the headers that tools/headers.awk reads: its types and prototypes are
# the interface, and nothing else is in it. Structs that no function takes (those that modules are given) are variables of it.
END {
    for (i = 1; i <= function_count; i++) print "CT_API " declared[functions[i]] " { __builtin_trap(); }"
    for (i = 1; i <= struct_count; i++) {
        name = struct_order[i]
        print "CT_API extern const " name " *const ct_abi_" name ";"
        print "CT_API const " name " *const ct_abi_" name " = 0;"
    }
}

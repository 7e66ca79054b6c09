# From the public headers, which tools/headers.awk reads, writes as C a function that calls each function of theirs with drawn
# arguments, a function that fills each struct of options, and the table of the calls: tests/fuzz_api.c includes it.
#     awk -f headers.awk -f fuzz_api.awk cotangent.h cotangent/*.h >fuzz_api.inc

# ---- Types to values ----

# What is drawn for a parameter or a field of that type, where `before` is the type of the parameter before it.
function value(type, name, before, function_name,   base) {
    if (type == "bool") return "fuzz_chance(50)"
    if (type == "int" && counts(before)) return "(int)any_count()"
    if (type == "int64_t" && counts(before)) return "any_count()"
    if (type == "size_t" && counts(before)) return "any_size()"
    if (type ~ /^(int|int64_t|size_t|uint64_t|unsigned|uint32_t)$/) return "(" type ")fuzz_int()"
    if (type ~ /^(double|float)$/) return "fuzz_double()"
    if (type == "ct_dims") return "any_list()"
    if (type == "ct_opt") return "any_opt()"
    if (type == "ct_device") return "any_device()"
    if (type in enums) return "(" type ")any_enum()"
    if (type in callbacks) return "NULL"
    if (type ~ /^(const )?char \*$/) return type ~ /const/ ? "any_text()" : "any_room()"
    if (type == "ct_tensor *" || type == "const ct_tensor *") return "any_tensor()"
    if (type == "ct_tensor *const *") return "any_tensors()"
    if (type == "ct_tensor **") return "any_results()"
    if (type ~ /^(const )?int64_t \*$/) return "any_integers()"
    if (type ~ /^(const )?double \*$/) return "any_numbers()"
    base = type
    sub(/^const /, "", base)
    sub(/ \*$/, "", base)
    if (base in structs && type ~ /\*$/ && structs[base] ~ /size_t size;/) return "fuzz_chance(20) ? NULL : fill_" base "()"
    # what a function may take over is not given to it
    if (base ~ /^ct_(module|dataset|state|optim)$/ && type ~ /^(const )?[a-z_]+ \*$/ && !owns(function_name, name))
        return "any_" substr(base, 4) "()"
    return ""
}

function counts(type) { return type ~ /\*$/ && type !~ /options|^ct_tensor \*$|^const ct_tensor \*$|ct_module|ct_dataset|ct_state|ct_optim|ct_loader/ }

function owns(function_name, name) {
    return function_name ~ /_(free|keep|split|map|copy)$/ || name ~ /^(child|module|body|shortcut|inner|sequential)$/ ||
           function_name == ""
}

# Splits a list of parameters at the commas that are in no bracket; types[] and names[].
function split_params(list,   n, i, c, level, part) {
    n = 0; level = 0; part = ""
    if (trim(list) == "void" || trim(list) == "") return 0
    for (i = 1; i <= length(list) + 1; i++) {
        c = i <= length(list) ? substr(list, i, 1) : ","
        if (c == "(") level++
        if (c == ")") level--
        if (c == "," && level == 0) { part_type(trim(part), ++n); part = ""; continue }
        part = part c
    }
    return n
}

function part_type(part, n) {
    if (part ~ /\(\*/) { types[n] = "callback"; names[n] = ""; return }
    if (part ~ /\[[0-9]*\]$/) { types[n] = "array"; names[n] = ""; return }
    if (part == "...") { types[n] = part; names[n] = ""; return }
    match(part, /[a-zA-Z_0-9]+$/)
    names[n] = substr(part, RSTART)
    types[n] = trim(substr(part, 1, RSTART - 1))
}

# ---- The output ----

function write_struct(name,   fields, n, i, f, type, list, k, v, m) {
    if (structs[name] !~ /size_t size;/) return
    print "static " name " *fill_" name "(void) {"
    print "    static " name " o;"
    print "    o = (" name "){.size = sizeof o};"
    n = split(structs[name], fields, ";")
    for (i = 1; i <= n; i++) {
        f = trim(fields[i])
        if (f == "" || f ~ /\(\*/ || f ~ /\[/ || f == "size_t size") continue
        match(f, /^(const )?[a-z_0-9]+ \**/)
        type = trim(substr(f, 1, RLENGTH))
        m = split(substr(f, RLENGTH + 1), list, ",")
        for (k = 1; k <= m; k++) {
            v = type == "ct_tensor **" ? "any_result()" : value(type, trim(list[k]), "", "")
            if (v != "") print "    if (fuzz_chance(40)) o." trim(list[k]) " = " v ";"
        }
    }
    # of which the sizes of other versions, and none, are drawn
    if (name ~ /_options$/) print "    return other_size(&o, sizeof o);"
    else print "    return &o;"
    print "}"
}

function write_function(name,   n, i, call, type, v, ret, base) {
    n = split_params(params[name])
    call = name "("
    for (i = 1; i <= n; i++) {
        if (types[i] == "va_list" || types[i] == "ct_scope_mark" || types[i] == "array" || types[i] == "...") return
        v = types[i] == "callback" ? "NULL" : value(types[i], names[i], i > 1 ? types[i - 1] : "", name)
        if (v == "" && types[i] ~ /\*$/) v = types[i] ~ /^(const )?void \*$/ && types[i + 1] == "size_t" && i < n ? "any_bytes()" : "NULL"
        if (v == "") v = "(" types[i] "){0}"
        call = call (i > 1 ? ", " : "") v
    }
    call = call ")"
    ret = returns[name]
    print "static void call_" name "(void) {"
    base = ret
    sub(/ \*$/, "", base)
    if (base in frees && ret !~ /^const/ && name !~ /_(child|dataset|rng|find_child|get_stream)$/) {
        print "    " ret "made = " call ";"
        print "    expect_made(made != NULL, " (name ~ /_keep$|_copy$/ ? "false" : "true") ");"
        if (base ~ /^ct_(module|transform|optim|schedule|dataset)$/) print "    use_" substr(base, 4) "(made);"
        print "    " frees[base] "(made);"
    } else if (base ~ /^ct_dl_/) {
        print "    " ret "made = " call ";"
        print "    expect_made(made != NULL, true);"
        print "    if (made) made->deleter(made);"
    } else if (ret == "ct_tensor *" && name !~ /_(param|buffer|find|tensor|get|at|grad_of)$/) {
        print "    expect_made(" call " != NULL, true);"
    } else print "    (void)" call ";"
    print "}"
}

END {
    for (i = 1; i <= struct_count; i++) write_struct(struct_order[i])
    # those that print by their nature, that change what the caller owns, or that set what every later call depends on
    skipped = " ct_print ct_module_print ct_scope_begin ct_keep ct_pass ct_drop ct_set_allocator ct_malloc ct_calloc ct_realloc ct_free ct_set_pool ct_set_threads ct_set_log ct_set_log_sink ct_into ct_fail "
    for (i = 1; i <= function_count; i++) {
        name = functions[i]
        if (index(skipped, " " name " ")) continue
        unset = returns[name]
        write_function(name)
        emitted[name] = 1
    }
    print "static const struct {\n    const char *name;\n    void (*call)(void);\n} public_calls[] = {"
    for (i = 1; i <= function_count; i++) {
        name = functions[i]
        if (index(skipped, " " name " ") || !callable(name)) continue
        print "    {\"" name "\", call_" name "},"
    }
    print "};"
}

function callable(name,   n, i) {
    n = split_params(params[name])
    for (i = 1; i <= n; i++) if (types[i] == "va_list" || types[i] == "ct_scope_mark" || types[i] == "array" || types[i] == "...") return 0
    return 1
}

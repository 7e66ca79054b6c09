# Reads the public headers: which functions, structs, enums and callbacks they declare, for a program whose END writes something of
# them, so that there is no second list of the public interface to keep.
#     awk -f headers.awk -f PROGRAM.awk cotangent.h cotangent/*.h
# functions[1..function_count] are names, with returns[], params[] and declared[] (the whole of it) by name;
# structs[] holds their members by name, struct_order[1..struct_count] the names.

# ---- Text to statements: without comments, preprocessor lines and what is for C++ or for macros alone ----
FNR == 1 { comment = 0; hidden = 0; nested = 0; macro = 0; depth = 0; statement = "" }
{
    line = $0
    out = ""
    while (line != "") {
        if (comment) {
            at = index(line, "*/")
            if (!at) { line = ""; break }
            line = substr(line, at + 2); comment = 0
            continue
        }
        at = index(line, "/*")
        if (!at) { out = out line; break }
        out = out substr(line, 1, at - 1) " "
        line = substr(line, at + 2); comment = 1
    }
    if (macro) { macro = out ~ /\\$/; next }
    if (out ~ /^#/) {
        macro = out ~ /\\$/
        if (hidden) {
            if (out ~ /^#if/) nested++
            else if (out ~ /^#endif/) { if (nested) nested--; else hidden = 0 }
        } else if (out ~ /^#ifn?def __cplusplus/) hidden = 1
        next
    }
    if (hidden) next
    gsub(/ __attribute__\(\(aligned\([0-9]+\)\)\)/, "", out)
    statement = statement " " out
    for (i = 1; i <= length(out); i++) {
        c = substr(out, i, 1)
        if (c == "{") depth++
        if (c == "}") depth--
    }
    if (depth == 0 && out ~ /[;}][ \t]*$/) { take(statement); statement = "" }
}

function trim(s) { gsub(/[ \t]+/, " ", s); sub(/^ /, "", s); sub(/ $/, "", s); return s }

function take(s) {
    s = trim(s)
    sub(/;$/, "", s)
    if (s ~ /^typedef struct [a-z_0-9]+ \{/) take_struct(s)
    else if (s ~ /^typedef enum [a-z_0-9]+ \{/) { match(s, /[a-z_0-9]+$/); enums[substr(s, RSTART)] = 1 }
    else if (s ~ /^typedef [^{]*\(\*[a-z_0-9]+\)/) { match(s, /\(\*[a-z_0-9]+\)/); callbacks[substr(s, RSTART + 2, RLENGTH - 3)] = 1 }
    else if (s ~ /^CT_API /) take_function(s)
}

function take_struct(s,   name) {
    match(s, /[a-z_0-9]+$/)
    name = substr(s, RSTART)
    structs[name] = substr(s, index(s, "{") + 1, index(s, "}") - index(s, "{") - 1)
    struct_order[++struct_count] = name
}

function take_function(s,   open, head, name) {
    sub(/^CT_API /, "", s)
    sub(/ CT_PRINTF\(.*$/, "", s)
    open = index(s, "(")
    head = substr(s, 1, open - 1)
    match(head, /[a-z_0-9]+$/)
    name = substr(head, RSTART)
    functions[++function_count] = name
    declared[name] = s
    returns[name] = trim(substr(head, 1, RSTART - 1))
    params[name] = substr(s, open + 1, length(s) - open - 1)
    if (name ~ /_free$/ && name != "ct_free") frees[params_type(params[name])] = name
}

function params_type(p) { sub(/\*.*/, "", p); return trim(p) }

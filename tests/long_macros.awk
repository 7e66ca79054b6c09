# Macros that hold more than `most` lines of functions. Definitions on one line, and lists, do not count: they are names for
# something else. Prints file:line: NAME and how many lines.
function depth_of(s,  open, shut) {
    open = gsub(/{/, "{", s)
    shut = gsub(/}/, "}", s)
    return open - shut
}
FNR == 1 { name = "" }
name == "" && /^[ \t]*#[ \t]*define[ \t]/ && /\\$/ {
    name = $0
    sub(/^[ \t]*#[ \t]*define[ \t]+/, "", name)
    sub(/[^A-Za-z0-9_].*/, "", name)
    first = FNR
    lines = depth = 0
    next
}
name != "" {
    text = $0
    more = sub(/\\$/, "", text)
    change = depth_of(text)
    if (depth > 0 || change != 0 || (text ~ /;/ && text !~ /{.*}/)) lines++
    depth += change
    if (!more) {
        if (lines > most) printf "%s:%d: %s holds %d lines of functions\n", FILENAME, first, name, lines
        name = ""
    }
}

# Reads abidiff's report of leaf changes and names those that older programs do not survive. What is not known to be harmless counts as
# harm, a line that another version of the tool words differently too. Harmless are
#   - new functions and variables,
#   - members at the ends of structs that say their size, or that the library makes and others only read,
#   - new values of an enum behind those that it had, and with them its count.
BEGIN { grows = "^ct_(.*_options|.*_class|.*_info|op|infer|vjp|lower|handing|call|kernel|backend|host|memory|setting|batch|run)$" }
/^(Leaf changes|Changed leaf types|Removed\/Changed\/Added (functions|variables)) summary:/ || /^$/ { next }
/^[0-9]+ Added (function|variable)s?:$/ { added = 1; next }
/^[0-9]+ (Removed|function|variable)/ { added = 0 }
added && /^  \[A\]/ { next }
/^'(struct|enum) [a-z_0-9]+' changed:$/ {
    kind = substr($1, 2); name = $2; sub(/'$/, "", name); size = -1; part = ""
    next
}
/^  type size hasn't changed$/ { next }
/^  type size changed from [0-9]+ to [0-9]+ \(in bits\)$/ && kind == "struct" && $7 > $5 && name ~ grows { size = $5; next }
/^  [0-9]+ data member insertions?:$/ { part = "member"; next }
/^  [0-9]+ enumerator insertions?:$/ { part = "value"; next }
/^  [0-9]+ enumerator changes?:$/ { part = "count"; next }
part == "member" && /, at offset [0-9]+ \(in bits\)$/ && size >= 0 && $(NF - 2) >= size { next }
part == "value" && kind == "enum" { next }
part == "count" && /(_COUNT|_TYPES)' from value / { next }
{ harm = 1; print "not compatible: " (name != "" ? name ": " : "") $0 }
END { exit harm }

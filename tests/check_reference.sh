#!/usr/bin/env bash
# The reference of the ops, as make install puts it there: a manual page and a section of ops.html for every public op and for
# no other, in good form.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cotangent=$build_dir/bin/cotangent
prefix=$work/prefix
check "it installs" "${CMAKE:-cmake}" --install "$build_dir" --prefix "$prefix"
man=$prefix/share/man page=$prefix/share/doc/cotangent/ops.html
"$cotangent" ops | cut -d' ' -f1 | sort >"$work/ops"
# Functions that take a number for a tensor have a page that leads to the op's.
sed -n 's/^CT_API ct_tensor \*\(ct_[a-z0-9_]*_s\)(.*/\1/p' "$build_dir/generated/include/cotangent/ops.h" | sort >"$work/scalar"

some() { [ "$(wc -l <"$work/ops")" -gt 250 ] && [ "$(wc -l <"$work/scalar")" -gt 10 ]; }
pages() {
    find "$man/man3" -name 'ct_*.3' -exec basename {} .3 \; | sort >"$work/pages"
    sed 's/^/ct_/' "$work/ops" | sort - "$work/scalar" | diff - "$work/pages"
}
sections() { sed -n 's/^<section class="op" id="\([^"]*\)">$/\1/p' "$page" | sort | diff "$work/ops" -; }
links() { sed -n 's,^<li><a href="#\([^"]*\)">\1</a></li>$,\1,p' "$page" | sort | diff "$work/ops" -; }
listed() { sed -n 's/^\.BR ct_\([a-z0-9_]*\) (3)$/\1/p' "$man/man7/cotangent-ops.7" | sort | diff "$work/ops" -; }
leads() { for name in $(cat "$work/scalar"); do [ -f "$man/$(sed -n 's/^\.so //p' "$man/man3/$name.3")" ] || { echo "$name" && return 1; }; done; }
neighbors() {
    for name in $(cat "$man"/man3/*.3 | sed -n 's/^\.BR \(ct_[a-z0-9_]*\) (3).*/\1/p' | sort -u); do
        [ -f "$man/man3/$name.3" ] || { echo "$name is referred to and not there" && return 1; }
    done
}
# What the formatter has to say about them.
warnings() {
    for file in "$man"/man3/*.3 "$man"/man7/*.7 "$man"/man1/*.1; do
        grep -q '^\.so' "$file" || groff -man -ww -Tutf8 -K utf8 -z "$file"
    done >"$work/warnings" 2>&1
    head -n 20 "$work/warnings"
    [ ! -s "$work/warnings" ]
}
found() { [ "$(MANPATH=$man man -w ct_softmax)" = "$man/man3/ct_softmax.3" ] && MANPATH=$man man -w cotangent-ops cotangent; }
shown() { MANWIDTH=100 man -l "$man/man3/ct_softmax.3" | grep -q 'ct_softmax(ct_tensor \*x, int64_t axis)'; }
cat >"$work/form.py" <<'PYTHON'
import html.parser, sys
class Form(html.parser.HTMLParser):
    void = {"meta", "input", "br", "link"}
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.targets, self.wrong = [], set(), set(), []
    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            if attrs["id"] in self.ids: self.wrong.append("twice: " + attrs["id"])
            self.ids.add(attrs["id"])
        if attrs.get("href", "").startswith("#"): self.targets.add(attrs["href"][1:])
        if tag not in self.void: self.open.append(tag)
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: self.wrong.append(f"line {self.getpos()[0]}: </{tag}>")
    def error(self, message): self.wrong.append(message)
form = Form()
form.feed(open(sys.argv[1], encoding="utf-8").read())
form.close()
form.wrong += ["still open: " + tag for tag in form.open] + ["no such section: " + name for name in form.targets - form.ids]
print("\n".join(form.wrong[:20]))
sys.exit(bool(form.wrong))
PYTHON

check "there are ops" some
check "a manual page for every op, and no other" pages
check "a section for every op, and no other" sections
check "a link in the index for every op, and no other" links
check "a line in cotangent-ops(7) for every op, and no other" listed
check "forms that take a number lead to a page" leads
check "pages refer to pages" neighbors
if command -v groff >/dev/null; then check "the manual pages have no warnings" warnings; else skip "the manual pages have no warnings" "no groff"; fi
if man --version 2>/dev/null | grep -q '^man [0-9]'; then # a stand-in of small images says something else
    check "man finds them" found
    check "man shows them" shown
else
    skip "man finds them" "no man"
fi
if command -v python3 >/dev/null; then check "ops.html is well formed" python3 "$work/form.py" "$page"; else skip "ops.html is well formed" "no python3"; fi
finish

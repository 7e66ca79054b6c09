/* The reference as one HTML page that needs nothing else: an index by folder, a search box, a section for each op. */
#include <ctype.h>
#include <string.h>

#include "mkops.h"

static const char *const style =
    ":root { --ink: #1c2330; --soft: #5b6577; --line: #dfe3ea; --paper: #fff; --shade: #f5f7fa; --accent: #0a5bd3; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ink: #e4e8f0; --soft: #98a3b7; --line: #2c3442; --paper: #12161d; --shade: #1a202a; --accent: "
    "#7db1ff; }\n"
    "}\n"
    "* { box-sizing: border-box; }\n"
    "html { scroll-padding-top: 1rem; }\n"
    "body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.55 system-ui, sans-serif; }\n"
    "a { color: var(--accent); text-decoration: none; }\n"
    "a:hover { text-decoration: underline; }\n"
    "code, pre { font: 0.875em/1.5 ui-monospace, monospace; }\n"
    "nav { position: fixed; inset: 0 auto 0 0; width: 17.5rem; overflow-y: auto; padding: 1.25rem; background: "
    "var(--shade);\n"
    "  border-right: 1px solid var(--line); }\n"
    "nav h1 { margin: 0 0 0.75rem; font-size: 1.15rem; }\n"
    "nav h2 { margin: 1rem 0 0.25rem; font-size: 0.75rem; letter-spacing: 0.06em; text-transform: uppercase; color: "
    "var(--soft); }\n"
    "nav ul { margin: 0; padding: 0; list-style: none; }\n"
    "nav li a { display: block; padding: 0.05rem 0; color: var(--ink); font-size: 0.875rem; overflow-wrap: anywhere; "
    "}\n"
    "input { width: 100%; padding: 0.5rem 0.65rem; color: inherit; background: var(--paper); border: 1px solid "
    "var(--line);\n"
    "  border-radius: 6px; font: inherit; }\n"
    "input:focus { outline: 2px solid var(--accent); outline-offset: -1px; }\n"
    "#count { margin: 0.4rem 0 0; font-size: 0.8rem; color: var(--soft); }\n"
    "main { margin-left: 17.5rem; padding: 2rem 2.5rem 4rem; max-width: 68rem; }\n"
    "main > h1 { margin: 0 0 0.5rem; font-size: 1.8rem; }\n"
    "main .group > h2 { margin: 2.5rem 0 0; padding-bottom: 0.3rem; border-bottom: 2px solid var(--line); font-size: "
    "1.3rem; }\n"
    ".op { padding: 1.4rem 0 1.2rem; border-bottom: 1px solid var(--line); }\n"
    ".op h3 { display: flex; flex-wrap: wrap; gap: 0.6rem; align-items: baseline; margin: 0 0 0.5rem; font-size: "
    "1.1rem; }\n"
    ".op h3 a { color: inherit; font-weight: 600; }\n"
    ".tag { padding: 0.05rem 0.5rem; border: 1px solid var(--line); border-radius: 99px; color: var(--soft);\n"
    "  font-size: 0.75rem; font-weight: 400; }\n"
    "pre { margin: 0 0 0.7rem; padding: 0.65rem 0.85rem; background: var(--shade); border-radius: 6px; white-space: "
    "pre-wrap; }\n"
    "pre.prototype { padding: 0 0.85rem; background: none; color: var(--soft); font-size: 0.8rem; }\n"
    "p { margin: 0 0 0.7rem; }\n"
    "table { border-collapse: collapse; font-size: 0.9rem; }\n"
    "th, td { padding: 0.25rem 1.25rem 0.25rem 0; border-bottom: 1px solid var(--line); text-align: left; "
    "vertical-align: top; "
    "}\n"
    "th { color: var(--soft); font-weight: 500; }\n"
    "[hidden] { display: none !important; }\n"
    "@media (max-width: 52rem) { nav { position: static; width: auto; border: 0; } nav .group { display: none; }\n"
    "  main { margin: 0; padding: 1.25rem; } }\n";

/* Every word has to be in an op's name, its call or its text. Enter goes to the op that begins so, or to the first. */
static const char *const script =
    "const box = document.querySelector('input'), count = document.querySelector('#count');\n"
    "const ops = [...document.querySelectorAll('.op')].map(at => ({at, text: at.textContent.toLowerCase(),\n"
    "  link: document.querySelector('nav a[href=\"#' + at.id + '\"]').parentNode}));\n"
    "function search() {\n"
    "  const words = box.value.toLowerCase().split(/\\s+/).filter(Boolean);\n"
    "  let shown = 0;\n"
    "  for (const op of ops) {\n"
    "    const found = words.every(word => op.text.includes(word));\n"
    "    op.at.hidden = op.link.hidden = !found;\n"
    "    shown += found;\n"
    "  }\n"
    "  for (const group of document.querySelectorAll('.group'))\n"
    "    group.hidden = !group.querySelector('.op:not([hidden]), li:not([hidden])');\n"
    "  count.textContent = words.length ? shown + ' of ' + ops.length : ops.length + ' ops';\n"
    "}\n"
    "box.addEventListener('input', search);\n"
    "box.addEventListener('keydown', event => {\n"
    "  const shown = ops.filter(op => !op.at.hidden), first = shown.find(op => op.at.id.startsWith(box.value)) || "
    "shown[0];\n"
    "  if (event.key === 'Enter' && first) location.hash = first.at.id;\n"
    "  if (event.key === 'Escape') { box.value = ''; search(); }\n"
    "});\n"
    "document.addEventListener('keydown', event => {\n"
    "  if (event.key === '/' && document.activeElement !== box) { event.preventDefault(); box.focus(); }\n"
    "});\n"
    "search();\n";

static void put_text(text *t, const char *s) {
    for (; *s; s++) {
        if (*s == '<') put(t, "&lt;");
        else if (*s == '>') put(t, "&gt;");
        else if (*s == '&') put(t, "&amp;");
        else if (*s == '"') put(t, "&quot;");
        else put(t, "%c", *s);
    }
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* A text in which the names of other ops are links. */
static void put_linked(text *t, const library *lib, const op_def *op, const char *s) {
    while (*s) {
        size_t n = 0;
        while (word_char(s[n])) n++;
        if (n == 0) {
            put_text(t, copy_n(s++, 1));
            continue;
        }
        const char *name = copy_n(s, n);
        const bool named = n > 3 && strncmp(name, "ct_", 3) == 0;
        const op_def *other = find_op(lib, named ? name + 3 : name);
        /* without the prefix many names are plain words: only those that cannot be are taken */
        if (other && !other->internal && other != op && (named || strchr(name, '_')))
            put(t, "<a href=\"#%s\"><code>%s</code></a>", other->name, name);
        else if (named || (n > 3 && strncmp(name, "CT_", 3) == 0)) put(t, "<code>%s</code>", name);
        else put_text(t, name);
        s += n;
    }
}

static void emit_table_of_options(text *t, const op_def *op) {
    option_row rows[MOST_OPTIONS];
    const int n = option_rows(op, rows);
    if (n == 0) return;
    put(t, "<table>\n<tr><th>option</th><th>type</th><th>default</th></tr>\n");
    for (int i = 0; i < n; i++) {
        put(t, "<tr><td><code>.%s</code></td><td><code>", rows[i].name);
        put_text(t, rows[i].type);
        put(t, "</code></td><td>");
        put_text(t, rows[i].standard ? rows[i].standard : rows[i].note);
        for (int k = 0; rows[i].values && k < rows[i].values->n; k++)
            put(t, "%s<code>%s</code>", k ? ", " : "; one of ", rows[i].values->constants[k]);
        put(t, "</td></tr>\n");
    }
    put(t, "</table>\n");
}

static void emit_op(text *t, const library *lib, const op_def *op) {
    const char *gradient = differentiable(op);
    put(t, "<section class=\"op\" id=\"%s\">\n<h3><a href=\"#%s\"><code>ct_%s</code></a>", op->name, op->name,
        op->name);
    put(t, "<span class=\"tag\">%c%.*s</span>", tolower((unsigned char)gradient[0]), (int)strlen(gradient) - 2,
        gradient + 1); /* a sentence as a tag */
    if (op->view) put(t, "<span class=\"tag\">a view</span>");
    if (op->random) put(t, "<span class=\"tag\">random</span>");
    put(t, "</h3>\n<pre>");
    put_text(t, call_form(op));
    if (has_scalar_form(op)) {
        put(t, "\nct_%s_s(%s, number)", op->name, op->args[0].name);
        if (!op->commutes) put(t, "\nct_r%s_s(%s, number)", op->name, op->args[1].name);
    }
    put(t, "</pre>\n<pre class=\"prototype\">");
    put_text(t, c_prototype(op));
    put(t, ";</pre>\n<p>");
    put_linked(t, lib, op, op->doc);
    if (op->elementwise) put(t, " %s", accepted_dtypes(op));
    put(t, "</p>\n");
    emit_table_of_options(t, op);
    put(t, "</section>\n");
}

/* Calls emit for the ops of each folder, between what opens and closes a folder. */
static void by_folder(text *t, const library *lib, const char *open, const char *close,
                      void (*emit)(text *, const library *, const op_def *)) {
    for (int i = 0; i < lib->n_folders; i++) {
        bool headed = false;
        for (int k = 0; k < lib->n_ops; k++) {
            const op_def *op = lib->ops[k];
            if (op->internal || strcmp(op->folder, lib->folders[i]) != 0) continue;
            if (!headed) {
                put(t, "<div class=\"group\">\n<h2>");
                for (const char *p = lib->folders[i]; *p; p++) put(t, "%c", *p == '_' ? ' ' : *p);
                put(t, "</h2>\n%s", open);
            }
            headed = true;
            emit(t, lib, op);
        }
        if (headed) put(t, "%s</div>\n", close);
    }
}

static void emit_link(text *t, const library *lib, const op_def *op) {
    (void)lib;
    put(t, "<li><a href=\"#%s\">%s</a></li>\n", op->name, op->name);
}

void emit_html(const library *lib, const char *out) {
    text t = {0};
    put(&t,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Cotangent: the ops</title>\n"
        "<style>\n%s</style>\n</head>\n<body>\n<nav>\n<h1>Cotangent ops</h1>\n"
        "<input type=\"search\" placeholder=\"Search (press /)\" aria-label=\"Search the ops\">\n<p "
        "id=\"count\"></p>\n",
        style);
    by_folder(&t, lib, "<ul>\n", "</ul>\n", emit_link);
    put(&t,
        "</nav>\n<main>\n<h1>The ops</h1>\n<p>Required arguments come first; options go by name, in any order, and "
        "zero means "
        "the default: <code>ct_sum(x, .axes = CT_DIMS(0), .keepdim = true)</code>. C++ and other languages call the "
        "function whose name ends in <code>_p</code>. A result belongs to the current scope, and is <code>NULL</code> "
        "when "
        "<code>ct_error()</code> has something to say. <code>cotangent ops NAME</code> says the same in a terminal, "
        "<code>man ct_NAME</code> too.</p>\n");
    by_folder(&t, lib, "", "", emit_op);
    put(&t, "</main>\n<script>\n%s</script>\n</body>\n</html>\n", script);
    write_if_changed(out, "docs/ops.html", &t);
}

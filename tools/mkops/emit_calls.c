/* How functions of a public header are called with options by name: in C a macro each, over the function whose name ends in
 * _p; in C++ a function whose last argument may be left out. */
#include <string.h>

#include "header.h"

/* Everything passes through one `...` that is never empty, because -Wpedantic refuses an empty one. */
static void emit_macro(text *t, const function_def *f) {
    if (!f->n_params) {
        put(t, "#define ct_%s(...) ct_%s_p(&(%s){.size = sizeof(%s), __VA_ARGS__})\n", f->name, f->name, f->options,
            f->options);
        return;
    }
    put(t, "#define ct_%s(...) ct__%s_x(__VA_ARGS__, .size = sizeof(%s))\n", f->name, f->name, f->options);
    put(t, "#define ct__%s_x(", f->name);
    for (int i = 0; i < f->n_params; i++) put(t, "%s_, ", f->params[i].name);
    put(t, "...) ct_%s_p(", f->name);
    for (int i = 0; i < f->n_params; i++) put(t, "(%s_), ", f->params[i].name);
    put(t, "&(%s){__VA_ARGS__})\n", f->options);
}

static void emit_function(text *t, const function_def *f) {
    put(t, "static inline %s%sct_%s(", f->type, has_end(f->type, "*") ? "" : " ", f->name);
    for (int i = 0; i < f->n_params; i++)
        put(t, "%s%s%s, ", f->params[i].type, has_end(f->params[i].type, "*") ? "" : " ", f->params[i].name);
    put(t, "%s options = %s()) {\n    options.size = sizeof options;\n    return ct_%s_p(", f->options, f->options,
        f->name);
    for (int i = 0; i < f->n_params; i++) put(t, "%s, ", f->params[i].name);
    put(t, "&options);\n}\n");
}

void emit_calls(const header_def *header, const char *name, const char *out) {
    text t = {0};
    const char *guard = upper_case(name);
    put(&t,
        "/* Options by name, for the functions of cotangent/%s.h. Written by mkops from that header, which includes "
        "this.\n",
        name);
    put(&t, " * C: ct_nn_conv2d(3, 16, 5, .pad = 2). C++: options are a last argument, which may be left out. */\n");
    put(&t, "#ifndef COTANGENT_%s_OPTIONS_H\n#define COTANGENT_%s_OPTIONS_H\n\n#ifndef __cplusplus\n", guard, guard);
    int count = 0;
    for (int i = 0; i < header->n_functions; i++)
        if (header->functions[i].options) emit_macro(&t, &header->functions[i]), count++;
    if (!count) fail_at(header->file, 1, "no function of it takes options: it needs no %s_options.h", name);
    put(&t, "#else\n");
    for (int i = 0; i < header->n_functions; i++)
        if (header->functions[i].options) emit_function(&t, &header->functions[i]);
    put(&t, "#endif\n\n#endif\n");
    write_if_changed(form("%s/include/cotangent", out), form("%s_options.h", name), &t);
}

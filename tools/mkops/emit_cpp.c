/* The ops for C++: ops.hpp, functions of the names of ops.h whose results are owned. */
#include <string.h>

#include "mkops.h"

static const char *cpp_type(const arg_def *arg) {
    if (arg->kind == ARG_DIMS || arg->kind == ARG_AXES) return "const dims &";
    if (arg->list) return "const tensors &";
    return c_type(arg);
}

/* Declarations of the parameters, or what the C function is called with. */
static void put_parameters(text *t, const op_def *op, bool call) {
    const char *comma = "";
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        if (is_option(arg)) continue;
        const char *plural = arg->kind == ARG_AXES ? "s" : "";
        if (!call) put(t, "%s%s%s%s", comma, cpp_type(arg), arg->name, plural);
        else if (arg->list) put(t, "%s%s.data(), %s.count()", comma, arg->name, arg->name);
        else put(t, "%s%s%s", comma, arg->name, plural);
        comma = ", ";
    }
    if (op->outputs[0].list) {
        const char *count = list_input(op) ? "n_out" : "n";
        put(t, call ? "%sout_.data(), %s" : "%sint %s", comma, count);
        comma = ", ";
    }
    if (has_options(op)) put(t, call ? "%s&options" : "%sct_%s_options options = {}", comma, op->name);
}

static void put_function(text *t, const op_def *op) {
    const bool list = op->outputs[0].list;
    put(t, "inline %s %s(", list ? "std::vector<tensor>" : "tensor", op->name);
    put_parameters(t, op, false);
    put(t, ") {\n    detail::call call_;\n");
    if (has_options(op)) put(t, "    options.size = sizeof options;\n");
    if (list) {
        const char *count = list_input(op) ? "n_out" : "n";
        put(t, "    std::vector<ct_tensor *> out_(%s > 0 ? static_cast<std::size_t>(%s) : 0);\n    const bool ok_ = ",
            count, count);
    } else {
        put(t, "    ct_tensor *const out_ = ");
    }
    put(t, "ct_%s%s(", op->name, has_options(op) ? "_p" : "");
    put_parameters(t, op, true);
    put(t, ");\n");
    for (int i = 1; i < op->n_outputs; i++) put(t, "    call_.keep(options.%s);\n", op->outputs[i].name);
    put(t, list ? "    return call_.results(ok_, out_);\n}\n" : "    return call_.result(out_);\n}\n");
    if (!has_scalar_form(op)) return;
    for (int reversed = 0; reversed <= !op->commutes; reversed++) {
        const char *x = op->args[reversed].name, *r = reversed ? "r" : "";
        put(t, "inline tensor %s%s_s(ct_tensor *%s, double value) {\n    detail::call call_;\n", r, op->name, x);
        put(t, "    return call_.result(ct_%s%s_s(%s, value));\n}\n", r, op->name, x);
    }
}

void emit_ops_hpp(const library *lib, const char *out) {
    text t = {0};
    put(&t,
        "/* The ops for C++, with the names and arguments of cotangent/ops.h, which says what they mean. Their results "
        "are "
        "owned,\n"
        " * and options are a last argument, which may be left out: ct::sum(x, {.keepdim = true}) in C++20. Written by "
        "mkops;\n"
        " * included by cotangent.hpp. */\n"
        "#ifndef COTANGENT_OPS_HPP\n#define COTANGENT_OPS_HPP\n\n#include <cotangent.hpp>\n\nnamespace ct {\n\n");
    for (int i = 0; i < lib->n_ops; i++)
        if (!lib->ops[i]->internal) put_function(&t, lib->ops[i]);
    put(&t, "\n} // namespace ct\n\n#endif\n");
    write_if_changed(out, "include/cotangent/ops.hpp", &t);
}

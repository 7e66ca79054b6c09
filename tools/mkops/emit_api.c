/* The C interface of the ops: ops.h, ops_api.c and the names without prefix. */
#include <string.h>

#include "mkops.h"

const char *c_prefix(const op_def *op) { return op->internal ? "ct__" : "ct_"; }

const char *c_type(const arg_def *arg) {
    switch (arg->kind) {
    case ARG_INPUT: return "ct_tensor *";
    case ARG_INT: return "int64_t ";
    case ARG_DOUBLE: return "double ";
    case ARG_BOOL: return "bool ";
    case ARG_DIMS:
    case ARG_AXES: return "ct_dims ";
    case ARG_DTYPE: return "ct_dtype ";
    case ARG_TEXT: return "const char *";
    case ARG_ENUM: return form("ct_%s ", arg->values->name);
    case ARG_OPT: return "ct_opt ";
    case ARG_DEVICE: return "ct_device ";
    }
    return "";
}

static bool returns_list(const op_def *op) { return op->outputs[0].list; }
/* What it changes is all that its callers want. */
static bool returns_nothing(const op_def *op) { return op->outputs[0].optional; }
static bool returns_bool(const op_def *op) { return returns_list(op) || returns_nothing(op); }

/* The names of the positional parameters, and with types their declarations. */
static char *parameters(const op_def *op, bool types) {
    text t = {0};
    put(&t, "%s", "");
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        if (is_option(arg)) continue;
        const char *plural = arg->kind == ARG_AXES ? "s" : "";
        if (t.n) put(&t, ", ");
        if (arg->list) put(&t, types ? "ct_tensor *const *%s, int n" : "%s, n", arg->name);
        else put(&t, "%s%s%s", types ? c_type(arg) : "", arg->name, plural);
    }
    if (returns_list(op)) {
        const char *count = list_input(op) ? "n_out" : "n";
        if (t.n) put(&t, ", ");
        put(&t, types ? "ct_tensor **%s, int %s" : "%s, %s", op->outputs[0].name, count);
    }
    return t.s;
}

char *c_prototype(const op_def *op) {
    text t = {0};
    const char *prefix = c_prefix(op), *list = parameters(op, true);
    put(&t, "%s%s%s%s(", returns_bool(op) ? "bool " : "ct_tensor *", prefix, op->name, has_options(op) ? "_p" : "");
    put(&t, "%s", *list || has_options(op) ? list : "void");
    if (has_options(op)) put(&t, "%sconst %s%s_options *options", *list ? ", " : "", prefix, op->name);
    put(&t, ")");
    return t.s;
}

char *call_form(const op_def *op) {
    text t = {0};
    put(&t, "%s%s(%s", c_prefix(op), op->name, parameters(op, false));
    const char *comma = t.s[t.n - 1] == '(' ? "" : ", ";
    for (int i = 0; i < op->n_args; i++)
        if (is_option(&op->args[i])) {
            put(&t, "%s.%s", comma, op->args[i].name);
            comma = ", ";
        }
    for (int i = 1; i < op->n_outputs; i++) {
        put(&t, "%s.%s", comma, op->outputs[i].name);
        comma = ", ";
    }
    if (op->random) put(&t, "%s.rng", comma);
    put(&t, ")");
    return t.s;
}

/* ---- Option structs and macros -------------------------------------------------------------------------- */

void emit_options(text *t, const op_def *op) {
    const char *prefix = c_prefix(op);
    if (!has_options(op)) return;
    put(t, "typedef struct %s%s_options {\n    size_t size;\n", prefix, op->name);
    for (int i = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        if (!is_option(arg)) continue;
        if (arg->kind == ARG_AXES) {
            put(t, "    int64_t %s; /* %s; for every axis */\n", arg->name, arg->written);
            put(t, "    ct_dims %ss; /* by axis; wins */\n", arg->name);
        } else if (is_attr(arg)) {
            put(t, "    %s%s; /* %s */\n", c_type(arg), arg->name, arg->written);
        } else {
            put(t, "    %s%s;\n", c_type(arg), arg->name);
        }
    }
    for (int i = 1; i < op->n_outputs; i++)
        put(t, "    ct_tensor **%s; /* a result, computed when asked for */\n", op->outputs[i].name);
    if (op->random) put(t, "    ct_rng *rng;\n");
    put(t, "} %s%s_options;\n", prefix, op->name);
}

/* Everything passes through one `...` that is never empty, because -Wpedantic refuses an empty one. */
static void emit_macro(text *t, const op_def *op) {
    if (!has_options(op)) return;
    const char *prefix = c_prefix(op), *list = parameters(op, false);
    if (!*list) {
        put(t, "#define %s%s(...) %s%s_p(&(%s%s_options){.size = sizeof(%s%s_options), __VA_ARGS__})\n", prefix,
            op->name, prefix, op->name, prefix, op->name, prefix, op->name);
        return;
    }
    put(t, "#define %s%s(...) ct__%s_x(__VA_ARGS__, .size = sizeof(%s%s_options))\n", prefix, op->name, op->name,
        prefix, op->name);
    put(t, "#define ct__%s_x(%s, ...) %s%s_p(", op->name, list, prefix, op->name);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        put(t, "(%.*s), ", (int)n, p);
        p += n + strspn(p + n, ", ");
    }
    put(t, "&(%s%s_options){__VA_ARGS__})\n", prefix, op->name);
}

void emit_internal_macros(text *t, const library *lib) {
    put(t, "\n");
    for (int i = 0; i < lib->n_ops; i++)
        if (lib->ops[i]->internal && !lib->ops[i]->of) emit_macro(t, lib->ops[i]);
}

static void emit_enum(text *t, const enum_def *e) {
    put(t, "typedef enum ct_%s {\n", e->name);
    for (int i = 0; i < e->n; i++) put(t, "    %s%s,\n", e->constants[i], i ? "" : " = 0");
    put(t, "} ct_%s;\n", e->name);
}

static void emit_comment(text *t, const op_def *op) {
    put(t, "/* ");
    if (has_options(op)) put(t, "%s\n * ", call_form(op));
    for (const char *p = op->doc; *p; p++) {
        if (*p == '\n') put(t, "\n * ");
        else if (p[0] == '*' && p[1] == '/') put(t, "* ");
        else put(t, "%c", *p);
    }
    put(t, " */\n");
}

bool has_scalar_form(const op_def *op) {
    return op->elementwise && !op->internal && op->n_args == 2 && count_inputs(op) == 2;
}

static void emit_scalar_prototypes(text *t, const op_def *op, const char *start, const char *end) {
    if (!has_scalar_form(op)) return;
    put(t, "%sct_tensor *ct_%s_s(ct_tensor *%s, double value)%s", start, op->name, op->args[0].name, end);
    if (!op->commutes)
        put(t, "%sct_tensor *ct_r%s_s(ct_tensor *%s, double value)%s", start, op->name, op->args[1].name, end);
}

static void emit_enums_h(const library *lib, const char *out) {
    text t = {0};
    put(&t, "/* The choices that ops take as options. Written by mkops from ops/; included by ops.h. */\n"
            "#ifndef COTANGENT_ENUMS_H\n#define COTANGENT_ENUMS_H\n\n");
    for (int i = 0; i < lib->n_enums; i++) emit_enum(&t, lib->enums[i]);
    put(&t, "\n#endif\n");
    write_if_changed(out, "include/cotangent/enums.h", &t);
}

/* A number for how attributes lie in memory (FNV-1a of every op's name and those and kinds of its attributes), in a header of its
 * own: kernels do not include it, so a new op does not recompile them. */
static void emit_layouts_h(const library *lib, const char *out) {
    text t = {0}, facts = {0};
    for (int i = 0; i < lib->n_ops; i++) {
        put(&facts, "%s;", lib->ops[i]->name);
        for (int k = 0; k < lib->ops[i]->n_args; k++) {
            const arg_def *arg = &lib->ops[i]->args[k];
            if (is_attr(arg)) put(&facts, "%s:%d%d,", arg->name, (int)arg->kind, arg->unset);
        }
    }
    unsigned long long hash = 0xcbf29ce484222325u;
    for (const char *c = facts.s; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    put(&t,
        "/* How the attributes of all ops lie in memory, as a number: a backend's module compares it with that of the "
        "library\n"
        " * that opens it (cotangent/backend.h). Written by mkops. */\n#ifndef COTANGENT_LAYOUTS_H\n#define "
        "COTANGENT_LAYOUTS_H\n\n#define CT_ATTRIBUTE_LAYOUTS 0x%llxu\n\n#endif\n",
        hash);
    write_if_changed(out, "include/cotangent/layouts.h", &t);
}

void emit_ops_h(const library *lib, const char *out) {
    text t = {0};
    emit_enums_h(lib, out);
    emit_layouts_h(lib, out);
    const char *folder = "";
    put(&t,
        "/* The ops, each with its meaning. Written by mkops from ops/; included by cotangent.h. Options go by "
        "name and\n"
        " * zero means the default, which stands beside each option. C++ and other languages call the _p "
        "functions. */\n"
        "#ifndef COTANGENT_OPS_H\n#define COTANGENT_OPS_H\n\n#include <cotangent.h>\n#include <cotangent/enums.h>\n\n"
        "#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        if (op->internal) continue;
        if (strcmp(folder, op->folder) != 0) put(&t, "\n/* ---- %s ---- */\n", folder = op->folder);
        put(&t, "\n");
        emit_comment(&t, op);
        emit_options(&t, op);
        put(&t, "CT_API %s;\n", c_prototype(op));
        emit_scalar_prototypes(&t, op, "CT_API ", ";\n");
    }
    put(&t, "\n/* Options by name. */\n#ifndef __cplusplus\n");
    for (int i = 0; i < lib->n_ops; i++)
        if (!lib->ops[i]->internal) emit_macro(&t, lib->ops[i]);
    put(&t, "#endif\n\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
    write_if_changed(out, "include/cotangent/ops.h", &t);
}

/* ---- Functions --------------------------------------------------------------------------------------------- */

/* Copies an argument, positional (from "") or an option (from "o_->"), into the attribute struct a. Byte for byte
 * equal calls must give equal structs, so padding stays zero: structs are copied by field. */
static void emit_attr(text *t, const op_def *op, const arg_def *arg, const char *fail) {
    const char *from = arg->positional ? "" : "o_->", *name = arg->name;
    switch (arg->kind) {
    case ARG_INPUT: return;
    case ARG_INT:
    case ARG_DOUBLE:
    case ARG_DTYPE:
        if (arg->kind == ARG_DTYPE && arg->nonzero)
            put(t, "    a_.%s = o_->%s ? o_->%s : (ct_dtype)%d;\n", name, name, name, (int)arg->number);
        else if (arg->nonzero) put(t, "    a_.%s = o_->%s != 0 ? o_->%s : %s;\n", name, name, name, arg->written);
        else put(t, "    a_.%s = %s%s;\n", name, from, name);
        return;
    case ARG_BOOL: put(t, "    a_.%s = %s%s;\n", name, from, name); return;
    case ARG_ENUM:
        put(t, "    a_.%s = (int)%s%s;\n", name, from, name); /* dispatch sees whether it is one of its values */
        return;
    case ARG_TEXT:
        put(t, "    if (!take_text(\"%s\", \"%s\", &a_.%s, %s%s, %s)) %s;\n", op->name, name, name, from, name,
            arg->positional ? "true" : "false", fail);
        return;
    case ARG_DIMS:
        put(t, "    if (!take_dims(\"%s\", \"%s\", &a_.%s, &%s%s)) %s;\n", op->name, name, name, from, name, fail);
        return;
    case ARG_AXES:
        if (arg->positional)
            put(t, "    if (!take_dims(\"%s\", \"%ss\", &a_.%ss, &%ss)) %s;\n", op->name, name, name, name, fail);
        else
            put(t, "    if (!take_axes(\"%s\", \"%ss\", &a_.%ss, &o_->%ss, o_->%s, %d)) %s;\n", op->name, name, name,
                name, name, (int)arg->number, fail);
        return;
    case ARG_OPT:
        if (arg->unset)
            put(t, "    a_.%s.set = o_->%s.set;\n    a_.%s.value = o_->%s.set ? o_->%s.value : 0;\n", name, name, name,
                name, name);
        else put(t, "    a_.%s = o_->%s.set ? o_->%s.value : %s;\n", name, name, name, c_double(arg->number));
        return;
    case ARG_DEVICE:
        put(t, "    a_.%s.type = %s%s.type;\n    a_.%s.index = %s%s.index;\n", name, from, name, name, from, name);
        return;
    }
}

/* The array of inputs, `in` with `count` entries. A list after other inputs has to be copied behind them. */
static void emit_inputs(text *t, const op_def *op, const char *fail) {
    const arg_def *list = list_input(op);
    int fixed = count_inputs(op) - (list ? 1 : 0);
    if (list) {
        put(t, "    if (!check_list(\"%s\", \"%s\", %s, n)) %s;\n", op->name, list->name, list->name, fail);
        if (fixed == 0) {
            put(t, "    ct_tensor *const *in_ = %s;\n    const int count_ = n;\n", list->name);
            return;
        }
        put(t,
            "    ct_tensor *near_[32], **in_ = join_list(\"%s\", near_, 32, %d, %s, n);\n    if (!in_) %s;\n    const "
            "int count_ = %d + n;\n",
            op->name, fixed, list->name, fail, fixed);
    } else if (fixed == 0) {
        put(t, "    ct_tensor *const *in_ = NULL;\n    const int count_ = 0;\n");
        return;
    } else {
        put(t, "    ct_tensor *in_[] = {");
    }
    for (int i = 0, k = 0; i < op->n_args; i++) {
        const arg_def *arg = &op->args[i];
        if (is_attr(arg) || arg->list) continue;
        if (list) put(t, "    in_[%d] = %s%s;\n", k, arg->optional ? "o_->" : "", arg->name);
        else put(t, "%s%s%s", k ? ", " : "", arg->optional ? "o_->" : "", arg->name);
        k++;
    }
    if (!list) put(t, "};\n    const int count_ = %d;\n", fixed);
}

/* Whether dispatch has nothing to check of its attributes: any number is one, and lists and texts have been measured. */
static bool has_plain_attrs(const op_def *op) {
    for (int i = 0; i < op->n_args; i++) switch (op->args[i].kind) {
        case ARG_BOOL:
        case ARG_DTYPE:
        case ARG_ENUM:
        case ARG_DEVICE: return false;
        default: break;
        }
    return true;
}

static void emit_function(text *t, const op_def *op) {
    bool list = returns_list(op), options = has_options(op), attrs = has_attrs(op);
    const char *fail = returns_bool(op) ? "return false" : "return NULL", *attr = attrs ? "&a_" : "NULL";
    put(t, "%s {\n", c_prototype(op));
    if (options)
        put(t,
            "    %s%s_options room_;\n    const %s%s_options *o_ = ct__sized(&room_, sizeof room_, options, \"%s\");\n"
            "    if (!o_) %s;\n",
            c_prefix(op), op->name, c_prefix(op), op->name, op->name, fail);
    for (int i = 1; i < op->n_outputs; i++)
        put(t, "    if (o_->%s) *o_->%s = NULL;\n", op->outputs[i].name, op->outputs[i].name);
    if (list) {
        const char *count = list_input(op) ? "n_out" : "n";
        put(t, "    if (!clear_list(\"%s\", \"%s\", %s, %s)) return false;\n", op->name, op->outputs[0].name,
            op->outputs[0].name, count);
    }
    if (attrs) {
        put(t, "    %s_attrs a_;\n    ct__clear(&a_, sizeof a_);\n", attrs_of(op));
        for (int i = 0; i < op->n_args; i++) emit_attr(t, op, &op->args[i], fail);
    }
    emit_inputs(t, op, fail);
    bool joined = list_input(op) && count_inputs(op) > 1;
    const char *rng = op->random ? "o_->rng" : "NULL";
    if (list) {
        const char *count = list_input(op) ? "n_out" : "n";
        put(t, "    bool ok_ = ct_apply_with(&ct__op_%s, in_, count_, %s, %s, %s, NULL, %s);\n", op->name, attr,
            op->outputs[0].name, count, rng);
    } else if (returns_nothing(op)) {
        put(t,
            "    ct_tensor *out_ = NULL;\n    bool ok_ = ct_apply_with(&ct__op_%s, in_, count_, %s, &out_, 1, "
            "&(bool){false}, "
            "%s);\n",
            op->name, attr, rng);
    } else if (op->n_outputs == 1 && !op->random) {
        put(t, "    ct_tensor *out_ = ct__apply_%s(&ct__op_%s, in_, count_, %s);\n",
            has_plain_attrs(op) ? "plain" : "one", op->name, attr);
    } else {
        put(t, "    ct_tensor *out_[%d] = {NULL};\n    const bool want_[%d] = {true", op->n_outputs, op->n_outputs);
        for (int i = 1; i < op->n_outputs; i++) put(t, ", o_->%s != NULL", op->outputs[i].name);
        put(t, "};\n    bool ok_ = ct_apply_with(&ct__op_%s, in_, count_, %s, out_, %d, want_, %s);\n", op->name, attr,
            op->n_outputs, rng);
        for (int i = 1; i < op->n_outputs; i++)
            put(t, "    if (ok_ && o_->%s) *o_->%s = out_[%d];\n", op->outputs[i].name, op->outputs[i].name, i);
    }
    if (joined) put(t, "    if (in_ != near_) ct_free(in_);\n");
    if (returns_bool(op)) put(t, "    return ok_;\n");
    else put(t, op->n_outputs == 1 && !op->random ? "    return out_;\n" : "    return ok_ ? out_[0] : NULL;\n");
    put(t, "}\n\n");
}

static void emit_scalar_functions(text *t, const op_def *op) {
    if (!has_scalar_form(op)) return;
    for (int reversed = 0; reversed <= !op->commutes; reversed++) {
        const char *x = op->args[reversed].name;
        put(t, "ct_tensor *ct_%s%s_s(ct_tensor *%s, double value) {\n", reversed ? "r" : "", op->name, x);
        put(t,
            "    ct_tensor place_, *s_ = ct__number(&place_, %s, value, \"%s\");\n"
            "    if (%s && !s_) return NULL;\n",
            x, op->name, x);
        put(t, reversed ? "    ct_tensor *in_[] = {s_, %s};\n" : "    ct_tensor *in_[] = {%s, s_};\n", x);
        put(t, "    return ct__apply_one(&ct__op_%s, in_, 2, NULL);\n}\n\n", op->name);
    }
}

/* Text that every ops_api.c starts with. */
static const char *const api_helpers =
    "/* The functions of ops.h. Written by mkops. */\n"
    "#include <math.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
    "#include <cotangent/op.h>\n\n#include \"core/number.h\"\n#include \"core/sized.h\"\n#include "
    "\"core/tensor.h\"\n#include "
    "\"gen/ops_decl.h\"\n\n"
    "#define UNUSED __attribute__((unused))\n\n"
    "UNUSED static bool take_dims(const char *op, const char *name, ct_dims *to, const ct_dims *from) {\n"
    "    if (from->n < 0 || from->n > CT_MAX_LIST)\n"
    "        return ct_fail(CT_ERR_VALUE, op, \"%s: a list holds at most %d numbers\", name, CT_MAX_LIST);\n"
    "    to->n = from->n;\n"
    "    ct__copy_dims(to->d, from->d, from->n);\n"
    "    return true;\n"
    "}\n\n"
    "UNUSED static bool take_axes(const char *op, const char *name, ct_dims *to, const ct_dims *list, int64_t one, "
    "int64_t normal) {\n"
    "    if (list->n) return take_dims(op, name, to, list);\n"
    "    to->n = 1;\n"
    "    to->d[0] = one ? one : normal;\n"
    "    return true;\n"
    "}\n\n"
    "UNUSED static bool take_text(const char *op, const char *name, ct_text *to, const char *s, bool required) {\n"
    "    if (!s && required) return ct_fail(CT_ERR_NULL, op, \"%s is NULL\", name);\n"
    "    size_t n = s ? strlen(s) : 0;\n"
    "    if (n >= sizeof to->s) return ct_fail(CT_ERR_VALUE, op, \"%s is longer than %d characters\", name, "
    "(int)sizeof to->s - 1);\n"
    "    if (n) memcpy(to->s, s, n);\n"
    "    return true;\n"
    "}\n\n"
    "UNUSED static bool check_list(const char *op, const char *name, ct_tensor *const *list, int n) {\n"
    "    if (n < 0) return ct_fail(CT_ERR_VALUE, op, \"%s: a list of %d tensors\", name, n);\n"
    "    if (n > 0 && !list) return ct_fail(CT_ERR_NULL, op, \"%s is NULL\", name);\n"
    "    return true;\n"
    "}\n\n"
    "UNUSED static bool clear_list(const char *op, const char *name, ct_tensor **list, int n) {\n"
    "    if (!check_list(op, name, list, n)) return false;\n"
    "    for (int i = 0; i < n; i++) list[i] = NULL;\n"
    "    return true;\n"
    "}\n\n"
    "/* Room for `fixed` tensors and the list behind them: near if that is enough, else from the heap. */\n"
    "UNUSED static ct_tensor **join_list(const char *op, ct_tensor **near, int room, int fixed, ct_tensor *const "
    "*list, int n) {\n"
    "    ct_tensor **all = near;\n"
    "    if (n > room - fixed) all = ct_malloc(((size_t)n + (size_t)fixed) * sizeof *all);\n"
    "    if (!all) {\n"
    "        ct_fail(CT_ERR_MEMORY, op, \"no memory for a list of %d tensors\", n);\n"
    "        return NULL;\n"
    "    }\n"
    "    if (n) memcpy(all + fixed, list, (size_t)n * sizeof *all);\n"
    "    return all;\n"
    "}\n\n";

void emit_api(const library *lib, const char *out) {
    text t = {0};
    put(&t, "%s", api_helpers);
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        if (op->of) continue; /* only vjp calls it */
        emit_function(&t, op);
        emit_scalar_functions(&t, op);
    }
    write_if_changed(out, "gen/ops_api.c", &t);
}

void emit_short(const library *lib, const char *out) {
    text t = {0};
    put(&t,
        "/* The ops without their prefix, for derivatives that read as formulas. Included last; written by mkops. */\n"
        "#ifndef COTANGENT_OPS_SHORT_H\n#define COTANGENT_OPS_SHORT_H\n\n");
    for (int i = 0; i < lib->n_ops; i++) {
        const op_def *op = lib->ops[i];
        if (op->of) continue;
        put(&t, "#define %s(...) %s%s(__VA_ARGS__)\n", op->name, c_prefix(op), op->name);
        if (!has_scalar_form(op)) continue;
        put(&t, "#define %s_s(...) ct_%s_s(__VA_ARGS__)\n", op->name, op->name);
        if (!op->commutes) put(&t, "#define r%s_s(...) ct_r%s_s(__VA_ARGS__)\n", op->name, op->name);
    }
    put(&t, "\n#endif\n");
    write_if_changed(out, "gen/ops_short.h", &t);
}

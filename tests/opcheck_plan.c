/* Drawing the plans of random calls: shapes, dtypes, layouts, options and counts that no caller should give, near enough to
 * the samples of an op that many calls are right. */
#include "tests/opcheck_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz_calls.h"

enum { SMALL = 1500 }; /* elements of a sample that is taken often */

/* ---- Shapes ---- */

int64_t opcheck_extent(ct_dims shape) {
    int64_t count = 1;
    for (int i = 0; i < shape.n; i++)
        if (shape.d[i] && __builtin_mul_overflow(count, shape.d[i], &count)) return INT64_MAX;
    return count;
}

static bool has_zero(ct_dims shape) {
    for (int i = 0; i < shape.n; i++)
        if (shape.d[i] == 0) return true;
    return false;
}

/* Tensors are of such shapes: the product of the sizes that are not zero is counted, and what has elements is small. */
static bool is_possible(ct_dims shape) {
    const int64_t count = opcheck_extent(shape);
    return count <= (has_zero(shape) ? INT64_MAX / 16 : OPCHECK_LARGE);
}

static int64_t draw_size(void) { return fuzz_chance(10) ? 0 : fuzz_chance(25) ? 1 : 1 + (int64_t)fuzz_upto(6); }

ct_dims opcheck_draw_shape(void) {
    ct_dims shape = {.n = (int)fuzz_upto(fuzz_chance(80) ? 5 : CT_MAX_DIMS + 1)};
    for (int i = 0; i < shape.n; i++) shape.d[i] = draw_size();
    if (fuzz_chance(2) && shape.n > 1) { /* nothing, of an absurd size */
        shape.d[fuzz_upto((uint64_t)shape.n)] = 1LL << (20 + fuzz_upto(39));
        shape.d[fuzz_upto((uint64_t)shape.n)] = 0;
    }
    while (!is_possible(shape)) shape.d[fuzz_upto((uint64_t)shape.n)] = 1;
    return shape;
}

/* ---- Options ---- */

static ct_dims draw_list(void) {
    ct_dims list = {.n = (int)fuzz_upto(fuzz_chance(90) ? 5 : CT_MAX_LIST + 1)};
    for (int i = 0; i < list.n; i++) list.d[i] = fuzz_chance(70) ? (int64_t)fuzz_upto(6) : fuzz_int();
    if (fuzz_chance(2)) list.n = (int[]){-1, CT_MAX_LIST + 1, INT32_MAX, INT32_MIN}[fuzz_upto(4)];
    return list;
}

static void draw_text(ct_text *text) {
    static const char letters[] = "ijk,->... abIJK0";
    if (text->s[0] && fuzz_chance(70)) { /* a change of the sample's */
        text->s[fuzz_upto(strlen(text->s))] = letters[fuzz_upto(sizeof letters - 1)];
        return;
    }
    const size_t length = fuzz_upto(fuzz_chance(90) ? 12 : sizeof text->s + 1);
    memset(text, 0, sizeof *text);
    for (size_t i = 0; i < length; i++)
        text->s[i] = fuzz_chance(95) ? letters[fuzz_upto(sizeof letters - 1)] : (char)(1 + fuzz_upto(255));
}

static void change_attr(const ct_attr *attr, void *attrs, int64_t some_size) {
    void *at = (char *)attrs + attr->offset;
    ct_dims *list = at;
    switch (attr->type) {
    case CT_ATTR_INT: *(int64_t *)at = fuzz_chance(30) ? some_size + (int64_t)fuzz_upto(3) - 1 : fuzz_int(); break;
    case CT_ATTR_DOUBLE: *(double *)at = fuzz_double(); break;
    case CT_ATTR_BOOL: *(bool *)at = fuzz_chance(50); break;
    case CT_ATTR_DIMS:
    case CT_ATTR_AXES:
        if (list->n > 0 && list->n <= CT_MAX_LIST && fuzz_chance(60))
            list->d[fuzz_upto((uint64_t)list->n)] = fuzz_int();
        else *list = draw_list();
        break;
    case CT_ATTR_OPT: *(ct_opt *)at = (ct_opt){fuzz_chance(80), fuzz_double()}; break;
    case CT_ATTR_DTYPE:
        *(int *)at =
            fuzz_chance(90) ? (int)fuzz_upto(CT_DTYPE_COUNT) : (int[]){-1, 16, 17, 1 << 20, INT32_MIN}[fuzz_upto(5)];
        break;
    case CT_ATTR_ENUM:
        *(int *)at = fuzz_chance(85) ? (int)fuzz_upto(5) : (int[]){-1, 17, 1 << 20, INT32_MIN}[fuzz_upto(4)];
        break;
    case CT_ATTR_TEXT: draw_text(at); break;
    case CT_ATTR_DEVICE:
        *(ct_device *)at = (ct_device){(ct_device_type)(fuzz_chance(80) ? (int)fuzz_upto(3) : (int)fuzz_int()),
                                       fuzz_chance(70) ? 0 : (int)fuzz_int()};
        break;
    }
}

static int count_attrs(const ct_op *op) {
    int n = 0;
    while (op->attrs && op->attrs[n].name) n++;
    return n;
}

static void change_some_attr(opcheck_plan *p) {
    const int n = count_attrs(p->op);
    if (!n) return;
    const opcheck_argument *a = p->n_in ? &p->in[fuzz_upto((uint64_t)p->n_in)] : NULL;
    const int64_t size = a && a->shape.n ? a->shape.d[fuzz_upto((uint64_t)a->shape.n)] : 1;
    change_attr(&p->op->attrs[fuzz_upto((uint64_t)n)], p->attrs, size);
}

/* ---- Making a plan ---- */

static ct_dtype draw_dtype(unsigned flags) {
    if (fuzz_chance(2)) return (ct_dtype)fuzz_upto(CT_DTYPE_COUNT);
    if (flags & CT_ARG_INDEX) return fuzz_chance(60) ? CT_I64 : CT_I32;
    if (flags & CT_ARG_BOOL) return CT_BOOL;
    static const ct_dtype usual[] = {CT_F32, CT_F32, CT_F32, CT_F32, CT_F64, CT_F64, CT_F16, CT_BF16};
    return fuzz_chance(90) ? usual[fuzz_upto(8)] : (ct_dtype)fuzz_upto(CT_DTYPE_COUNT);
}

static int draw_layout(void) {
    return fuzz_chance(50) ? OPCHECK_DENSE : fuzz_chance(15) ? OPCHECK_RANDOM_STRIDES : (int)fuzz_upto(OPCHECK_LAYOUTS);
}

/* One size wherever it occurs becomes another: what belongs together still fits. */
static void rename_size(opcheck_plan *p) {
    if (!p->n_in) return;
    const opcheck_argument *a = &p->in[fuzz_upto((uint64_t)p->n_in)];
    if (!a->shape.n) return;
    const int64_t from = a->shape.d[fuzz_upto((uint64_t)a->shape.n)], to = draw_size();
    for (int i = 0; i < p->n_in; i++)
        for (int d = 0; d < p->in[i].shape.n; d++)
            if (p->in[i].shape.d[d] == from) p->in[i].shape.d[d] = to;
    for (const ct_attr *attr = p->op->attrs; attr && attr->name; attr++) {
        int64_t *number = (int64_t *)(void *)((char *)p->attrs + attr->offset);
        ct_dims *list = (ct_dims *)(void *)number;
        if (attr->type == CT_ATTR_INT && *number == from && fuzz_chance(50)) *number = to;
        if (attr->type != CT_ATTR_DIMS && attr->type != CT_ATTR_AXES) continue;
        for (int d = 0; d < list->n && d < CT_MAX_LIST; d++)
            if (list->d[d] == from && fuzz_chance(50)) list->d[d] = to;
    }
}

static void change_shape(opcheck_argument *a) {
    ct_dims *s = &a->shape;
    const int at = s->n ? (int)fuzz_upto((uint64_t)s->n) : 0;
    switch (fuzz_upto(5)) {
    case 0: /* one size less */
        if (s->n == 0) break;
        for (int i = at; i < s->n - 1; i++) s->d[i] = s->d[i + 1];
        s->n--;
        break;
    case 1: /* one more, in front */
        if (s->n == CT_MAX_DIMS) break;
        for (int i = s->n; i > 0; i--) s->d[i] = s->d[i - 1];
        s->d[0] = draw_size();
        s->n++;
        break;
    case 2:
        if (s->n) s->d[at] = draw_size();
        break;
    case 3:
        if (s->n) s->d[at] += (int64_t)fuzz_upto(3) - 1;
        if (s->n && s->d[at] < 0) s->d[at] = 0;
        break;
    default: *s = opcheck_draw_shape();
    }
}

static void mutate(opcheck_plan *p) {
    opcheck_argument *a = p->n_in ? &p->in[fuzz_upto((uint64_t)p->n_in)] : NULL;
    switch (fuzz_upto(12)) {
    case 0:
    case 1:
    case 2: rename_size(p); break;
    case 3:
    case 4:
        if (a) change_shape(a);
        break;
    case 5:
    case 6:
    case 7: change_some_attr(p); break;
    case 8:
        if (a && fuzz_chance(50)) a->absent = !a->absent;
        break;
    case 9:
        if (a) a->dtype = (ct_dtype)fuzz_upto(CT_DTYPE_COUNT);
        break;
    case 10:
        if (a && fuzz_chance(30)) a->same_as = (int)fuzz_upto((uint64_t)p->n_in);
        break;
    default:
        if (fuzz_chance(80)) break;
        if (p->n_in < OPCHECK_INPUTS && fuzz_chance(50))
            p->in[p->n_in++] = (opcheck_argument){.same_as = -1, .domain = "any"};
        else if (p->n_in) p->n_in--;
    }
}

static bool read_sample(opcheck_plan *p, opcheck *check) {
    int lines = 0;
    for (const char *s = p->op->samples; s && *s; s++) lines += *s == '\n' || !s[1];
    if (!lines) return false;
    const char *at = p->op->samples;
    for (uint64_t skip = fuzz_upto((uint64_t)lines); skip > 0; skip--) at = strchr(at, '\n') + 1;
    opcheck_sample sample;
    if (!opcheck_next_sample(check, &at, &sample)) return false;
    const bool fits = sample.largest <= SMALL || (sample.largest <= OPCHECK_LARGE && fuzz_chance(3));
    const ct_dtype common = draw_dtype(0);
    for (int i = 0; fits && i < sample.n_in; i++) {
        const opcheck_input *in = &sample.in[i];
        opcheck_argument *a = &p->in[i];
        *a = (opcheck_argument){.absent = in->skipped, .same_as = -1, .shape = in->shape, .layout = draw_layout()};
        memcpy(a->domain, in->domain, sizeof a->domain);
        a->dtype = strcmp(in->domain, "bool") == 0                                 ? CT_BOOL
                   : opcheck_is_index(in) || strcmp(in->domain, "i64") == 0        ? draw_dtype(CT_ARG_INDEX)
                   : (in->flags & (CT_ARG_INDEX | CT_ARG_BOOL)) || fuzz_chance(10) ? draw_dtype(in->flags)
                                                                                   : common;
    }
    if (fits) {
        p->n_in = sample.n_in;
        p->n_out = sample.n_out;
        memcpy(p->attrs, sample.attrs, p->op->attr_size);
    }
    opcheck_free_sample(&sample);
    return fits;
}

static void make_up(opcheck_plan *p) {
    const int named = opcheck_count_args(p->op->inputs);
    const bool list = named && (p->op->inputs[named - 1].flags & CT_ARG_LIST);
    p->n_in = list ? named - 1 + (int)fuzz_upto(5) : named;
    p->n_out = p->op->outputs[0].flags & CT_ARG_LIST ? 1 + (int)fuzz_upto(4) : opcheck_count_args(p->op->outputs);
    const ct_dims common = opcheck_draw_shape();
    const ct_dtype dtype = draw_dtype(0);
    for (int i = 0; i < p->n_in; i++) {
        const unsigned flags = opcheck_arg(p->op, i)->flags;
        p->in[i] = (opcheck_argument){.absent = (flags & CT_ARG_OPTIONAL) && fuzz_chance(40),
                                      .same_as = -1,
                                      .shape = fuzz_chance(50) ? common : opcheck_draw_shape(),
                                      .layout = draw_layout(),
                                      .dtype = (flags & (CT_ARG_INDEX | CT_ARG_BOOL)) ? draw_dtype(flags) : dtype,
                                      .domain = "any"};
        if (flags & CT_ARG_INDEX) snprintf(p->in[i].domain, sizeof p->in[i].domain, "int<%d", (int)fuzz_upto(5));
    }
    ct_attrs_default(p->op, p->attrs);
    for (int i = count_attrs(p->op); i > 0; i--)
        if (fuzz_chance(60) || p->op->attrs[i - 1].required) change_attr(&p->op->attrs[i - 1], p->attrs, 2);
}

void opcheck_make_plan(opcheck_plan *p, opcheck *check) {
    const bool sampled = fuzz_chance(85) && read_sample(p, check);
    if (!sampled) make_up(p);
    if (sampled && fuzz_chance(65))
        for (uint64_t changes = 1 + fuzz_upto(3); changes > 0; changes--) mutate(p);
    for (int i = 0; i < p->n_in; i++) {
        opcheck_argument *a = &p->in[i];
        if (a->same_as >= i) a->same_as = -1;
        while (!is_possible(a->shape)) a->shape.d[fuzz_upto((uint64_t)a->shape.n)] = 1;
        a->grad = ct_dtype_is_float(a->dtype) && fuzz_chance(50);
        a->extreme = fuzz_chance(8);
    }
    p->no_attrs = fuzz_chance(2);
    p->no_inputs = fuzz_chance(1);
    p->no_outputs = fuzz_chance(1);
    p->shared_error = fuzz_chance(2);
    p->autocast = fuzz_chance(5) ? (fuzz_chance(50) ? CT_BF16 : CT_F16) : CT_F32;
    p->some_wanted = fuzz_chance(10);
    for (int i = 0; i < OPCHECK_OUTPUTS; i++) p->want[i] = fuzz_chance(70);
    if (fuzz_chance(3)) p->n_out = (int)fuzz_upto(6) - 1;
    if (fuzz_chance(8)) p->target = 1 + (int)fuzz_upto(3);
}

/* ---- Saying it ---- */

static void say_list(const ct_dims *list) {
    fuzz_say("%s", "[");
    for (int i = 0; i < list->n && i < CT_MAX_LIST; i++) fuzz_say("%s%lld", i ? "," : "", (long long)list->d[i]);
    fuzz_say("%s", "]");
    if (list->n < 0 || list->n > CT_MAX_LIST) fuzz_say("(n = %d)", list->n);
}

static void say_attr(const ct_attr *attr, const void *at) {
    fuzz_say(", %s = ", attr->plural ? attr->plural : attr->name);
    switch (attr->type) {
    case CT_ATTR_INT: fuzz_say("%lld", (long long)*(const int64_t *)at); break;
    case CT_ATTR_DOUBLE: fuzz_say("%.17g", *(const double *)at); break;
    case CT_ATTR_BOOL: fuzz_say("%d", *(const bool *)at); break;
    case CT_ATTR_DIMS:
    case CT_ATTR_AXES: say_list(at); break;
    case CT_ATTR_OPT:
        if (((const ct_opt *)at)->set) fuzz_say("%.17g", ((const ct_opt *)at)->value);
        else fuzz_say("%s", "none");
        break;
    case CT_ATTR_DTYPE:
    case CT_ATTR_ENUM: fuzz_say("%d", *(const int *)at); break;
    case CT_ATTR_TEXT: fuzz_say("\"%.*s\"", (int)sizeof(ct_text), ((const ct_text *)at)->s); break;
    case CT_ATTR_DEVICE: fuzz_say("%d:%d", (int)((const ct_device *)at)->type, ((const ct_device *)at)->index); break;
    }
}

void opcheck_say_plan(const opcheck_plan *p) {
    static const char *const targets[] = {"", ", into a tensor like the result", ", into an input",
                                          ", into a wrong one"};
    fuzz_say("%s(", p->op->name);
    for (int i = 0; i < p->n_in; i++) {
        const opcheck_argument *a = &p->in[i];
        fuzz_say("%s", i ? ", " : "");
        if (a->absent) fuzz_say("%s", "-");
        else if (a->same_as >= 0) fuzz_say("input %d", a->same_as);
        else {
            fuzz_say("%s", ct_dtype_name(a->dtype));
            say_list(&a->shape);
            if (a->layout)
                fuzz_say(" %s",
                         a->layout == OPCHECK_RANDOM_STRIDES ? "random strides" : opcheck_layout_name(a->layout));
            if (a->grad) fuzz_say("%s", " grad");
            if (a->extreme) fuzz_say("%s", " extreme");
        }
    }
    if (p->no_attrs) fuzz_say("%s", ", no options");
    for (const ct_attr *attr = p->op->attrs; attr && attr->name && !p->no_attrs; attr++)
        say_attr(attr, (const char *)p->attrs + attr->offset);
    fuzz_say(") -> %d%s%s%s%s%s%s", p->n_out, p->some_wanted ? " of which some" : "", targets[p->target],
             p->no_inputs ? ", inputs NULL" : "", p->no_outputs ? ", outputs NULL" : "",
             p->shared_error ? ", an error pending" : "", p->autocast != CT_F32 ? ", autocast" : "");
}

/* An error names the op that was called, not one that its lowering calls: every public op, with the inputs of its samples
 * spoilt one at a time (shapes, dtypes) and its attributes one at a time. What such a call returns is not judged here, only
 * whom its error blames. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/harness.h"
#include "tests/opcheck.h"

enum { LARGE = 20000 };

typedef struct spoilt {
    const opcheck_sample *sample;
    int input;        /* -1: none */
    int how;          /* of the input */
    const char *text; /* what was spoilt, for messages */
} spoilt;

enum { MORE_AXES, NO_AXES, LONGER, SHORTER, AS_BOOL, AS_I64, AS_F64, AS_U16, WAYS };
static const char *const way_names[WAYS] = {"one axis more", "no axes",      "longer axes",  "shorter axes",
                                            "bool elements", "i64 elements", "f64 elements", "u16 elements"};

static ct_tensor *make_input(const opcheck_sample *sample, int i, int how) {
    opcheck_input input = sample->in[i];
    if (input.skipped) return NULL;
    ct_dtype dtype = strcmp(input.domain, "bool") == 0                              ? CT_BOOL
                     : opcheck_is_index(&input) || strcmp(input.domain, "i64") == 0 ? CT_I64
                                                                                    : CT_F32;
    if (how == MORE_AXES && input.shape.n < CT_MAX_DIMS) input.shape.d[input.shape.n++] = 2;
    if (how == NO_AXES) input.shape.n = 0;
    for (int d = 0; d < input.shape.n; d++)
        input.shape.d[d] += how == LONGER ? 3 : how == SHORTER && input.shape.d[d] > 1 ? -1 : 0;
    if (how >= AS_BOOL && how < WAYS) dtype = (ct_dtype[]){CT_BOOL, CT_I64, CT_F64, CT_U16}[how - AS_BOOL];
    ct_tensor *x = ct_zeros(input.shape);
    if (dtype != CT_U16) {
        double values[LARGE + 1];
        int64_t count = opcheck_count(input.shape);
        if (count > LARGE) return NULL;
        opcheck_fill(&input, i, dtype != CT_F32 && dtype != CT_F64, values, count);
        x = opcheck_place(dtype, input.shape, values, OPCHECK_DENSE);
    }
    return ct_dtype_of(x) == dtype ? x : ct_cast(x, dtype);
}

/* Calls the op; an error has to be its own. */
static int check_call(const spoilt *call) {
    const ct_op *op = call->sample->op;
    ct_tensor *in[OPCHECK_INPUTS], *out[OPCHECK_OUTPUTS];
    ct_scope {
        for (int i = 0; i < call->sample->n_in; i++)
            in[i] = make_input(call->sample, i, i == call->input ? call->how : WAYS);
        if (!CHECK(ct_ok())) ct_error_clear();
        opcheck_apply(call->sample, in, out);
    }
    if (ct_ok()) return 0;
    const size_t n = strlen(op->name);
    const char *text = ct_error();
    /* what a kernel finds in values, and lack of memory, may be an inner op's to tell */
    const bool inner =
        ct_error_code() == CT_ERR_INDEX || ct_error_code() == CT_ERR_MEMORY || strstr(text, "more elements than");
    bool own = strcmp(ct_error_op(), op->name) == 0 && strncmp(text, op->name, n) == 0 && text[n] == ':' &&
               (inner || !strstr(text, " (in "));
    harness_check(own, __FILE__, __LINE__, "%s `%.*s`, %s%s: \"%s\" (of %s)", op->name, call->sample->length,
                  call->sample->text,
                  call->input < 0      ? ""
                  : op->inputs[0].name ? "an input with "
                                       : "",
                  call->text, text, ct_error_op());
    ct_error_clear();
    return 1;
}

static int check_inputs(opcheck_sample *sample) {
    int errors = 0;
    for (int i = 0; i < sample->n_in; i++)
        for (int how = 0; how < WAYS && !sample->in[i].skipped; how++)
            errors += check_call(&(spoilt){sample, i, how, way_names[how]});
    return errors;
}

/* Attributes as on the command line. Sizes stay small: what memory there is is not the question. */
static int check_attributes(opcheck_sample *sample) {
    static const char *const values[] = {
        "-1000", "-1",   "0",     "40",    "4294967294", "9223372036854775807", "-9223372036854775808",
        "nan",   "-0.5", "7,7,7", "-1,-1", "1,1,1,1,1"};
    int errors = 0;
    const ct_op *op = sample->op;
    char before[2048];
    if (op->attr_size > sizeof before || sample->n_in == 0)
        return 0; /* what makes tensors makes them as large as it is told */
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++) {
        if (attr->type == CT_ATTR_DTYPE || attr->type == CT_ATTR_TEXT || attr->type == CT_ATTR_DEVICE) continue;
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char text[96];
            memcpy(before, sample->attrs, op->attr_size);
            const char *name = attr->plural ? attr->plural : attr->name;
            snprintf(text, sizeof text, "%s=%s", name, values[v]);
            if (ct_attrs_set(op, sample->attrs, name, values[v]))
                errors += check_call(&(spoilt){sample, -1, WAYS, text});
            ct_error_clear();
            memcpy(sample->attrs, before, op->attr_size);
        }
    }
    return errors;
}

TEST_LIMIT(an_error_blames_the_op_that_was_called, 300) {
    int errors = 0;
    const struct rlimit room = {(rlim_t)3 << 30, (rlim_t)3 << 30}; /* what is too large is refused, not paged in */
    if (!harness_sanitized()) setrlimit(RLIMIT_AS, &room);
    for (int i = 0; i < ct_op_count(); i++) {
        opcheck check = {.op = ct_op_at(i)};
        opcheck_sample sample;
        const char *at = check.op->samples;
        if (check.op->flags & CT_OP_INTERNAL) continue;
        while (opcheck_next_sample(&check, &at, &sample)) {
            if (sample.largest <= 2000) errors += check_inputs(&sample) + check_attributes(&sample);
            opcheck_free_sample(&sample);
        }
    }
    CHECK(errors > 5000); /* it is errors that this looks at */
}

/* What the parts of mkops share: text buffers, the definition of an op as read from a .def file, and expressions of
 * elementwise lines. mkops runs once and exits, so it never frees memory and stops at the first error. */
#ifndef MKOPS_H
#define MKOPS_H

#include <stdbool.h>
#include <stddef.h>

/* ---- text.c: strings, growing text, files --------------------------------------------------------- */

typedef struct text {
    char *s;
    size_t n, room;
} text;

#if defined(__GNUC__)
#define MK_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define MK_NORETURN     __attribute__((noreturn))
#else
#define MK_PRINTF(a, b)
#define MK_NORETURN
#endif

void put(text *t, const char *format, ...) MK_PRINTF(2, 3);
char *form(const char *format, ...) MK_PRINTF(1, 2); /* a new string */
char *copy_n(const char *s, size_t n);
char *upper_case(const char *s);
char *c_string(const char *s);               /* as a C string literal, quotes included */
char *c_double(double x);                    /* as a C constant of type double */
void *grow(void *array, int n, size_t size); /* room for one more element after n */
void fail_at(const char *file, int line, const char *format, ...) MK_PRINTF(3, 4) MK_NORETURN;
char *read_whole(const char *path); /* NULL when it cannot be read */
void write_if_changed(const char *directory, const char *name, const text *t);
char **names_in(const char *directory, const char *end, int *n); /* that end so, sorted; hidden ones left out */

/* ---- Ops ------------------------------------------------------------------------------------------ */

typedef struct enum_def {
    char *name;
    char **values;    /* as written on the command line: erf */
    char **constants; /* as written in C: CT_GELU_ERF */
    int n;
    const char *file;
    int line;
} enum_def;

typedef enum arg_kind {
    ARG_INPUT,
    ARG_INT,
    ARG_DOUBLE,
    ARG_BOOL,
    ARG_DIMS,
    ARG_DTYPE,
    ARG_TEXT,
    ARG_ENUM,
    ARG_OPT,
    ARG_AXES,
    ARG_DEVICE,
} arg_kind;

typedef struct arg_def {
    char *name;
    arg_kind kind;
    /* inputs and outputs */
    bool optional, list, broadcast, promote, is_float, is_index, is_mask, mutated;
    const char *domain; /* of samples of an elementwise input */
    /* attributes */
    const enum_def *values;
    bool positional; /* no default */
    bool nonzero;    /* zero is not a legal value, and means the default */
    bool unset;      /* opt x = none */
    double number;   /* the default */
    char *written;   /* the default as written, for the reference page */
} arg_def;

typedef enum class_def { CLASS_FLOAT, CLASS_NUM, CLASS_ALL, CLASS_INT } class_def;

struct expr;

/* The value of an elementwise op, or one of its gradients: one expression, or one for each value of an enum. */
typedef struct formula {
    int choice; /* index in args of the enum that chooses; -1: there is one case */
    int n;
    struct expr **cases;
    bool zero; /* a gradient written as 0 */
    int line;
} formula;

typedef struct op_def {
    char *name, *doc; /* doc: lines separated by \n */
    const char *file, *folder;
    int line;
    arg_def *args; /* inputs and attributes in the order of the signature */
    int n_args;
    arg_def *outputs;
    int n_outputs;
    bool view, random, nograd, mutates, internal, alias, moves, transfers, narrow, wide, recompute, waits, partial;
    bool *saves_arg, *saves_output;
    unsigned long long *reads_in, *reads_out; /* by argument: the inputs and outputs that its own gradient reads */
    text samples;
    int n_samples, enough; /* enough: given by `samples N`, else -1 */
    bool has_infer, has_vjp, has_lower, has_hand_on, has_saves_less;
    /* elementwise */
    bool elementwise, bool_result;
    class_def class;
    formula value;
    formula *gradients;         /* by argument; cases NULL where there is none */
    formula *half_gradients;    /* likewise: in place of those that read a result, for half types */
    struct op_def **fused;      /* by argument: the op that computes the gradient in one pass, or NULL */
    struct op_def **half_fused; /* likewise, of half_gradients */
    struct op_def *of;          /* a fused gradient: the op that it belongs to; attributes are that op's */
    bool commutes;
    char **sample_attrs; /* `with` clauses */
    int n_sample_attrs;
    char **let_names; /* `let` clauses */
    struct expr **lets;
    int n_lets;
} op_def;

/* A folder that lies beside the definitions: ops/FOLDER/NAME/FILE.c is FOLDER_FILE, which lists kernels. */
typedef struct backend_def {
    const char *name;
    char **files;
    int n_files;
} backend_def;

typedef struct library {
    op_def **ops; /* in the order they were read */
    int n_ops;
    op_def **sorted; /* by name, as in the table */
    enum_def **enums;
    int n_enums;
    char **folders;
    int n_folders;
    backend_def *backends;
    int n_backends;
} library;

bool is_attr(const arg_def *arg);
bool is_option(const arg_def *arg); /* goes by name in C */
int count_inputs(const op_def *op);
int input_number(const op_def *op, int arg); /* position of that argument among the inputs */
const op_def *owner(const op_def *op);      /* whose attributes it has: of a fused gradient the op that it belongs to */
int attr_number(const op_def *op, int arg); /* position of that argument of its owner among the attributes; -1 of -1 */
unsigned long long input_bits(const op_def *op, int arg); /* its bit in saves_in; a list has all from its own on */
bool has_attrs(const op_def *op);
bool has_options(const op_def *op);
const arg_def *list_input(const op_def *op);
const char *attrs_of(const op_def *op); /* whose attribute struct it uses: a fused gradient has its op's */
op_def *find_op(const library *lib, const char *name);
op_def *add_op(library *lib, op_def *op);
arg_def *add_arg(arg_def **list, int *n, arg_def arg);

/* ---- parse_def.c, parse_line.c, samples.c ------------------------------------------------------------ */

typedef struct cursor { /* a place in one logical line */
    const char *p;
    const char *file;
    int line;
} cursor;

void skip_space(cursor *c);
bool at_text(cursor *c, const char *s); /* takes s, if that is what comes next */
char *take_name(cursor *c, const char *what);
double take_number(cursor *c, const char *what);
void expect(cursor *c, const char *s);

void parse_enums(library *lib, const char *file, const char *source);
void parse_def(library *lib, const char *file, const char *folder, const char *source);
bool parse_attr(const library *lib, cursor *c, arg_def *arg); /* false, nothing taken: no attribute type comes next */
void parse_line(library *lib, const char *file, int line, const char *folder, const char *source);
void check_sample(const op_def *op, const char *file, int line, const char *sample);
void make_samples(op_def *op);
void make_fused_gradients(library *lib, op_def *op);

/* ---- expr.c -------------------------------------------------------------------------------------------- */

typedef struct word {
    const char *name;
    int n_args;
    bool truth;        /* the result is a truth value */
    unsigned truths;   /* which arguments are truth values, a bit each */
    const char *op;    /* the op of the same meaning */
    const char *infix; /* written between the arguments where a dialect has operators */
    bool on_int, on_bool;
    int cost; /* in simple instructions, roughly */
    bool commutes, is_operator;
} word;

typedef enum expr_kind { E_NUMBER, E_INPUT, E_COTANGENT, E_RESULT, E_ATTR, E_GIVEN, E_HIGHEST, E_CALL } expr_kind;

typedef struct expr {
    expr_kind kind;
    double number;
    int arg; /* E_INPUT, E_ATTR, E_GIVEN: index in op->args */
    const word *word;
    struct expr *a[4];
    bool truth;
    bool uniform; /* the same for all elements: made of numbers and attributes by arithmetic */
} expr;

typedef struct dialect {
    const char *value, *truth;          /* prefixes of words on values and on truth values */
    const char *number;                 /* format of a constant, with %s */
    enum { PREFIX, INFIX, WGSL } style; /* WGSL: prefix, without casts */
    const char *input, *attr, *given;   /* prefixes of names */
    const char *highest;
    const expr *shared[64]; /* expressions that are held by variables c0, c1, ... */
    int n_shared;
    const char *const *stored; /* words whose name depends on how elements are stored, ended by NULL; NULL: none */
} dialect;

formula parse_formula(const op_def *op, cursor *c, bool gradient);
struct expr *parse_let(const op_def *op, cursor *c);
/* Declares variables for what occurs more than once in e, and has later emit_expr calls use them. */
void emit_shared(text *t, const op_def *op, const expr *e, dialect *d, const char *indent, const char *type,
                 const char *truth);
void emit_expr(text *t, const op_def *op, const expr *e, const dialect *d);
bool formula_uses(const formula *f, expr_kind kind, int arg);
int formula_cost(const formula *f);
int formula_calls(const formula *f); /* ops it becomes when it is lowered */
bool formula_commutes(const formula *f, int a, int b);
void check_class(const op_def *op, const formula *f);
void emit_uniform(text *t, const op_def *op, const expr *e); /* as a C double; a is the attribute struct */

/* ---- emit_*.c ------------------------------------------------------------------------------------------- */

#define ELEMENTWISE_PARTS 8 /* kernel files, so that they compile in parallel; the build lists them */

char *c_prototype(const op_def *op);    /* without a semicolon */
char *call_form(const op_def *op);      /* ct_sum(x, .axes, .keepdim) */
const char *c_prefix(const op_def *op); /* ct_ or, for internal ops, ct__ */
const char *c_type(const arg_def *arg); /* of a parameter, with a blank or a star at its end */
void emit_options(text *t, const op_def *op);
void emit_internal_macros(text *t, const library *lib);
void emit_ops_h(const library *lib, const char *out);
void emit_ops_hpp(const library *lib, const char *out);
void emit_api(const library *lib, const char *out);
void emit_short(const library *lib, const char *out);
void emit_decl(const library *lib, const char *out);
void emit_table(const library *lib, const char *out);
void emit_kernel_lists(const library *lib, const char *out);
void emit_elementwise_ops(const library *lib, const char *out);
void emit_elementwise_kernels(const library *lib, const char *out);
void emit_dialects(const library *lib, const char *out);
void emit_cuda_formula(text *t, const op_def *op);
void emit_cuda_kernels(const library *lib, const char *out);
void emit_webgpu(const library *lib, const char *out);
unsigned elementwise_part(const char *name); /* below ELEMENTWISE_PARTS */

/* What the three forms of the reference share: Markdown, HTML and manual pages. */
typedef struct option_row {
    const char *name, *type;
    const char *standard;   /* what it is when it is not given, or NULL: */
    const char *note;       /* what there is to say instead */
    const enum_def *values; /* or NULL */
} option_row;
enum { MOST_OPTIONS = 64 };
int option_rows(const op_def *op, option_row *rows); /* how many there are */
const char *differentiable(const op_def *op);        /* as a sentence */
const char *accepted_dtypes(const op_def *op);       /* as a sentence, or "" */
bool has_scalar_form(const op_def *op);              /* ct_add_s(x, number) beside ct_add(a, b) */
void emit_docs(const library *lib, const char *out);
void emit_html(const library *lib, const char *out);
void emit_man(const library *lib, const char *out);

#endif

/* The public headers as mkops reads them: functions that take options, and the structs of these options. The header that
 * people read is the one description; from it come the macros that take options by name, and the table of layers. */
#ifndef MKOPS_HEADER_H
#define MKOPS_HEADER_H

#include "mkops.h"

/* A parameter of a function, or a field of a struct of options. */
typedef struct field_def {
    char *type, *name; /* "const char *", "path" */
    char *comment;     /* behind it, in one line; "" where there is none */
    int line;
} field_def;

typedef struct struct_def {
    char *name;
    field_def *fields;
    int n_fields;
} struct_def;

typedef struct function_def {
    char *type, *name; /* what it returns; without prefix and _p: "nn_conv2d" */
    char *doc;         /* the comment behind it, and the one above it, which functions that follow one another share */
    char *section;     /* of the header: "Layers" */
    char *options;     /* the struct of its last parameter, or NULL: then its C name has no _p */
    field_def *params; /* without the options */
    int n_params;
    int line;
} function_def;

typedef struct header_def {
    const char *file;
    struct_def *structs;
    int n_structs;
    function_def *functions;
    int n_functions;
} header_def;

void parse_header(header_def *header, const char *file, const char *source);
const struct_def *find_struct(const header_def *header, const char *name);
bool has_end(const char *s, const char *end);

void emit_calls(const header_def *header, const char *name, const char *out);    /* NAME_options.h */
void emit_layers(const library *lib, const header_def *header, const char *out); /* layers_table.c */

#endif

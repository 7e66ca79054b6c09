/* Reads a public header: enough of C for declarations as they are written there, one function or struct each, with the comments
 * that belong to them. What it does not know it passes over. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "header.h"

typedef struct reader {
    const char *p, *file;
    int line;
    char *doc, *section; /* that hold for what comes next */
    header_def *header;
} reader;

bool has_end(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

const struct_def *find_struct(const header_def *header, const char *name) {
    for (int i = 0; i < header->n_structs; i++)
        if (strcmp(header->structs[i].name, name) == 0) return &header->structs[i];
    return NULL;
}

static void forward(reader *r, const char *to) {
    for (; r->p < to; r->p++) r->line += *r->p == '\n';
}

/* Without blanks at its ends, and with one where there are several; the stars that begin the lines of a comment go too. */
static char *squeeze(const char *s, size_t n, bool comment) {
    text t = {0};
    bool blank = false, fresh = true;
    put(&t, "%s", "");
    for (size_t i = 0; i < n; i++) {
        if (isspace((unsigned char)s[i])) {
            blank = true;
            if (comment && s[i] == '\n')
                while (i + 1 < n && (s[i + 1] == ' ' || s[i + 1] == '*')) i++;
            continue;
        }
        put(&t, "%s%c", blank && !fresh ? " " : "", s[i]);
        blank = fresh = false;
    }
    return t.s;
}

/* Takes a comment, if one comes next on this line (or, with anywhere, at all). */
static char *take_comment(reader *r, bool anywhere) {
    const char *p = r->p;
    while (*p == ' ' || *p == '\t' || (anywhere && *p == '\n')) p++;
    if (strncmp(p, "/*", 2) != 0) return NULL;
    const char *end = strstr(p, "*/");
    if (!end) fail_at(r->file, r->line, "a comment does not end");
    char *s = squeeze(p + 2, (size_t)(end - p - 2), true);
    forward(r, end + 2);
    return s;
}

/* "const char *path" into type and name. */
static field_def split_declaration(const reader *r, const char *s, size_t n) {
    char *all = squeeze(s, n, false);
    size_t end = strlen(all), start = end;
    while (start && (isalnum((unsigned char)all[start - 1]) || all[start - 1] == '_')) start--;
    return (field_def){.type = squeeze(all, start, false), .name = all + start, .comment = "", .line = r->line};
}

static void add_field(field_def **list, int *n, field_def field) {
    *list = grow(*list, *n, sizeof **list);
    (*list)[(*n)++] = field;
}

/* From behind the brace of a struct to its end; an array or a function in it is kept as a type that nothing takes. */
static void take_struct(reader *r, const char *name, size_t length) {
    struct_def made = {.name = copy_n(name, length)};
    for (;;) {
        while (isspace((unsigned char)*r->p)) forward(r, r->p + 1);
        if (*r->p == '}') break;
        if (!*r->p) fail_at(r->file, r->line, "struct %s does not end", made.name);
        if (take_comment(r, true)) continue; /* about the fields that follow, for people */
        const char *end = r->p + strcspn(r->p, ";");
        const int first = made.n_fields;
        const bool plain = !memchr(r->p, '(', (size_t)(end - r->p)) && !memchr(r->p, '[', (size_t)(end - r->p));
        char *type = NULL;
        for (const char *p = r->p; plain && p < end;) { /* "ct_opt beta1, beta2" */
            size_t n = strcspn(p, ",;");
            field_def field = split_declaration(r, p, n);
            if (type) field.type = type;
            else type = field.type;
            add_field(&made.fields, &made.n_fields, field);
            p += n + (p[n] == ',');
        }
        forward(r, end + (*end == ';'));
        char *comment = take_comment(r, false);
        for (int i = first; comment && i < made.n_fields; i++) made.fields[i].comment = comment;
    }
    header_def *h = r->header;
    h->structs = grow(h->structs, h->n_structs, sizeof *h->structs);
    h->structs[h->n_structs++] = made;
}

static void take_function(reader *r) {
    const char *start = r->p + strlen("CT_API"), *open = start + strcspn(start, "(;"),
               *end = start + strcspn(start, ";");
    function_def f = {.section = r->section, .line = r->line};
    const char *close = end;
    while (close > open && *close != ')') close--;
    if (*open == '(' &&
        !memchr(open + 1, '(', (size_t)(close - open - 1))) { /* one that takes functions goes by hand */
        field_def name = split_declaration(r, start, (size_t)(open - start));
        f.type = name.type;
        f.name = strncmp(name.name, "ct_", 3) == 0 ? name.name + 3 : name.name;
        for (const char *p = open + 1; p < close;) {
            size_t n = strcspn(p, ",");
            if (n > (size_t)(close - p)) n = (size_t)(close - p);
            field_def param = split_declaration(r, p, n);
            if (*param.type) add_field(&f.params, &f.n_params, param);
            p += n + (p + n < close);
        }
        const field_def *last = f.n_params ? &f.params[f.n_params - 1] : NULL;
        if (last && has_end(f.name, "_p") && strcmp(last->name, "options") == 0) {
            const size_t before = strlen("const "), n = strlen(last->type);
            f.options = copy_n(last->type + before, n - before - strlen(" *"));
            f.name = copy_n(f.name, strlen(f.name) - strlen("_p"));
            f.n_params--;
        }
    }
    forward(r, end);
    forward(r, end + (*end == ';'));
    char *behind = take_comment(r, false);
    if (!f.name) return;
    f.doc = !behind ? r->doc : *r->doc ? form("%s\n%s", behind, r->doc) : behind;
    header_def *h = r->header;
    h->functions = grow(h->functions, h->n_functions, sizeof *h->functions);
    h->functions[h->n_functions++] = f;
}

/* A comment above something; one that begins with dashes opens a section. */
static void note_comment(reader *r, char *comment) {
    if (strncmp(comment, "---- ", 5) != 0) {
        r->doc = comment;
        return;
    }
    const char *end = strstr(comment + 5, " --");
    r->section = copy_n(comment + 5, end ? (size_t)(end - comment - 5) : strlen(comment + 5));
    r->doc = "";
}

void parse_header(header_def *header, const char *file, const char *source) {
    header->file = file;
    reader r = {.p = source, .file = file, .line = 1, .doc = "", .section = "", .header = header};
    while (*r.p) {
        if (r.p[0] == '\n' && r.p[1] == '\n') r.doc = ""; /* what was said above does not hold any more */
        if (isspace((unsigned char)*r.p)) {
            forward(&r, r.p + 1);
        } else if (*r.p == '#') {
            const char *end = r.p + strcspn(r.p, "\n");
            while (*end && end[-1] == '\\') end += 1 + strcspn(end + 1, "\n");
            forward(&r, end);
        } else if (strncmp(r.p, "/*", 2) == 0) {
            note_comment(&r, take_comment(&r, true));
        } else if (strncmp(r.p, "CT_API", 6) == 0) {
            take_function(&r);
        } else if (strncmp(r.p, "typedef struct ", 15) == 0) {
            const char *name = r.p + 15, *open = name + strcspn(name, "{;");
            const size_t length = strcspn(name, " ");
            forward(&r, open + 1);
            if (*open == '{') {
                take_struct(&r, name, length);
                forward(&r, r.p + strcspn(r.p, ";"));
            }
        } else {
            const size_t n = strcspn(r.p, ";{}\n"); /* other declarations: line by line */
            forward(&r, r.p + n + (r.p[n] != 0 && r.p[n] != '\n'));
        }
    }
}

/* Attributes by name: defaults, and values from text, as the command line and the samples write them. */
#include "core/attrs.h"
#include "core/hot.h"

#include <cotangent/graph.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

void ct_attrs_default(const ct_op *op, void *attrs) {
    if (!op || !attrs || !op->attr_size) return;
    memset(attrs, 0, op->attr_size);
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++) {
        void *at = (char *)attrs + attr->offset;
        switch (attr->type) {
        case CT_ATTR_INT: *(int64_t *)at = (int64_t)attr->number; break;
        case CT_ATTR_DOUBLE: *(double *)at = attr->number; break;
        case CT_ATTR_BOOL: *(bool *)at = attr->number != 0; break;
        case CT_ATTR_DTYPE: *(ct_dtype *)at = (ct_dtype)(int)attr->number; break;
        case CT_ATTR_ENUM: *(int *)at = (int)attr->number; break;
        case CT_ATTR_AXES: *(ct_dims *)at = (ct_dims){.n = 1, .d = {(int64_t)attr->number}}; break;
        case CT_ATTR_DIMS:
        case CT_ATTR_OPT:
        case CT_ATTR_TEXT:
        case CT_ATTR_DEVICE: break; /* zero is their default */
        }
    }
}

static bool bad_value(const ct_op *op, const char *name, const char *text, const char *expected) {
    return ct_fail(CT_ERR_VALUE, op->name, "%s = \"%s\" is not %s", name, text, expected);
}

static bool parse_int(const char *text, int64_t *value) {
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    *value = number;
    return end != text && *end == 0 && errno == 0;
}

static bool parse_double(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == 0;
}

static bool parse_dims(const char *text, ct_dims *dims) {
    ct_dims list = {0};
    if (*text == 0) {
        *dims = list;
        return true;
    }
    for (;;) {
        char *end;
        errno = 0;
        long long number = strtoll(text, &end, 10);
        if (end == text || errno || list.n == CT_MAX_LIST) return false;
        list.d[list.n++] = number;
        if (*end == 0) break;
        if (*end != ',') return false;
        text = end + 1;
    }
    *dims = list;
    return true;
}

static bool set_value(const ct_op *op, const ct_attr *attr, const char *name, void *at, const char *text) {
    switch (attr->type) {
    case CT_ATTR_INT: return parse_int(text, at) || bad_value(op, name, text, "an integer");
    case CT_ATTR_DOUBLE: return parse_double(text, at) || bad_value(op, name, text, "a number");
    case CT_ATTR_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0 && strcmp(text, "1") != 0 && strcmp(text, "0") != 0)
            return bad_value(op, name, text, "true or false");
        *(bool *)at = text[0] == 't' || text[0] == '1';
        return true;
    case CT_ATTR_DIMS:
        return parse_dims(text, at) || bad_value(op, name, text, "a list of at most 16 integers such as 2,1");
    case CT_ATTR_AXES: {
        ct_dims list;
        if (!parse_dims(text, &list)) return bad_value(op, name, text, "an integer, or a list such as 2,1");
        if (strcmp(name, attr->name) == 0 && list.n != 1)
            return bad_value(op, name, text, "one integer (use the plural for a list)");
        *(ct_dims *)at = list;
        return true;
    }
    case CT_ATTR_OPT: {
        double number;
        if (!parse_double(text, &number)) return bad_value(op, name, text, "a number");
        *(ct_opt *)at = (ct_opt){true, number};
        return true;
    }
    case CT_ATTR_DTYPE: return ct_dtype_parse(text, at) || bad_value(op, name, text, "a dtype such as f32");
    case CT_ATTR_ENUM:
        for (int i = 0; attr->values[i]; i++) {
            if (strcmp(attr->values[i], text) != 0) continue;
            *(int *)at = i;
            return true;
        }
        return bad_value(op, name, text, "one of its named values");
    case CT_ATTR_TEXT:
        if (strlen(text) >= sizeof(ct_text)) return bad_value(op, name, text, "short enough");
        snprintf(((ct_text *)at)->s, sizeof(ct_text), "%s", text);
        return true;
    case CT_ATTR_DEVICE:
        if (!ct_device_parse(text, at)) return false;
        return true;
    }
    return false;
}

bool ct_attrs_set(const ct_op *op, void *attrs, const char *name, const char *text) {
    if (!op || !attrs || !name || !text)
        return ct__fail_null("attrs_set", !op ? "op" : !attrs ? "attrs" : !name ? "name" : "text");
    for (const ct_attr *attr = op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, name) == 0 || (attr->plural && strcmp(attr->plural, name) == 0))
            return set_value(op, attr, name, (char *)attrs + attr->offset, text);
    return ct_fail(CT_ERR_VALUE, op->name, "has no option named %s", name);
}

static void list_text(const ct_dims *list, char *text, size_t room) {
    size_t used = 0;
    for (int i = 0; i < list->n && i < CT_MAX_LIST && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%lld", i ? "," : "", (long long)list->d[i]);
}

/* With as few digits as give the same number back. */
static void number_text(double value, char *text, size_t room) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, room, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

bool ct_attrs_text(const ct_attr *attr, const void *attrs, char *text, size_t room) {
    if (!attr || !attrs || !text || !room)
        return ct__fail_null("attrs_text", !attr ? "attr" : !attrs ? "attrs" : "text");
    const void *at = (const char *)attrs + attr->offset;
    text[0] = 0;
    switch (attr->type) {
    case CT_ATTR_INT: snprintf(text, room, "%lld", (long long)*(const int64_t *)at); break;
    case CT_ATTR_DOUBLE: number_text(*(const double *)at, text, room); break;
    case CT_ATTR_BOOL: snprintf(text, room, "%s", *(const bool *)at ? "true" : "false"); break;
    case CT_ATTR_OPT:
        if (!((const ct_opt *)at)->set) return false;
        number_text(((const ct_opt *)at)->value, text, room);
        break;
    case CT_ATTR_DTYPE: snprintf(text, room, "%s", ct_dtype_name(*(const ct_dtype *)at)); break;
    case CT_ATTR_ENUM: snprintf(text, room, "%s", attr->values ? attr->values[*(const int *)at] : ""); break;
    case CT_ATTR_TEXT: snprintf(text, room, "%s", ((const ct_text *)at)->s); break;
    case CT_ATTR_DIMS:
    case CT_ATTR_AXES: list_text(at, text, room); break;
    case CT_ATTR_DEVICE:
        if (((const ct_device *)at)->type == CT_CURRENT) return false;
        snprintf(text, room, "%s", ct_device_text(*(const ct_device *)at));
        break;
    }
    return true;
}

/* ---- What a caller wrote ---- */

static bool bad_number(ct_code code, const ct_op *op, const ct_attr *attr, int number, const char *expected) {
    return ct_fail(code, op->name, "%s: %d is not %s", attr->name, number, expected);
}

static bool check_enum(const ct_op *op, const ct_attr *attr, int number) {
    int count = 0;
    while (attr->values && attr->values[count]) count++;
    return !attr->values || (number >= 0 && number < count) ||
           bad_number(CT_ERR_VALUE, op, attr, number, "a value of its enum");
}

static bool check_value(const ct_op *op, const ct_attr *attr, const void *at) {
    unsigned char truth;
    int number; /* an enum's: read as bytes, since one that does not exist may be there */
    switch (attr->type) {
    case CT_ATTR_INT:
    case CT_ATTR_DOUBLE:
    case CT_ATTR_OPT: return true; /* any number is one: infer judges it */
    case CT_ATTR_BOOL:
        memcpy(&truth, at, 1);
        return truth <= 1 || bad_number(CT_ERR_VALUE, op, attr, truth, "true or false");
    case CT_ATTR_DIMS:
    case CT_ATTR_AXES:
        number = ((const ct_dims *)at)->n;
        return (number >= 0 && number <= CT_MAX_LIST) ||
               ct_fail(CT_ERR_VALUE, op->name, "%s: a list holds at most %d numbers",
                       attr->plural ? attr->plural : attr->name, CT_MAX_LIST);
    case CT_ATTR_DTYPE:
        memcpy(&number, at, sizeof number);
        return (number >= 0 && number < CT_DTYPE_COUNT) || bad_number(CT_ERR_DTYPE, op, attr, number, "a dtype");
    case CT_ATTR_ENUM: memcpy(&number, at, sizeof number); return check_enum(op, attr, number);
    case CT_ATTR_TEXT:
        return memchr(((const ct_text *)at)->s, 0, sizeof(ct_text)) ||
               ct_fail(CT_ERR_VALUE, op->name, "%s does not end within its %zu bytes", attr->name, sizeof(ct_text));
    case CT_ATTR_DEVICE:
        memcpy(&number, at, sizeof number);
        return (number >= 0 && number < CT_DEVICE_TYPES) ||
               bad_number(CT_ERR_DEVICE, op, attr, number, "a kind of device");
    }
    return true;
}

/* Whether a value is seen to be right without a switch, which for each attribute of each call is a jump to somewhere else. */
static inline bool is_plain(const ct_attr *attr, const void *at) {
    if (attr->type == CT_ATTR_DIMS || attr->type == CT_ATTR_AXES)
        return (unsigned)((const ct_dims *)at)->n <= CT_MAX_LIST;
    if (attr->type == CT_ATTR_BOOL) return *(const unsigned char *)at <= 1;
    return attr->type <= CT_ATTR_DOUBLE;
}
_Static_assert(CT_ATTR_INT == 0 && CT_ATTR_DOUBLE == 1, "numbers are the first kinds of attributes");

CT__HOT bool ct__attrs_check(const ct_op *op, const void *attrs) {
    for (const ct_attr *attr = attrs ? op->attrs : NULL; attr && attr->name; attr++) {
        const void *at = (const char *)attrs + attr->offset;
        if (!is_plain(attr, at) && !check_value(op, attr, at)) return false;
    }
    return true;
}

static bool same_lists(const ct_dims *a, const ct_dims *b) {
    return a->n == b->n && memcmp(a->d, b->d, (size_t)a->n * sizeof *a->d) == 0;
}

static bool same_value(ct_attr_type type, const void *a, const void *b) {
    const ct_opt *x = a, *y = b;
    switch (type) {
    case CT_ATTR_INT:
    case CT_ATTR_DOUBLE:
    case CT_ATTR_DEVICE: return memcmp(a, b, 8) == 0;
    case CT_ATTR_BOOL: return *(const bool *)a == *(const bool *)b;
    case CT_ATTR_DTYPE:
    case CT_ATTR_ENUM: return memcmp(a, b, sizeof(int)) == 0;
    case CT_ATTR_OPT: return x->set == y->set && (!x->set || memcmp(&x->value, &y->value, sizeof x->value) == 0);
    case CT_ATTR_TEXT: return strncmp(a, b, sizeof(ct_text)) == 0;
    case CT_ATTR_DIMS:
    case CT_ATTR_AXES: return same_lists(a, b);
    }
    return false;
}

bool ct__attrs_same(const ct_op *op, const void *a, const void *b) {
    if (!a || !b) return a == b;
    if (!op->attrs) return memcmp(a, b, op->attr_size) == 0;
    for (const ct_attr *attr = op->attrs; attr->name; attr++)
        if (!same_value(attr->type, (const char *)a + attr->offset, (const char *)b + attr->offset)) return false;
    return true;
}

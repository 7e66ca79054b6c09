/* The tree of a recipe: making, finding, changing, writing. Reading YAML is tree_yaml.c. */
#include "cli/train/tree.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tree *tree_new(tree_kind kind, const char *key, const char *text) {
    tree *node = calloc(1, sizeof *node);
    if (!node) {
        ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        return NULL;
    }
    node->kind = kind;
    node->source = "";
    if ((key && !(node->key = text_copy(key))) || (text && !(node->text = text_copy(text)))) {
        tree_free(node);
        return NULL;
    }
    return node;
}

void tree_free(tree *node) {
    if (!node) return;
    for (int i = 0; i < node->n; i++) tree_free(node->at[i]);
    free(node->at);
    free(node->key);
    free(node->text);
    free(node);
}

static int find(const tree *map, const char *key) {
    if (map && map->kind == TREE_MAP)
        for (int i = 0; i < map->n; i++)
            if (strcmp(map->at[i]->key, key) == 0) return i;
    return -1;
}

tree *tree_get(const tree *map, const char *key) {
    const int i = find(map, key);
    return i < 0 ? NULL : map->at[i];
}

bool tree_add(tree *parent, tree *child) {
    if (!parent || !child) {
        tree_free(child);
        return false;
    }
    const int i = child->key ? find(parent, child->key) : -1;
    if (i >= 0) {
        tree_free(parent->at[i]);
        parent->at[i] = child;
        return true;
    }
    if (parent->n == parent->capacity) {
        const int capacity = parent->capacity ? 2 * parent->capacity : 4;
        tree **at = realloc(parent->at, (size_t)capacity * sizeof *at);
        if (!at) {
            tree_free(child);
            return ct_fail(CT_ERR_MEMORY, NULL, "out of memory");
        }
        parent->at = at;
        parent->capacity = capacity;
    }
    parent->at[parent->n++] = child;
    return true;
}

void tree_remove(tree *map, const char *key) {
    const int i = find(map, key);
    if (i < 0) return;
    tree_free(map->at[i]);
    memmove(map->at + i, map->at + i + 1, (size_t)(map->n - i - 1) * sizeof *map->at);
    map->n--;
}

/* An index into a list: -1 when the word is none or lies outside. */
static int list_index(const tree *list, const char *word) {
    char *end;
    const long i = strtol(word, &end, 10);
    return *word && !*end && i >= 0 && i < list->n ? (int)i : -1;
}

/* A text where a map is needed is taken as that map's name: `optimizer: adam` and --set optimizer.lr=1. */
static bool become_map(tree *node) {
    tree *name = tree_new(TREE_TEXT, "name", node->text);
    if (!name) return false;
    name->source = node->source;
    name->line = name->key_line = node->line;
    free(node->text);
    node->text = NULL;
    node->kind = TREE_MAP;
    return tree_add(node, name);
}

bool tree_put(tree *root, const char *path, tree *value) {
    char word[128];
    tree *at = root;
    if (!value) return false;
    for (const char *rest = path;;) {
        const size_t length = strcspn(rest, ".");
        const bool last = rest[length] == 0;
        if (length == 0 || length >= sizeof word) {
            tree_fail(value, "'%s' is not a path of keys with dots between them", path);
            break;
        }
        memcpy(word, rest, length);
        word[length] = 0;
        rest += length + 1;
        if (at->kind == TREE_TEXT) {
            if (!become_map(at)) break;
            at->source = value->source; /* what is wrong with it from now on, this has done */
            at->line = at->key_line = 0;
        }
        if (at->kind == TREE_LIST) {
            const int i = list_index(at, word);
            if (i < 0) {
                tree_fail(value, "'%s' is not one of the %d places of a list, counted from 0", word, at->n);
                break;
            }
            if (last) {
                tree_free(at->at[i]);
                at->at[i] = value;
                return true;
            }
            at = at->at[i];
            continue;
        }
        if (last) {
            free(value->key);
            value->key = text_copy(word);
            if (!value->key) break;
            return tree_add(at, value);
        }
        tree *next = tree_get(at, word);
        if (!next) {
            next = tree_new(TREE_MAP, word, NULL);
            if (!next) break;
            next->source = value->source;
            if (!tree_add(at, next)) break;
        }
        at = next;
    }
    tree_free(value);
    return false;
}

/* Whether a plain word would read as the same text again. */
static bool needs_quotes(const tree *node) {
    const char *text = node->text;
    if (node->quoted || !*text) return true;
    if (strchr("-?:,[]{}#&*!|>'\"%@` ~=", text[0]) &&
        !(text[0] == '-' && (text[1] == '.' || (text[1] >= '0' && text[1] <= '9'))))
        return true;
    const size_t n = strlen(text);
    if (text[n - 1] == ' ' || text[n - 1] == ':') return true;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127 || strchr("#,[]{}\"", *c) || (*c == ':' && c[1] == ' ')) return true;
    return false;
}

static void write_text(const tree *node, buffer *b) {
    if (needs_quotes(node)) buffer_json(b, node->text); /* a JSON string is a YAML one */
    else buffer_text(b, node->text);
}

static bool all_texts(const tree *node) {
    for (int i = 0; i < node->n; i++)
        if (node->at[i]->kind != TREE_TEXT) return false;
    return true;
}

static void write_key(const tree *node, buffer *b) {
    const tree as_text = {.kind = TREE_TEXT, .text = node->key};
    write_text(&as_text, b);
    buffer_text(b, ":");
}

void tree_write_short(const tree *node, buffer *b) {
    if (node->kind == TREE_TEXT) {
        write_text(node, b);
        return;
    }
    buffer_text(b, node->kind == TREE_LIST ? "[" : "{");
    for (int i = 0; i < node->n; i++) {
        if (i) buffer_text(b, ", ");
        if (node->kind == TREE_MAP) {
            write_key(node->at[i], b);
            buffer_text(b, " ");
        }
        tree_write_short(node->at[i], b);
    }
    buffer_text(b, node->kind == TREE_LIST ? "]" : "}");
}

static void write_block(const tree *node, buffer *b, int indent) {
    for (int i = 0; i < node->n; i++) {
        const tree *child = node->at[i];
        buffer_add(b, "%*s", indent, "");
        if (node->kind == TREE_MAP) write_key(child, b);
        else buffer_text(b, "-");
        const bool block = node->kind == TREE_MAP && child->kind != TREE_TEXT && child->n &&
                           !(child->kind == TREE_LIST && all_texts(child));
        if (!block) {
            buffer_text(b, " ");
            tree_write_short(child, b);
        }
        buffer_text(b, "\n");
        if (block) write_block(child, b, indent + 2);
    }
}

void tree_write(const tree *root, buffer *b) {
    if (root->kind == TREE_TEXT || root->n == 0) {
        tree_write_short(root, b);
        buffer_text(b, "\n");
    } else write_block(root, b, 0);
}

bool tree_same(const tree *a, const tree *b) {
    if (!a || !b) return a == b;
    buffer x = {0}, y = {0};
    tree_write_short(a, &x);
    tree_write_short(b, &y);
    const bool same = !x.failed && !y.failed && strcmp(x.at, y.at) == 0;
    buffer_free(&x);
    buffer_free(&y);
    return same;
}

void tree_set_place(tree *node, const char *set) {
    node->source = set;
    node->line = node->key_line = 0;
    for (int i = 0; i < node->n; i++) tree_set_place(node->at[i], set);
}

static bool fail_at(const char *source, int line, const char *format, va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    if (line) return ct_fail(CT_ERR_VALUE, NULL, "%s:%d: %s", source, line, text);
    if (source && *source) return ct_fail(CT_ERR_VALUE, NULL, "--set %s: %s", source, text);
    return ct_fail(CT_ERR_VALUE, NULL, "%s", text);
}

bool tree_fail(const tree *node, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail_at(node->source, node->line, format, args);
    va_end(args);
    return false;
}

bool tree_fail_key(const tree *node, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail_at(node->source, node->key_line ? node->key_line : node->line, format, args);
    va_end(args);
    return false;
}

bool tree_fail_value(const tree *node, const char *wanted) {
    buffer is = {0};
    tree_write_short(node, &is);
    tree_fail(node, "%s is %s, not %s", node->key ? node->key : "this", wanted, is.failed ? "this" : is.at);
    buffer_free(&is);
    return false;
}

bool tree_number(const tree *node, double *value) {
    if (!node || node->kind != TREE_TEXT || node->quoted || !strchr("+-.0123456789", node->text[0]) || !node->text[0])
        return false;
    if (strpbrk(node->text, "xXpPnN")) return false; /* strtod takes hexadecimal, nan and inf as well */
    char *end;
    *value = strtod(node->text, &end);
    return end != node->text && !*end && isfinite(*value);
}

bool tree_integer(const tree *node, int64_t *value) {
    double number;
    if (!tree_number(node, &number)) return false;
    char *end;
    errno = 0;
    const long long whole = strtoll(node->text, &end, 10);
    if (!*end && errno == 0) {
        *value = whole;
        return true;
    }
    if (number != floor(number) || fabs(number) > 9e15) return false; /* 1e4 is a whole number too */
    *value = (int64_t)number;
    return true;
}

bool tree_bool(const tree *node, bool *value) {
    if (!node || node->kind != TREE_TEXT || node->quoted) return false;
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    for (int i = 0; i < 6; i++)
        if (strcmp(node->text, words[i]) == 0) {
            *value = i % 2;
            return true;
        }
    return false;
}

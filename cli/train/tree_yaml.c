/* YAML to a tree, by the events of libyaml. What a recipe has no use for is refused as soon as it begins: several
 * documents, keys that are not plain, trees deeper or larger than anyone writes. libyaml's own documents would be whole
 * before a limit is looked at, and its scanner takes time with the square of the depth. An alias is a copy of what its
 * anchor named, and its nodes count as others do, so that a small file cannot become a huge one. */
#include "cli/train/tree.h"

#include "support/foreign.h"

#include <stdlib.h>
#include <string.h>

#ifdef CT_HAVE_LIBYAML
#include <yaml.h>

#define YAML(X)                     \
    X(yaml_parser_initialize)       \
    X(yaml_parser_delete)           \
    X(yaml_parser_set_input_string) \
    X(yaml_parser_parse) X(yaml_event_delete)
FOREIGN(yaml, YAML, "libyaml", "libyaml-0-2", "libyaml-0.so.2")

enum { DEEPEST = 16, MOST_NODES = 10000, MOST_ANCHORS = 100, LONGEST_KEY = 100, LONGEST_TEXT = 1 << 18 };

typedef struct anchor {
    char *name;
    const tree *node; /* in the tree that is being made */
    bool open;        /* its end has not come yet: an alias to it would hold itself */
} anchor;

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the one that is looked at */
    bool has_event;
    const char *source;
    int nodes;
    anchor anchors[MOST_ANCHORS];
    int anchor_count;
} reader;

/* The next event into r->event. False with an error. */
static bool next(reader *r) {
    if (r->has_event) yaml.yaml_event_delete(&r->event);
    r->has_event = yaml.yaml_parser_parse(&r->parser, &r->event) != 0;
    if (r->has_event) return true;
    return ct_fail(CT_ERR_VALUE, NULL, "%s:%zu: this is not YAML: %s", r->source, r->parser.problem_mark.line + 1,
                   r->parser.problem ? r->parser.problem : "it cannot be read");
}

static bool fail_here(const reader *r, const char *what) {
    return ct_fail(CT_ERR_VALUE, NULL, "%s:%zu: %s", r->source, r->event.start_mark.line + 1, what);
}

/* Every node passes here, those of aliases too. */
static tree *new_node(reader *r, tree_kind kind, int line, int depth) {
    tree *node = tree_new(kind, NULL, NULL);
    if (!node) return NULL;
    node->source = r->source;
    node->line = line;
    if (depth <= DEEPEST && ++r->nodes <= MOST_NODES) return node;
    if (depth > DEEPEST) tree_fail(node, "more than %d levels, too deep for a recipe", DEEPEST);
    else tree_fail(node, "more than %d values, too long for a recipe", MOST_NODES);
    tree_free(node);
    return NULL;
}

/* ---- Anchors ---- */

/* A name that is given again means the newer thing from here on. */
static anchor *find_anchor(reader *r, const char *name) {
    for (int i = 0; i < r->anchor_count; i++)
        if (strcmp(r->anchors[i].name, name) == 0) return &r->anchors[i];
    return NULL;
}

/* The index of the anchor that the event gives the node, -1 for none, -2 with an error. */
static int open_anchor(reader *r, const yaml_char_t *name, const tree *node) {
    if (!name) return -1;
    anchor *found = find_anchor(r, (const char *)name);
    if (found && found->open) {
        fail_here(r, "an anchor inside what has the same anchor");
        return -2;
    }
    if (!found) {
        if (r->anchor_count == MOST_ANCHORS) {
            ct_fail(CT_ERR_VALUE, NULL, "%s:%zu: more than %d anchors, too many for a recipe", r->source,
                    r->event.start_mark.line + 1, MOST_ANCHORS);
            return -2;
        }
        found = &r->anchors[r->anchor_count];
        if (!(found->name = text_copy((const char *)name))) return -2;
        r->anchor_count++;
    }
    found->node = node;
    found->open = true;
    return (int)(found - r->anchors);
}

static tree *copy_node(reader *r, const tree *from, int depth) {
    tree *node = new_node(r, from->kind, from->line, depth);
    if (!node) return NULL;
    node->key_line = from->key_line;
    node->quoted = from->quoted;
    bool right =
        (!from->key || (node->key = text_copy(from->key))) && (!from->text || (node->text = text_copy(from->text)));
    for (int i = 0; right && i < from->n; i++) right = tree_add(node, copy_node(r, from->at[i], depth + 1));
    if (right) return node;
    tree_free(node);
    return NULL;
}

static tree *read_alias(reader *r, int depth) {
    const anchor *found = find_anchor(r, (const char *)r->event.data.alias.anchor);
    if (!found) fail_here(r, "an alias to an anchor that is not there");
    else if (found->open) fail_here(r, "an alias inside what it stands for");
    tree *node = found && !found->open ? copy_node(r, found->node, depth) : NULL;
    if (!node) return NULL;
    free(node->key); /* that of the place it was copied from */
    node->key = NULL;
    node->key_line = 0;
    return node;
}

/* ---- Nodes ---- */

static tree *read_node(reader *r, int depth);

static bool read_list(reader *r, tree *list, int depth) {
    while (next(r)) {
        if (r->event.type == YAML_SEQUENCE_END_EVENT) return true;
        if (!tree_add(list, read_node(r, depth + 1))) return false;
    }
    return false;
}

static bool read_pair(reader *r, tree *map, int depth) {
    const size_t length = r->event.type == YAML_SCALAR_EVENT ? r->event.data.scalar.length : 0;
    const char *word = length ? (const char *)r->event.data.scalar.value : NULL;
    if (!word || strlen(word) != length || length > LONGEST_KEY) return tree_fail(map, "a key has to be one word");
    char key[LONGEST_KEY + 1];
    memcpy(key, word, length + 1);
    const int line = (int)r->event.start_mark.line + 1;
    tree *child = next(r) ? read_node(r, depth + 1) : NULL;
    if (!child) return false;
    child->key_line = line;
    child->key = text_copy(key);
    const bool twice = tree_get(map, key) != NULL;
    if (twice) tree_fail_key(child, "'%s' stands here twice", key);
    if (child->key && !twice) return tree_add(map, child);
    tree_free(child);
    return false;
}

static bool read_map(reader *r, tree *map, int depth) {
    while (next(r)) {
        if (r->event.type == YAML_MAPPING_END_EVENT) return true;
        if (!read_pair(r, map, depth)) return false;
    }
    return false;
}

static bool read_text(const reader *r, tree *node) {
    node->text = text_copy((const char *)r->event.data.scalar.value);
    node->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return node->text &&
           (strlen(node->text) == r->event.data.scalar.length || tree_fail(node, "a text holds a zero byte"));
}

/* The node that the event begins; the event of its end is the last that is taken. */
static tree *read_node(reader *r, int depth) {
    const yaml_event_type_t type = r->event.type;
    if (type == YAML_ALIAS_EVENT) return read_alias(r, depth);
    const tree_kind kind = type == YAML_MAPPING_START_EVENT    ? TREE_MAP
                           : type == YAML_SEQUENCE_START_EVENT ? TREE_LIST
                                                               : TREE_TEXT;
    tree *node = new_node(r, kind, (int)r->event.start_mark.line + 1, depth);
    if (!node) return NULL;
    const int at = open_anchor(r,
                               kind == TREE_MAP    ? r->event.data.mapping_start.anchor
                               : kind == TREE_LIST ? r->event.data.sequence_start.anchor
                                                   : r->event.data.scalar.anchor,
                               node);
    bool right = at > -2;
    if (right)
        right = kind == TREE_MAP    ? read_map(r, node, depth)
                : kind == TREE_LIST ? read_list(r, node, depth)
                                    : read_text(r, node);
    if (right && at >= 0) r->anchors[at].open = false;
    if (right) return node;
    tree_free(node);
    return NULL;
}

/* The one document of the stream: no document gives an empty map. */
static tree *read_stream(reader *r) {
    if (!next(r) || !next(r)) return NULL; /* the stream begins; a document begins or it ends */
    if (r->event.type == YAML_STREAM_END_EVENT) return tree_new(TREE_MAP, NULL, NULL);
    tree *root = next(r) ? read_node(r, 0) : NULL;
    bool right = root && next(r) && next(r); /* the document ends, and so does the stream */
    if (right && r->event.type != YAML_STREAM_END_EVENT)
        right = ct_fail(CT_ERR_VALUE, NULL, "%s: a recipe is one document, this has several", r->source);
    if (right) return root;
    tree_free(root);
    return NULL;
}

tree *tree_parse(const char *text, size_t n, const char *source) {
    reader r = {.source = source};
    if (!foreign_yaml("recipe")) return NULL;
    if (n > LONGEST_TEXT) { /* libyaml compares directives and simple keys with those before */
        ct_fail(CT_ERR_VALUE, NULL, "%s: %zu bytes; a recipe has at most %d", source, n, LONGEST_TEXT);
        return NULL;
    }
    if (!yaml.yaml_parser_initialize(&r.parser)) {
        ct_fail(CT_ERR_MEMORY, NULL, "%s: out of memory", source);
        return NULL;
    }
    yaml.yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    tree *root = read_stream(&r);
    if (r.has_event) yaml.yaml_event_delete(&r.event);
    yaml.yaml_parser_delete(&r.parser);
    for (int i = 0; i < r.anchor_count; i++) free(r.anchors[i].name);
    return root;
}

#else

tree *tree_parse(const char *text, size_t n, const char *source) {
    (void)text, (void)n, (void)source;
    ct__foreign_absent("recipe", "libyaml", "libyaml-dev");
    return NULL;
}

#endif

/* What a recipe says, as a tree in which each node knows its place in the file, so that every complaint can name it.
 * Nothing here knows what a recipe means: that is recipe.h. */
#ifndef COTANGENT_CLI_TRAIN_TREE_H
#define COTANGENT_CLI_TRAIN_TREE_H

#include "cli/train/buffer.h"

typedef enum tree_kind { TREE_TEXT, TREE_LIST, TREE_MAP } tree_kind;

typedef struct tree {
    tree_kind kind;
    char *key;   /* in a map; NULL in a list and for the root */
    char *text;  /* of a TREE_TEXT */
    bool quoted; /* the text stood in quotes: never a number, true or false */
    struct tree **at;
    int n, capacity;
    const char *source; /* the file, or what was given to --set; outlives the tree */
    int line, key_line; /* from 1; 0: it has none */
} tree;

/* Parses YAML: one document of maps with plain keys, lists and texts. `source` is for messages and kept. NULL with an
 * error; an empty text gives an empty map. */
tree *tree_parse(const char *text, size_t n, const char *source);
/* For a tree that is made by hand; text may be NULL where the kind is another. */
tree *tree_new(tree_kind kind, const char *key, const char *text);
void tree_free(tree *node);

tree *tree_get(const tree *map, const char *key); /* NULL when there is none, or map is NULL or not a map */
/* Adds to a map (replacing what has the same key) or to a list. Owns the child. */
bool tree_add(tree *parent, tree *child);
void tree_remove(tree *map, const char *key);
/* Puts value at a path as of --set: "model.channels", "transforms.0.pad". Maps on the way are made. Owns the value. */
bool tree_put(tree *root, const char *path, tree *value);

/* Says that a tree came from a --set of that text, which outlives it. */
void tree_set_place(tree *node, const char *set);

/* The tree as YAML again, in one way for one tree, so that equal texts mean equal trees. */
void tree_write(const tree *root, buffer *b);
bool tree_same(const tree *a, const tree *b);
/* On one line, as in "[32, 64]": for messages and tables. */
void tree_write_short(const tree *node, buffer *b);

/* An error at the node's place: "recipe.yaml:7: text". Always false. */
bool tree_fail(const tree *node, const char *format, ...) CT_PRINTF(2, 3);
/* The same at its key: what is wrong is the name. */
bool tree_fail_key(const tree *node, const char *format, ...) CT_PRINTF(2, 3);
bool tree_fail_value(const tree *node, const char *wanted); /* "epochs is a whole number, not ..." */

/* The value of a text: false, without an error, when it is not of that kind. */
bool tree_number(const tree *node, double *value);
bool tree_integer(const tree *node, int64_t *value);
bool tree_bool(const tree *node, bool *value);

#endif

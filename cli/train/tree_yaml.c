/* YAML to a tree, by libyaml. What a recipe has no use for is refused: several documents, keys that are not plain, trees
 * deeper or larger than anyone writes (aliases can make a small file into a huge one, or one that contains itself). */
#include "cli/train/tree.h"

#include "io/foreign.h"

#include <stdlib.h>
#include <string.h>

#ifdef CT_HAVE_LIBYAML
#include <yaml.h>

#define YAML(X)                     \
    X(yaml_parser_initialize)       \
    X(yaml_parser_delete)           \
    X(yaml_parser_set_input_string) \
    X(yaml_parser_load) X(yaml_document_delete) X(yaml_document_get_node) X(yaml_document_get_root_node)
FOREIGN(yaml, YAML, "libyaml", "libyaml-0-2", "libyaml-0.so.2")

enum { DEEPEST = 16, MOST_NODES = 10000 };

typedef struct reader {
    yaml_document_t *document;
    const char *source;
    int nodes;
} reader;

static tree *convert(reader *r, int index, int depth);

static bool convert_map(reader *r, const yaml_node_t *from, tree *to, int depth) {
    for (yaml_node_pair_t *pair = from->data.mapping.pairs.start; pair < from->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml.yaml_document_get_node(r->document, pair->key);
        const char *word = key && key->type == YAML_SCALAR_NODE ? (const char *)key->data.scalar.value : NULL;
        if (!word || !*word || strlen(word) != key->data.scalar.length || strlen(word) > 100)
            return tree_fail(to, "a key has to be one word");
        tree *child = convert(r, pair->value, depth + 1);
        if (!child) return false;
        child->key_line = (int)key->start_mark.line + 1;
        child->key = text_copy(word);
        const bool twice = tree_get(to, word) != NULL;
        if (twice) tree_fail_key(child, "'%s' stands here twice", word);
        if (!child->key || twice) {
            tree_free(child);
            return false;
        }
        if (!tree_add(to, child)) return false;
    }
    return true;
}

static tree *convert(reader *r, int index, int depth) {
    const yaml_node_t *from = yaml.yaml_document_get_node(r->document, index);
    tree *node = tree_new(from && from->type == YAML_MAPPING_NODE    ? TREE_MAP
                          : from && from->type == YAML_SEQUENCE_NODE ? TREE_LIST
                                                                     : TREE_TEXT,
                          NULL, NULL);
    if (!node) return NULL;
    node->source = r->source;
    node->line = from ? (int)from->start_mark.line + 1 : 0;
    bool right = true;
    if (depth > DEEPEST || ++r->nodes > MOST_NODES) right = tree_fail(node, "too deep or too long for a recipe");
    else if (!from) right = tree_fail(node, "a value is missing");
    else if (from->type == YAML_SCALAR_NODE) {
        node->text = text_copy((const char *)from->data.scalar.value);
        node->quoted = from->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        right = node->text &&
                (strlen(node->text) == from->data.scalar.length || tree_fail(node, "a text holds a zero byte"));
    } else if (from->type == YAML_SEQUENCE_NODE) {
        for (yaml_node_item_t *item = from->data.sequence.items.start; right && item < from->data.sequence.items.top;
             item++)
            right = tree_add(node, convert(r, *item, depth + 1));
    } else right = convert_map(r, from, node, depth);
    if (right) return node;
    tree_free(node);
    return NULL;
}

static void fail_parse(const yaml_parser_t *parser, const char *source) {
    ct_fail(CT_ERR_VALUE, NULL, "%s:%zu: this is not YAML: %s", source, parser->problem_mark.line + 1,
            parser->problem ? parser->problem : "it cannot be read");
}

static tree *read_document(yaml_parser_t *parser, const char *source) {
    yaml_document_t document, second;
    if (!yaml.yaml_parser_load(parser, &document)) {
        fail_parse(parser, source);
        return NULL;
    }
    tree *root = NULL;
    if (!yaml.yaml_document_get_root_node(&document)) root = tree_new(TREE_MAP, NULL, NULL);
    else {
        reader r = {&document, source, 0};
        root = convert(&r, 1, 0); /* libyaml counts nodes from 1, the root first */
    }
    yaml.yaml_document_delete(&document);
    if (!root || parser->stream_end_produced) return root;
    bool more = true;
    if (!yaml.yaml_parser_load(parser, &second)) fail_parse(parser, source);
    else {
        more = yaml.yaml_document_get_root_node(&second) != NULL;
        if (more) ct_fail(CT_ERR_VALUE, NULL, "%s: a recipe is one document, this has several", source);
        yaml.yaml_document_delete(&second);
    }
    if (!more) return root;
    tree_free(root);
    return NULL;
}

tree *tree_parse(const char *text, size_t n, const char *source) {
    yaml_parser_t parser;
    if (!foreign_yaml("recipe")) return NULL;
    if (!yaml.yaml_parser_initialize(&parser)) {
        ct_fail(CT_ERR_MEMORY, NULL, "%s: out of memory", source);
        return NULL;
    }
    yaml.yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    tree *root = read_document(&parser, source);
    yaml.yaml_parser_delete(&parser);
    return root;
}

#else

tree *tree_parse(const char *text, size_t n, const char *source) {
    (void)text, (void)n, (void)source;
    ct__foreign_absent("recipe", "libyaml", "libyaml-dev");
    return NULL;
}

#endif

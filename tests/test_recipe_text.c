/* The text of a recipe to a tree: anchors and aliases, and files that were made to take time or memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train/tree.h"
#include "tests/harness.h"

static bool has_yaml(void) {
    tree *root = tree_parse("", 0, "r.yaml");
    tree_free(root);
    ct_error_clear();
    return root != NULL;
}

static bool reads_as(const char *file, int line, const char *yaml, const char *expected) {
    tree *root = tree_parse(yaml, strlen(yaml), "r.yaml");
    buffer b = {0};
    if (root) tree_write_short(root, &b);
    const bool held = harness_text(file, line, "tree", root ? b.at : ct_error(), expected);
    buffer_free(&b);
    tree_free(root);
    return held;
}
#define CHECK_READS(yaml, expected) reads_as(__FILE__, __LINE__, (yaml), (expected))

static void check_refused(int line, const char *yaml, size_t n, const char *words) {
    tree *root = tree_parse(yaml, n, "r.yaml");
    harness_check(!root, __FILE__, line, "it was read");
    harness_error(__FILE__, line, CT_ERR_VALUE, words);
    tree_free(root);
}
#define CHECK_REFUSED(yaml, words) check_refused(__LINE__, (yaml), strlen(yaml), (words))

TEST(maps_lists_and_texts) {
    if (!has_yaml()) SKIP("libyaml is not here");
    CHECK_READS("", "{}");
    CHECK_READS("# nothing\n", "{}");
    CHECK_READS("a: 1\nb: [x, y]\nc:\n  d: e\n", "{a: 1, b: [x, y], c: {d: e}}");
    CHECK_READS("---\na: 1\n...\n", "{a: 1}");
}

TEST(an_alias_is_a_copy) {
    if (!has_yaml()) SKIP("libyaml is not here");
    CHECK_READS("a: &x {b: 1, c: [2]}\nd: *x\ne: [*x]\n",
                "{a: {b: 1, c: [2]}, d: {b: 1, c: [2]}, e: [{b: 1, c: [2]}]}");
    CHECK_READS("a: &x 1\nb: &x 2\nc: *x\n", "{a: 1, b: 2, c: 2}");
}

TEST(bad_aliases_are_refused) {
    if (!has_yaml()) SKIP("libyaml is not here");
    CHECK_REFUSED("a: 1\nb: *x\n", "r.yaml:2: an alias to an anchor that is not there");
    CHECK_REFUSED("a: &x\n  - *x\n", "r.yaml:2: an alias inside what it stands for");
    CHECK_REFUSED("a: &x\n  - &x 1\n", "r.yaml:2: an anchor inside what has the same anchor");
}

TEST(what_is_no_recipe_is_refused) {
    if (!has_yaml()) SKIP("libyaml is not here");
    CHECK_REFUSED("a: 1\n---\nb: 2\n", "r.yaml: a recipe is one document, this has several");
    CHECK_REFUSED("a: 1\na: 2\n", "r.yaml:2: 'a' stands here twice");
    CHECK_REFUSED("a: 1\n[b]: 2\n", "r.yaml:1: a key has to be one word");
    CHECK_REFUSED("a: [1\n", "r.yaml:2: this is not YAML: did not find expected ',' or ']'");
}

TEST(a_long_text_is_refused) {
    if (!has_yaml()) SKIP("libyaml is not here");
    const size_t n = (1 << 18) + 1;
    char *text = malloc(n);
    REQUIRE(text != NULL);
    memset(text, '#', n);
    check_refused(__LINE__, text, n, "r.yaml: 262145 bytes; a recipe has at most 262144");
    free(text);
}

/* Each of these is refused where it gets too deep: had it to be read to its end, libyaml would take minutes. */
TEST(many_levels_are_refused_at_once) {
    if (!has_yaml()) SKIP("libyaml is not here");
    const size_t n = 1 << 18;
    char *text = malloc(n);
    REQUIRE(text != NULL);
    static const char *const openings[] = {"%TAG !a! b\n", "[", "{", "[{", "- ", "? ", "{a: ["};
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        const size_t length = strlen(openings[i]);
        for (size_t at = 0; at < n; at++) text[at] = openings[i][at % length];
        tree *root = tree_parse(text, n, "r.yaml");
        harness_check(!root && ct_error_code() == CT_ERR_VALUE, __FILE__, __LINE__, "%s: %s", openings[i], ct_error());
        tree_free(root);
        ct_error_clear();
    }
    memset(text, '[', n);
    check_refused(__LINE__, text, n, "r.yaml:1: more than 16 levels, too deep for a recipe");
    free(text);
}

TEST(a_billion_laughs_are_refused) {
    if (!has_yaml()) SKIP("libyaml is not here");
    char text[4096] = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 12; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1, i - 1,
                 i - 1, i - 1, i - 1, i - 1, i - 1);
    CHECK_REFUSED(text, "r.yaml:1: more than 10000 values, too long for a recipe");
}

TEST(too_many_values_and_anchors_are_refused) {
    if (!has_yaml()) SKIP("libyaml is not here");
    const size_t n = 200000;
    char *text = malloc(n);
    REQUIRE(text != NULL);
    for (size_t at = 0; at < n; at++) text[at] = "- x\n"[at % 4];
    check_refused(__LINE__, text, n, "r.yaml:10000: more than 10000 values, too long for a recipe");
    size_t used = 0;
    for (int i = 0; i < 101; i++) used += (size_t)snprintf(text + used, n - used, "- &a%d x\n", i);
    check_refused(__LINE__, text, used, "r.yaml:101: more than 100 anchors, too many for a recipe");
    free(text);
}

/* The file of measured choices: what is kept is found again, and nothing that lies there in its place does harm. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cuda/choices.h"
#include "tests/files.h"

static char path[512];

static void start(void) { snprintf(path, sizeof path, "%s", own_file("a/b/choices.txt")); }

static void put(const char *text, size_t length) {
    mkdir(own_file("a"), 0700);
    mkdir(own_file("a/b"), 0700);
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(text, 1, length, file) == length && fclose(file) == 0);
}

TEST(a_choice_is_found_again_in_the_same_table_and_in_the_next_process) {
    start();
    const int64_t key[3] = {7, -1, 1 << 20};
    ct_choices *c = ct_choices_open(path);
    REQUIRE(c);
    CHECK(ct_choices_find(c, "products", key, sizeof key, 8) == -1);
    CHECK(ct_choices_keep(c, "products", key, sizeof key, 8, 5));
    CHECK(ct_choices_find(c, "products", key, sizeof key, 8) == 5);
    CHECK(ct_choices_find(c, "products", key, sizeof key, 7) == -1); /* other candidates */
    CHECK(ct_choices_find(c, "product", key, sizeof key, 8) == -1);
    CHECK(ct_choices_find(c, "products", key, sizeof key - 1, 8) == -1);
    CHECK(ct_choices_save(c)); /* makes the folders */
    ct_choices_free(c);
    c = ct_choices_open(path);
    CHECK(ct_choices_find(c, "products", key, sizeof key, 8) == 5);
    ct_choices_free(c);
    remove_own_folder();
}

TEST(many_choices_are_kept_and_the_number_has_a_bound) {
    start();
    ct_choices *c = ct_choices_open(path);
    int kept = 0;
    for (int i = 0; i < 50000; i++) kept += ct_choices_keep(c, "f", &i, sizeof i, 3, i % 3);
    CHECK(kept >= 10000 && kept < 50000);
    CHECK(ct_choices_save(c));
    ct_choices_free(c);
    c = ct_choices_open(path);
    for (int i = 0; i < kept; i++) CHECK(ct_choices_find(c, "f", &i, sizeof i, 3) == i % 3);
    CHECK(ct_choices_find(c, "f", &kept, sizeof kept, 3) == -1);
    ct_choices_free(c);
    remove_own_folder();
}

TEST(what_cannot_be_kept_is_refused) {
    static const char long_key[CT_CHOICE_KEY + 1];
    ct_choices *c = ct_choices_open(NULL);
    char family[CT_CHOICE_FAMILY + 2];
    memset(family, 'f', sizeof family);
    family[CT_CHOICE_FAMILY + 1] = 0;
    CHECK(!ct_choices_keep(c, family, "k", 1, 2, 0));
    family[CT_CHOICE_FAMILY] = 0;
    CHECK(ct_choices_keep(c, family, "k", 1, 2, 0));
    CHECK(!ct_choices_keep(c, "", "k", 1, 2, 0) && !ct_choices_keep(c, "a b", "k", 1, 2, 0));
    CHECK(!ct_choices_keep(c, "a\nb", "k", 1, 2, 0));
    CHECK(!ct_choices_keep(c, "f", "k", 0, 2, 0) && !ct_choices_keep(c, "f", long_key, sizeof long_key, 2, 0));
    CHECK(ct_choices_keep(c, "f", long_key, CT_CHOICE_KEY, 2, 0));
    CHECK(!ct_choices_keep(c, "f", "k", 1, 2, 2) && !ct_choices_keep(c, "f", "k", 1, 2, -1));
    CHECK(!ct_choices_keep(c, "f", "k", 1, 0, 0) && !ct_choices_keep(c, "f", "k", 1, CT_CHOICE_COUNT + 1, 0));
    CHECK(!ct_choices_save(c)); /* in memory only */
    ct_choices_free(c);
    ct_choices_free(NULL);
}

TEST(lines_that_do_not_parse_are_skipped_and_the_others_count) {
    start();
    static const char text[] = "cotangent choices 1\n"
                               "\n \nf\nf 8\nf 8 3\nf 8 3 \nf 8 3 6\nf 8 3 6g\nf 8 8 61\nf 8 -1 61\nf 99999 3 61\n"
                               "f 8 3 61 62\nf  8 3 61\n 8 3 61\nf/f 8 3 61\nf\0f 8 3 61\nf 0 0 61\nf 3 00002 61\n"
                               "f 8 4 61\n" /* the only one that is right */
                               "f 8 5 62";  /* cut off */
    put(text, sizeof text - 1);
    ct_choices *c = ct_choices_open(path);
    CHECK(ct_choices_find(c, "f", "a", 1, 8) == 4);
    CHECK(ct_choices_find(c, "f", "b", 1, 8) == -1);
    CHECK(ct_choices_save(c));
    ct_choices_free(c);
    c = ct_choices_open(path); /* the bad ones are gone */
    CHECK(ct_choices_find(c, "f", "a", 1, 8) == 4);
    ct_choices_free(c);
    remove_own_folder();
}

TEST(random_bytes_in_the_file_do_no_harm) {
    start();
    uint64_t state = 88172645463325252u;
    for (int round = 0; round < 300; round++) {
        char text[2000] = "cotangent choices 1\nf 8 4 6161\nlong-family 12 7 00112233445566778899aabbccddeeff\n";
        size_t length = strlen(text);
        const bool first_line = round % 4 != 0;
        for (int i = 0; i < 1 + round % 40; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            const size_t at = (first_line ? 20 : 0) + (size_t)(state >> 20) % (length - 20);
            text[at] = round % 3 ? (char)(state >> 8) : " \n0f9"[(state >> 8) % 5];
        }
        for (; round % 5 == 0 && length < sizeof text; length++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            text[length] = "0 f\n"[state % 4];
        }
        put(text, length);
        ct_choices *c = ct_choices_open(path);
        REQUIRE(c);
        const int found = ct_choices_find(c, "f", "aa", 2, 8);
        CHECK(found >= -1 && found < 8);
        CHECK(ct_choices_save(c));
        ct_choices_free(c);
    }
    remove_own_folder();
}

TEST(a_place_that_cannot_be_read_or_written_is_no_error) {
    start();
    ct_choices *c = ct_choices_open("/proc/nowhere/choices.txt");
    REQUIRE(c);
    CHECK(ct_choices_keep(c, "f", "k", 1, 2, 1) && !ct_choices_save(c) && ct_choices_find(c, "f", "k", 1, 2) == 1);
    ct_choices_free(c);
    c = ct_choices_open(own_folder()); /* a folder, where a file should be */
    CHECK(c && ct_choices_keep(c, "f", "k", 1, 2, 1) && !ct_choices_save(c));
    ct_choices_free(c);
    put("#!/bin/sh\nf 8 4 61\n", 19); /* somebody else's */
    c = ct_choices_open(path);
    CHECK(ct_choices_find(c, "f", "a", 1, 8) == -1);
    ct_choices_free(c);
    remove_own_folder();
}

TEST(saving_keeps_what_another_process_added) {
    start();
    ct_choices *one = ct_choices_open(path), *other = ct_choices_open(path);
    CHECK(ct_choices_keep(one, "f", "a", 1, 4, 1) && ct_choices_save(one));
    CHECK(ct_choices_keep(other, "f", "b", 1, 4, 2) && ct_choices_keep(other, "f", "a", 1, 4, 3));
    CHECK(ct_choices_save(other));
    CHECK(ct_choices_find(other, "f", "a", 1, 4) == 3); /* its own measurement */
    ct_choices_free(one);
    ct_choices_free(other);
    one = ct_choices_open(path);
    CHECK(ct_choices_find(one, "f", "a", 1, 4) == 3 && ct_choices_find(one, "f", "b", 1, 4) == 2);
    ct_choices_free(one);
    remove_own_folder();
}

static void *save_often(void *which) {
    for (int i = 0; i < 50; i++) {
        ct_choices *c = ct_choices_open(path);
        const char key[2] = {*(const char *)which, (char)i};
        CHECK(ct_choices_keep(c, "f", key, 2, 4, 1) && ct_choices_save(c));
        ct_choices_free(c);
    }
    return NULL;
}

TEST(a_reader_never_sees_half_a_file_while_others_write) {
    start();
    pthread_t threads[3];
    ct_choices *c = ct_choices_open(path);
    CHECK(ct_choices_keep(c, "f", "all", 3, 4, 2) && ct_choices_save(c));
    ct_choices_free(c);
    for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, save_often, (void *)&"abc"[i]) == 0);
    for (int i = 0; i < 200; i++) {
        c = ct_choices_open(path);
        CHECK(ct_choices_find(c, "f", "all", 3, 4) == 2);
        ct_choices_free(c);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    char command[160];
    snprintf(command, sizeof command, "test $(ls %s/a/b | wc -l) = 1", own_folder()); /* nothing is left behind */
    CHECK(system(command) == 0);
    remove_own_folder();
}

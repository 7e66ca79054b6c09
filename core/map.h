/* A small hash map from pointers to pointers, for one pass over a graph. Linear probing; deletion shifts back. */
#ifndef COTANGENT_CORE_MAP_H
#define COTANGENT_CORE_MAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ct_map {
    struct ct_map_entry {
        const void *key;
        void *value;
    } * entries;
    size_t capacity, count;
} ct_map;

void **ct__map_find(const ct_map *map, const void *key);     /* NULL when absent */
bool ct__map_put(ct_map *map, const void *key, void *value); /* false: out of memory */
void *ct__map_take(ct_map *map, const void *key);            /* removes it; NULL when absent */
void ct__map_free(ct_map *map);

#endif

/* The map of map.h. */
#include "core/map.h"

#include <stdint.h>
#include <string.h>

#include "core/alloc.h"

static size_t first_slot(const ct_map *map, const void *key) {
    return (size_t)(((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15ull >> 20) & (map->capacity - 1);
}

void **ct__map_find(const ct_map *map, const void *key) {
    if (!map->capacity) return NULL;
    for (size_t i = first_slot(map, key);; i = (i + 1) & (map->capacity - 1)) {
        if (map->entries[i].key == key) return &map->entries[i].value;
        if (!map->entries[i].key) return NULL;
    }
}

static bool grow(ct_map *map) {
    ct_map larger = {.capacity = map->capacity ? 2 * map->capacity : 64};
    larger.entries = ct__alloc(larger.capacity * sizeof *larger.entries);
    if (!larger.entries) return false;
    memset(larger.entries, 0, larger.capacity * sizeof *larger.entries);
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].key) ct__map_put(&larger, map->entries[i].key, map->entries[i].value);
    ct__map_free(map);
    *map = larger;
    return true;
}

bool ct__map_put(ct_map *map, const void *key, void *value) {
    if (2 * map->count >= map->capacity && !grow(map)) return false;
    size_t i = first_slot(map, key);
    while (map->entries[i].key && map->entries[i].key != key) i = (i + 1) & (map->capacity - 1);
    if (!map->entries[i].key) map->count++;
    map->entries[i].key = key;
    map->entries[i].value = value;
    return true;
}

void *ct__map_take(ct_map *map, const void *key) {
    void **found = ct__map_find(map, key);
    if (!found) return NULL;
    void *value = *found;
    size_t mask = map->capacity - 1,
           hole =
               (size_t)((struct ct_map_entry *)((char *)found - offsetof(struct ct_map_entry, value)) - map->entries);
    for (size_t i = (hole + 1) & mask; map->entries[i].key; i = (i + 1) & mask) {
        size_t wanted = first_slot(map, map->entries[i].key);
        if (((i - wanted) & mask) < ((i - hole) & mask)) continue; /* it is where it belongs, or after it */
        map->entries[hole] = map->entries[i];
        hole = i;
    }
    map->entries[hole].key = NULL;
    map->count--;
    return value;
}

void ct__map_free(ct_map *map) {
    ct__free(map->entries, map->capacity * sizeof *map->entries);
    *map = (ct_map){0};
}

/* A folder of pictures: a subfolder for each class. Only the names are read at first; a picture when it is wanted. */
#include "data/data.h"

#include <dirent.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

#include <cotangent/io.h>

typedef struct folder {
    char **paths;
    int64_t *labels;
    int64_t count, room;
    int64_t height, width; /* 0: as they are */
    int channels;
    int64_t max_pixels;
} folder;

static bool get(ct_dataset *self, int64_t index, ct_tensor **fields) {
    const folder *set = ct_dataset_data(self);
    fields[0] = ct_image_load(set->paths[index], set->channels, .height = set->height, .width = set->width,
                              .max_pixels = set->max_pixels);
    fields[1] = ct_from_data(&set->labels[index], CT_DIMS0, CT_I64);
    return fields[0] && fields[1];
}

static int64_t label(ct_dataset *self, int64_t index) { return ((const folder *)ct_dataset_data(self))->labels[index]; }

static void release(ct_dataset *self) {
    folder *set = ct_dataset_data(self);
    for (int64_t i = 0; i < set->count; i++) ct_free(set->paths[i]);
    ct_free(set->paths);
    ct_free(set->labels);
}

static const ct_dataset_class folder_class = {.size = sizeof(ct_dataset_class),
                                              .name = "folder",
                                              .state = sizeof(folder),
                                              .fields = 2,
                                              .get = get,
                                              .label = label,
                                              .release = release};

const char *ct_folder_file(const ct_dataset *dataset, int64_t index) {
    if (!dataset || dataset->type != &folder_class || index < 0 || index >= dataset->count) return NULL;
    return ((const folder *)ct_dataset_data(dataset))->paths[index];
}

/* ---- Finding the files ---- */

static bool is_picture(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

typedef struct name_list {
    char **names;
    int64_t n, room;
} name_list;

static void free_names(name_list *list) {
    for (int64_t i = 0; i < list->n; i++) ct_free(list->names[i]);
    ct_free(list->names);
    *list = (name_list){0};
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* What is in a folder, sorted by the bytes of the names; hidden files are left out. */
static bool list_folder(const char *path, bool folders, name_list *list) {
    DIR *dir = opendir(path);
    if (!dir) return ct_fail(CT_ERR_IO, "dataset_folder", "%s: cannot be opened as a folder", path);
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        char full[4096];
        struct stat info;
        if (snprintf(full, sizeof full, "%s/%s", path, entry->d_name) >= (int)sizeof full || stat(full, &info))
            continue;
        if (folders ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode) || !is_picture(entry->d_name)) continue;
        if (list->n == list->room) {
            const int64_t room = list->room ? 2 * list->room : 64;
            char **more = ct_realloc(list->names, (size_t)room * sizeof *more);
            ok = more || ct__no_memory("dataset_folder", (size_t)room * sizeof *more);
            if (!ok) break;
            list->names = more;
            list->room = room;
        }
        list->names[list->n] = ct__copy_text("dataset_folder", entry->d_name, strlen(entry->d_name));
        ok = list->names[list->n] != NULL;
        list->n += ok;
    }
    closedir(dir);
    if (ok && list->n) qsort(list->names, (size_t)list->n, sizeof *list->names, compare_names);
    return ok;
}

static bool add_files(folder *set, const char *path, int64_t class_number) {
    name_list files = {0};
    bool ok = list_folder(path, false, &files);
    if (ok && set->count + files.n > set->room) {
        const int64_t room = set->count + files.n + set->room;
        char **paths = ct_realloc(set->paths, (size_t)room * sizeof *paths);
        if (paths) set->paths = paths;
        int64_t *labels = ct_realloc(set->labels, (size_t)room * sizeof *labels);
        if (labels) set->labels = labels;
        ok = (paths && labels) || ct__no_memory("dataset_folder", (size_t)room * (sizeof *paths + sizeof *labels));
        if (ok) set->room = room;
    }
    for (int64_t i = 0; ok && i < files.n; i++) {
        const size_t length = strlen(path) + 1 + strlen(files.names[i]);
        char *full = ct__zeroed("dataset_folder", 1, length + 1);
        ok = full != NULL;
        if (!ok) break;
        snprintf(full, length + 1, "%s/%s", path, files.names[i]);
        set->paths[set->count] = full;
        set->labels[set->count++] = class_number;
    }
    free_names(&files);
    return ok;
}

static bool fill(ct_dataset *dataset, const char *path) {
    folder *set = ct_dataset_data(dataset);
    name_list classes = {0};
    bool ok = list_folder(path, true, &classes);
    for (int64_t c = 0; ok && c < classes.n; c++) {
        char full[4096];
        if (snprintf(full, sizeof full, "%s/%s", path, classes.names[c]) >= (int)sizeof full)
            ok = ct_fail(CT_ERR_IO, "dataset_folder", "%s: the path of a class is too long", path);
        else ok = add_files(set, full, c);
    }
    if (ok && set->count == 0)
        ok =
            ct_fail(CT_ERR_IO, "dataset_folder", "%s: has no PNG or JPEG files in %lld subfolders (one for each class)",
                    path, (long long)classes.n);
    dataset->count = set->count;
    ok = ok && ct_dataset_set_classes(dataset, classes.n, (const char *const *)classes.names);
    free_names(&classes);
    return ok;
}

ct_dataset *ct_dataset_folder_p(const char *path, const ct_folder_options *options) {
    TAKE_OPTIONS(ct_folder_options, o, options);
    if (!path) {
        ct__null("dataset_folder", "path");
        return NULL;
    }
    if (o.resize && !o.height && !o.width) o.height = o.width = o.resize;
    if (o.height < 0 || o.width < 0 || o.height > 1 << 16 || o.width > 1 << 16 || !o.height != !o.width) {
        ct_fail(CT_ERR_VALUE, "dataset_folder", "images resized to %lld x %lld; expected 1 to 65536 for both",
                (long long)o.height, (long long)o.width);
        return NULL;
    }
    if (o.max_pixels < 0) {
        ct_fail(CT_ERR_VALUE, "dataset_folder", "max_pixels = %lld is below 0", (long long)o.max_pixels);
        return NULL;
    }
    ct_dataset *dataset = ct_dataset_new(&folder_class, 0);
    if (!dataset) return NULL;
    folder *set = ct_dataset_data(dataset);
    set->height = o.height;
    set->width = o.width;
    set->max_pixels = o.max_pixels;
    set->channels = o.gray ? 1 : 3;
    if (fill(dataset, path)) return dataset;
    ct_dataset_free(dataset);
    return NULL;
}

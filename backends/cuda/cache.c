/* Where cached files lie, and how they are read and replaced. */
#include "backends/cuda/cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool ct_cache_path(const char *name, char *path, size_t room) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool set = cache && cache[0] == '/';
    if (!set && !(home && home[0] == '/')) return false;
    const int length = snprintf(path, room, "%s%s/cotangent/%s", set ? cache : home, set ? "" : "/.cache", name);
    return length > 0 && (size_t)length < room;
}

static void make_folders(const char *path) {
    char *part = strdup(path);
    if (!part) return;
    for (char *c = part + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(part, 0700); /* it may be there */
            *c = '/';
        }
    free(part);
}

bool ct_cache_replace(const char *path, bool (*write)(FILE *file, const void *context), const void *context) {
    make_folders(path);
    const size_t room = strlen(path) + 8;
    char *fresh = malloc(room);
    if (!fresh) return false;
    snprintf(fresh, room, "%s.XXXXXX", path);
    const int made = mkstemp(fresh);
    FILE *file = made < 0 ? NULL : fdopen(made, "w");
    if (made >= 0 && !file) close(made);
    bool ok = file && write(file, context) && fflush(file) == 0 && !ferror(file);
    if (file) ok = fclose(file) == 0 && ok;
    ok = ok && rename(fresh, path) == 0;
    if (!ok && made >= 0) unlink(fresh);
    free(fresh);
    return ok;
}

char *ct_cache_read(const char *path, size_t most, size_t *bytes) {
    struct stat about;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return NULL;
    char *text = NULL;
    *bytes = 0;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0 && (size_t)about.st_size <= most &&
        (text = malloc((size_t)about.st_size)))
        for (ssize_t got; *bytes < (size_t)about.st_size; *bytes += (size_t)got)
            if ((got = read(file, text + *bytes, (size_t)about.st_size - *bytes)) <= 0) break;
    close(file);
    return text;
}

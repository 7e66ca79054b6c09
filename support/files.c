/* Files that appear whole or not at all: temporary names, locks on them, syncing, renaming, and cleaning up. */
#include "support/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/text.h"

static bool failed(const ct__output *output, const char *what) {
    return ct_fail(CT_ERR_IO, output->op, "%s: %s: %s", output->path, what, strerror(errno));
}

/* The folder that path is in, for the caller to free; NULL without memory. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ct__text_copy(".", 1);
    return ct__text_copy(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Creates a name that no one else uses, and locks it. One that cleans up takes the same lock before it unlinks, and may
 * have come between: then the file has no name any more, and another is made. */
static int create_beside(const char *target, char *name, size_t capacity) {
    for (int attempt = 0; attempt < 1000; attempt++) {
        if ((size_t)snprintf(name, capacity, "%s" CT__TEMPORARY_MARK "%ld-%d", target, (long)getpid(), attempt) >=
            capacity) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return -1;
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
        } /* a file system without locks: nothing is cleaned there */
        struct stat status;
        if (fstat(fd, &status) == 0 && status.st_nlink > 0) return fd;
        close(fd);
    }
    errno = EEXIST;
    return -1;
}

/* Where a link to nothing points, through further ones; path itself when it is no link. NULL without memory. */
static char *follow(const char *path) {
    enum { MOST_LINKS = 40 };
    char *at = ct__text_copy(path, strlen(path)), text[PATH_MAX];
    for (int i = 0; at && i < MOST_LINKS; i++) {
        const ssize_t length = readlink(at, text, sizeof text - 1);
        if (length <= 0) break;
        text[length] = 0;
        char *folder = text[0] == '/' ? ct__text_copy("", 0) : folder_of(at);
        const size_t capacity = folder ? strlen(folder) + (size_t)length + 2 : 0;
        char *next = folder ? ct_malloc(capacity) : NULL;
        if (next) snprintf(next, capacity, "%s%s%s", folder, folder[0] ? "/" : "", text);
        ct_free(folder);
        ct_free(at);
        at = next;
    }
    return at;
}

/* What the file will be called: a link stays a link, and what it points to is replaced. NULL with an error. */
static char *find_target(ct__output *output, bool *stream) {
    struct stat status;
    char *target, found[PATH_MAX];
    *stream = false;
    if (stat(output->path, &status) != 0) {
        target = follow(output->path);
        if (!target) ct_fail(CT_ERR_MEMORY, output->op, "%s: out of memory", output->path);
        return target;
    }
    if (S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        failed(output, "cannot be written");
        return NULL;
    }
    *stream = !S_ISREG(status.st_mode);
    output->mode = status.st_mode & 0777;
    if (!realpath(output->path, found)) {
        failed(output, "cannot be written");
        return NULL;
    }
    target = ct__text_copy(found, strlen(found));
    if (!target) ct_fail(CT_ERR_MEMORY, output->op, "%s: out of memory", output->path);
    return target;
}

static void release(ct__output *output) {
    ct_free(output->folder);
    ct_free(output->target);
    ct_free(output->temporary);
    *output = (ct__output){.fd = -1};
}

bool ct__output_open(ct__output *output, const char *path, bool clean, const char *op) {
    *output = (ct__output){.op = op, .path = path, .fd = -1};
    bool stream;
    output->target = find_target(output, &stream);
    if (!output->target) return false;
    if (stream) {
        output->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (output->fd < 0) failed(output, "cannot be opened");
    } else {
        const size_t capacity = strlen(output->target) + 48;
        output->temporary = ct_malloc(capacity);
        output->folder =
            folder_of(output->target); /* now: once the file has its name, nothing may fail for want of memory */
        if (!output->temporary || !output->folder) {
            ct_fail(CT_ERR_MEMORY, op, "%s: out of memory", path);
        } else {
            const char *slash = strrchr(output->target, '/');
            if (clean) ct__output_clean(output->folder, slash ? slash + 1 : output->target);
            output->fd = create_beside(output->target, output->temporary, capacity);
            if (output->fd < 0) failed(output, "cannot be created");
            /* what was private stays so; where permissions cannot be set there are none to keep */
            else if (output->mode && fchmod(output->fd, output->mode) != 0) errno = 0;
        }
    }
    if (output->fd >= 0) return true;
    release(output);
    return false;
}

bool ct__output_write(ct__output *output, const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        const ssize_t put = write(output->fd, at, size > (1u << 30) ? 1u << 30 : size);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return failed(output, "cannot be written");
        at += put;
        size -= (size_t)put;
    }
    return true;
}

bool ct__output_patch(ct__output *output, const void *data, size_t size, int64_t at) {
    const char *from = data;
    while (size > 0) {
        const ssize_t put = pwrite(output->fd, from, size, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return failed(output, "cannot be written");
        from += put;
        at += put;
        size -= (size_t)put;
    }
    return true;
}

/* A rename is on the disk only when its folder is. Some file systems cannot sync a folder and say so: they have no
 * better promise to give. */
static bool sync_folder(const char *folder) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES; /* a folder that may be written but not read */
    const bool done = fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    close(fd);
    return done;
}

bool ct__output_sync_folder_of(const char *path) {
    char *folder = folder_of(path);
    if (!folder) errno = ENOMEM;
    const bool done = folder && sync_folder(folder);
    ct_free(folder);
    return done;
}

bool ct__output_close(ct__output *output, bool good) {
    if (output->fd < 0) return false;
    const bool regular = output->temporary != NULL;
    if (good && regular && fsync(output->fd) != 0) good = failed(output, "cannot be synced");
    /* The name is given while the lock is held: after the close the file would look abandoned. */
    if (good && regular && rename(output->temporary, output->target) != 0) good = failed(output, "cannot be renamed");
    if (!good && regular) unlink(output->temporary);
    if (close(output->fd) != 0 && good && !regular) good = failed(output, "cannot be written");
    if (good && regular && !sync_folder(output->folder)) good = failed(output, "its folder cannot be synced");
    release(output);
    return good;
}

/* The part of a name after the mark is two numbers with a dash between them, as create_beside writes it. */
static bool is_temporary(const char *name, const char *of) {
    const char *mark = NULL;
    for (const char *at = strstr(name, CT__TEMPORARY_MARK); at; at = strstr(at + 1, CT__TEMPORARY_MARK)) mark = at;
    if (!mark || mark == name) return false;
    if (of && (strlen(of) != (size_t)(mark - name) || memcmp(name, of, (size_t)(mark - name)) != 0)) return false;
    const char *at = mark + strlen(CT__TEMPORARY_MARK);
    const size_t process = strspn(at, "0123456789");
    if (process == 0 || at[process] != '-') return false;
    at += process + 1;
    const size_t number = strspn(at, "0123456789");
    return number > 0 && at[number] == 0;
}

void ct__output_clean(const char *folder, const char *name) {
    const int before = errno;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!is_temporary(entry->d_name, name)) continue;
        const int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        struct stat status, named;
        /* The name has to be still that of the file that was locked: its writer may have renamed it meanwhile, and begun
         * another of the same name. */
        if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
            fstatat(dirfd(dir), entry->d_name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == status.st_ino &&
            named.st_dev == status.st_dev)
            unlinkat(dirfd(dir), entry->d_name, 0);
        close(fd);
    }
    if (dir) closedir(dir);
    errno = before;
}

char *ct__file_in(const char *folder, const char *name, const char *ending, const char *op) {
    bool made = false;
    if (!folder || !name) {
        ct_fail(CT_ERR_NULL, op, "argument %s is NULL", folder ? "name" : "folder");
    } else if (!name[0] || strchr(name, '/')) {
        ct_fail(CT_ERR_VALUE, op, "\"%s\" is no name of a file", name);
    } else if (!(made = mkdir(folder, 0777) == 0) && errno != EEXIST) {
        ct_fail(CT_ERR_IO, op, "%s: cannot be made: %s", folder, strerror(errno));
    } else if (made &&
               !ct__output_sync_folder_of(folder)) { /* a power cut could take the folder with all that is in it */
        ct_fail(errno == ENOMEM ? CT_ERR_MEMORY : CT_ERR_IO, op, "%s: the folder it is in cannot be synced: %s", folder,
                strerror(errno));
    } else {
        const size_t capacity = strlen(folder) + strlen(name) + strlen(ending) + 2;
        char *path = ct_malloc(capacity);
        if (!path) ct_fail(CT_ERR_MEMORY, op, "out of memory");
        else snprintf(path, capacity, "%s/%s%s", folder, name, ending);
        return path;
    }
    return NULL;
}

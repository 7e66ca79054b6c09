/* Writing a file so that it appears whole or not at all, and is on the disk when it has been written: the bytes go to a
 * temporary file beside it, which is synced and renamed, and then the folder is synced. */
#ifndef COTANGENT_SUPPORT_FILES_H
#define COTANGENT_SUPPORT_FILES_H

#include <cotangent.h>
#include <sys/types.h>

/* A file being written: under a temporary name in the same folder until ct__output_close renames it. What is no regular
 * file (a pipe, a device) gets the bytes as they come. */
typedef struct ct__output {
    const char *op;                    /* raises the errors */
    const char *path;                  /* as the caller gave it, for error texts */
    char *target, *temporary, *folder; /* folder: that they are in */
    int fd;
    mode_t mode; /* the permissions of the file that is replaced; 0 when there is none */
} ct__output;

/* What a temporary file is called: the name it will get, this, the process, a number. A writer holds a lock on it, so one
 * without a lock has been left by a process that is gone. */
#define CT__TEMPORARY_MARK ".tmp-"

/* clean: first remove what killed writers of this file have left. That reads the whole folder, which is right for a
 * checkpoint and too much for each of a thousand images. */
bool ct__output_open(ct__output *output, const char *path, bool clean, const char *op);
bool ct__output_write(ct__output *output, const void *data, size_t size);
bool ct__output_patch(ct__output *output, const void *data, size_t size, int64_t at); /* over what was written */
/* Gives the file its name when `good`, throws it away when not; always releases. False, with an error, when it failed. */
bool ct__output_close(ct__output *output, bool good);

/* Removes what killed writers of FOLDER/NAME have left or, with name NULL, those of any file in the folder. */
void ct__output_clean(const char *folder, const char *name);

/* FOLDER/NAME and the ending, for the caller to free, and the folder where it is missing (its parent is not made). NULL with an error. */
char *ct__file_in(const char *folder, const char *name, const char *ending, const char *op);

/* Syncs the folder that path is in, so that a name that was made in it is on the disk. False, with errno, when it failed. */
bool ct__output_sync_folder_of(const char *path);

#endif

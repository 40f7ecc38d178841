/*
 * The common part of all substitute libraries. Their answers are in a text file
 * for the host, $VARIABLE/HOST.conf, which is read at every call. Without a
 * file, or without a line for a query, the answer is that of healthy hardware. A
 * line of the file consists of a word and its value; the last such line counts:
 *
 *     gpus 8                        for the node; each library defines its words
 *     return nvmlDeviceGetName 15   return value of a function
 *     hang nvmlDeviceGetCount       the function never returns
 *     crash nvmlDeviceGetCount      the function crashes the process
 *     slow nvmlDeviceGetCount 45    the function takes that many seconds
 *     gpu 3 remap_failed 1          for one GPU
 *     gpu * fabric_state 2          for each GPU
 *     gpu 3 return nvmlDeviceGetName 15
 *
 * Names of functions are written without a suffix such as _v2.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS 16
#define LINE 256
#define WHOLE (-1) /* stands for the node instead of a GPU */

/* Opens the file of this host. Returns NULL if there is none. */
static FILE *answers(void) {
    const char *dir = getenv(VARIABLE);
    char host[64] = "", path[4096];
    if (!dir || gethostname(host, sizeof host - 1))
        return NULL;
    host[strcspn(host, ".")] = 0;
    snprintf(path, sizeof path, "%s/%s.conf", dir, host);
    return fopen(path, "re");
}

/* Returns the rest of a line that begins with the words, otherwise NULL. */
static char *after(char *line, const char *words) {
    size_t n = strlen(words);
    if (strncmp(line, words, n) || !strchr(" \n", line[n]))
        return NULL;
    line += n + strspn(line + n, " ");
    line[strcspn(line, "\n")] = 0;
    return line;
}

/* Returns the part of a line that applies to this GPU, or to the node, or NULL. */
static char *about(char *line, int gpu) {
    char *end, *rest;
    if (gpu == WHOLE)
        return line;
    if (!(rest = after(line, "gpu")))
        return NULL;
    if (*rest == '*')
        end = rest + 1;
    else if (strtol(rest, &end, 10) != gpu || end == rest)
        return NULL;
    return end + strspn(end, " ");
}

static int told(int gpu, const char *words, char value[LINE]) {
    char line[LINE], *rest;
    int found = 0;
    FILE *file = answers();
    while (file && fgets(line, sizeof line, file)) {
        if ((rest = about(line, gpu)) && (rest = after(strcat(rest, "\n"), words))) {
            strcpy(value, rest);
            found = 1;
        }
    }
    if (file)
        fclose(file);
    return found;
}

static unsigned long long number(int gpu, const char *word, unsigned long long otherwise) {
    char value[LINE];
    return told(gpu, word, value) ? strtoull(value, NULL, 0) : otherwise;
}

/* Reports whether any line contains the text. This is fast for the many
 * thousand calls for which there is no line. */
static int mentioned(const char *what) {
    char line[LINE];
    int found = 0;
    FILE *file = answers();
    while (file && !found && fgets(line, sizeof line, file))
        found = strstr(line, what) != NULL;
    if (file)
        fclose(file);
    return found;
}

/* Applies crash, hang and slow to a call. Returns its return value if set, otherwise 0. */
static int enter(const char *function, int gpu) {
    char words[LINE], value[LINE];
    int name = (int)strlen(function);
    if (name > 3 && !strncmp(function + name - 3, "_v", 2))
        name -= 3;
    snprintf(words, sizeof words, "%.*s", name, function);
    if (!mentioned(words))
        return 0;
    snprintf(words, sizeof words, "crash %.*s", name, function);
    if (told(WHOLE, words, value) || (gpu != WHOLE && told(gpu, words, value)))
        raise(SIGSEGV);
    snprintf(words, sizeof words, "hang %.*s", name, function);
    while (told(WHOLE, words, value) || (gpu != WHOLE && told(gpu, words, value)))
        sleep(3600);
    snprintf(words, sizeof words, "slow %.*s", name, function);
    sleep((unsigned)(number(WHOLE, words, 0) ?: gpu == WHOLE ? 0 : number(gpu, words, 0)));
    snprintf(words, sizeof words, "return %.*s", name, function);
    return (int)(number(WHOLE, words, 0) ?: gpu == WHOLE ? 0 : number(gpu, words, 0));
}

#define ENTER(gpu)                                                                                                     \
    do {                                                                                                               \
        int entered = enter(__func__, gpu);                                                                            \
        if (entered)                                                                                                   \
            return entered;                                                                                            \
    } while (0)

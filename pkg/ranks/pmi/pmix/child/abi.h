/* The part of PMIx's binary interface (pmix_common.h, pmix_server.h) that is the same in
 * versions 3 to 6. With these definitions, no header of a libpmix is needed to build, and one
 * build works with any of these versions. The sizes were verified with 3.2.5, 4.2.2, 5.0 and
 * 6.1. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { LONGEST_NSPACE = 255, LONGEST_KEY = 511 };

typedef int pmix_status;
typedef struct { char nspace[LONGEST_NSPACE + 1]; uint32_t rank; } pmix_proc;
typedef struct { char *bytes; size_t size; } pmix_bytes;
typedef struct pmix_array pmix_array;

typedef struct {
	uint16_t type;
	union {
		bool flag;
		uint8_t byte;
		char *string;
		size_t size;
		int integer;
		uint16_t uint16;
		uint32_t uint32;
		uint64_t uint64;
		pmix_proc *proc;
		pmix_bytes bytes;
		pmix_array *array;
		char room[24];
	} data;
} pmix_value;

typedef struct { char key[LONGEST_KEY + 1]; uint32_t flags; pmix_value value; } pmix_info;
struct pmix_array { uint16_t type; size_t size; void *array; };
typedef struct { char *cmd; char **argv, **env; char *cwd; int maxprocs; pmix_info *info; size_t ninfo; } pmix_app;
typedef struct { pmix_proc proc; char key[LONGEST_KEY + 1]; pmix_value value; } pmix_pdata;
typedef struct { char *base, *pack, *unpack; size_t allocated, used; } pmix_buffer;
typedef struct { char **keys; pmix_info *qualifiers; size_t nqual; } pmix_query;

_Static_assert(sizeof(pmix_proc) == 260 && sizeof(pmix_value) == 32 && sizeof(pmix_info) == 552, "PMIx's layout");
_Static_assert(sizeof(pmix_app) == 56 && sizeof(pmix_pdata) == 808 && sizeof(pmix_query) == 24, "PMIx's layout");

/* Types of values, by PMIx's numbers. */
enum {
	T_BOOL = 1, T_BYTE = 2, T_STRING = 3, T_SIZE = 4, T_INT = 6, T_INT32 = 9, T_UINT = 11, T_UINT16 = 13, T_UINT32 = 14, T_UINT64 = 15,
	T_STATUS = 20, T_VALUE = 21, T_PROC = 22, T_INFO = 24, T_BYTES = 27, T_PERSISTENCE = 30, T_SCOPE = 32, T_RANGE = 33,
	T_ARRAY = 39, T_RANK = 40, T_REGEX = 49,
};

enum { SUCCESS = 0, FAILED = -1, TOO_MUCH = -29, NOT_SUPPORTED = -47, OPERATION_SUCCEEDED = -157 };

enum { GROUP_ENDS = 1 };
enum { REQUIRED = 1 }; /* a flag of an attribute: the operation must fail if the key is not supported */

typedef void (*op_done)(pmix_status, void *);
typedef void (*release)(void *);
typedef void (*modex_done)(pmix_status, const char *, size_t, void *, release, void *);
typedef void (*lookup_done)(pmix_status, pmix_pdata *, size_t, void *);
typedef void (*spawn_done)(pmix_status, char *, void *);
typedef void (*info_done)(pmix_status, pmix_info *, size_t, void *, release, void *);
typedef void (*dmodex_done)(pmix_status, char *, size_t, void *);

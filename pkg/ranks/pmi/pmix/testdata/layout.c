/* Compares child/abi.h with the headers of a version of PMIx: it compiles only if both define the
 * same binary interface. */
#include "../child/abi.h"
#include "../child/child.h"

#include <pmix_server.h>

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours " is " #theirs)
#define PLACE(ours, field, theirs, their_field) \
	SAME(offsetof(ours, field), offsetof(theirs, their_field)); \
	SAME(sizeof(((ours *)0)->field), sizeof(((theirs *)0)->their_field))

SAME(sizeof(pmix_proc), sizeof(pmix_proc_t));
PLACE(pmix_proc, nspace, pmix_proc_t, nspace);
PLACE(pmix_proc, rank, pmix_proc_t, rank);
SAME(sizeof(pmix_value), sizeof(pmix_value_t));
PLACE(pmix_value, type, pmix_value_t, type);
PLACE(pmix_value, data, pmix_value_t, data);
PLACE(pmix_value, data.bytes, pmix_value_t, data.bo);
SAME(sizeof(pmix_info), sizeof(pmix_info_t));
PLACE(pmix_info, key, pmix_info_t, key);
PLACE(pmix_info, flags, pmix_info_t, flags);
PLACE(pmix_info, value, pmix_info_t, value);
SAME(sizeof(struct pmix_array), sizeof(pmix_data_array_t));
PLACE(struct pmix_array, size, pmix_data_array_t, size);
PLACE(struct pmix_array, array, pmix_data_array_t, array);
SAME(sizeof(pmix_app), sizeof(pmix_app_t));
PLACE(pmix_app, env, pmix_app_t, env);
PLACE(pmix_app, cwd, pmix_app_t, cwd);
PLACE(pmix_app, maxprocs, pmix_app_t, maxprocs);
PLACE(pmix_app, info, pmix_app_t, info);
PLACE(pmix_app, ninfo, pmix_app_t, ninfo);
SAME(sizeof(pmix_pdata), sizeof(pmix_pdata_t));
PLACE(pmix_pdata, key, pmix_pdata_t, key);
PLACE(pmix_pdata, value, pmix_pdata_t, value);
SAME(sizeof(pmix_buffer), sizeof(pmix_data_buffer_t));
PLACE(pmix_buffer, pack, pmix_data_buffer_t, pack_ptr);
PLACE(pmix_buffer, unpack, pmix_data_buffer_t, unpack_ptr);
PLACE(pmix_buffer, used, pmix_data_buffer_t, bytes_used);
SAME(sizeof(pmix_query), sizeof(pmix_query_t));
PLACE(pmix_query, qualifiers, pmix_query_t, qualifiers);
PLACE(pmix_query, nqual, pmix_query_t, nqual);

SAME(T_BOOL, PMIX_BOOL); SAME(T_BYTE, PMIX_BYTE); SAME(T_STRING, PMIX_STRING); SAME(T_SIZE, PMIX_SIZE); SAME(T_INT, PMIX_INT);
SAME(T_INT32, PMIX_INT32); SAME(T_UINT, PMIX_UINT); SAME(T_UINT16, PMIX_UINT16); SAME(T_UINT32, PMIX_UINT32); SAME(T_UINT64, PMIX_UINT64);
SAME(T_STATUS, PMIX_STATUS); SAME(T_VALUE, PMIX_VALUE); SAME(T_PROC, PMIX_PROC); SAME(T_INFO, PMIX_INFO); SAME(T_BYTES, PMIX_BYTE_OBJECT);
SAME(T_PERSISTENCE, PMIX_PERSIST); SAME(T_SCOPE, PMIX_SCOPE); SAME(T_RANGE, PMIX_DATA_RANGE); SAME(T_ARRAY, PMIX_DATA_ARRAY);
SAME(T_RANK, PMIX_PROC_RANK); SAME(T_REGEX, PMIX_REGEX);

SAME(LONGEST_NSPACE, PMIX_MAX_NSLEN); SAME(LONGEST_KEY, PMIX_MAX_KEYLEN); SAME(REQUIRED, PMIX_INFO_REQD);
SAME(SUCCESS, PMIX_SUCCESS); SAME(FAILED, PMIX_ERROR); SAME(TOO_MUCH, PMIX_ERR_OUT_OF_RESOURCE); SAME(NOT_SUPPORTED, PMIX_ERR_NOT_SUPPORTED);
SAME(OPERATION_SUCCEEDED, PMIX_OPERATION_SUCCEEDED);

/* The entries of the module that child.c sets. */
#define SLOT(number, field) SAME((number) * sizeof(void *), offsetof(pmix_server_module_t, field))
SLOT(0, client_connected); SLOT(1, client_finalized); SLOT(2, abort); SLOT(3, fence_nb); SLOT(4, direct_modex); SLOT(5, publish);
SLOT(6, lookup); SLOT(7, unpublish); SLOT(8, spawn); SLOT(9, connect); SLOT(10, disconnect); SLOT(11, register_events);
SLOT(12, deregister_events); SLOT(14, notify_event); SLOT(15, query); SLOT(17, log); SLOT(27, client_connected2);
_Static_assert(sizeof(pmix_server_module_t) <= 64 * sizeof(void *), "the module fits");

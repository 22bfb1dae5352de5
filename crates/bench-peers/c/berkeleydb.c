/*
 * Berkeley DB, transactional: a B-tree in a file for each table, and a log.
 *
 * Variants: 0 locks pages in two phases, readers too; 1 keeps old versions of pages, and its transactions read the state
 * in which they began (`DB_MULTIVERSION`, `DB_TXN_SNAPSHOT`).
 */
#define _GNU_SOURCE
#include "peer.h"

#include <db.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME_BYTES 128
/* A transaction that reads a whole table locks all its pages. Memory for locks is allocated as they are taken. */
#define LOCKS_MAX 20000000
#define LOCK_BUCKETS 131071
#define TRANSACTIONS_MAX 10000
#define LOG_BUFFER_BYTES (4u << 20)
#define LOG_FILE_BYTES (64u << 20)
/* A checkpoint after so much log, or so much time. */
#define CHECKPOINT_LOG_KIB (64u << 10)
#define CHECKPOINT_MINUTES 1
/* How often the checkpointer checks that. */
#define CHECKPOINT_POLL_SECONDS 1
/* What it takes at least. */
#define CACHE_BYTES_MIN (UINT64_C(1) << 20)
#define PAGE_BYTES 4096
#define ADDED_TO_BELOW_BYTES UINT64_C(500000000)
#define GIB (UINT64_C(1) << 30)

struct peer_store {
    DB_ENV *env;
    int has_versions;
    size_t table_count;
    DB **tables;
    /* The thread that makes checkpoints, and the state that asks it to end. */
    pthread_t checkpointer;
    int has_checkpointer;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_closing;
    /* The error of the first failed checkpoint. */
    int checkpoint_error;
};

struct peer_session {
    struct peer_store *store;
    DB_TXN *txn;
    /* Memory of the library's allocator that results are put into, used again by each call. */
    DBT key;
    DBT value;
};

static enum peer_code code_of(int error, const char *what)
{
    switch (error) {
    case 0:
        return PEER_OK;
    case DB_NOTFOUND:
        return PEER_NOT_FOUND;
    case DB_LOCK_DEADLOCK:
    case DB_LOCK_NOTGRANTED:
        return PEER_CONFLICT;
    default:
        return peer_fail("%s: %s", what, db_strerror(error));
    }
}

/*
 * A mend of libdb 5.3, which otherwise crashes `bdb-mvcc`. When a snapshot is to write to the root of a tree that
 * another transaction has changed meanwhile, `__bam_get_root` overlooks that `__memp_dirty` failed: it gives back the
 * page that it did not get, and continues with it. So its call to give back no page leaves `__bam_get_root` with the
 * result that it should have had: a conflict. Its locks belong to the transaction, which has to be undone.
 *
 * The library calls both functions through its table of symbols, where those of the executable come first.
 */
typedef int get_root(void *cursor, u_int32_t page, int level, u_int32_t flags, int *stack);
typedef int put_page(void *file, void *thread, void *page, int priority);
static get_root *library_get_root;
static put_page *library_put_page;
static _Thread_local jmp_buf out_of_get_root;
static _Thread_local int is_in_get_root;

int __bam_get_root(void *cursor, u_int32_t page, int level, u_int32_t flags, int *stack);
int __memp_fput(void *file, void *thread, void *page, int priority);

int __bam_get_root(void *cursor, u_int32_t page, int level, u_int32_t flags, int *stack)
{
    if (_setjmp(out_of_get_root) != 0) {
        is_in_get_root = 0;
        return DB_LOCK_DEADLOCK;
    }
    is_in_get_root = 1;
    int error = library_get_root(cursor, page, level, flags, stack);
    is_in_get_root = 0;
    return error;
}

int __memp_fput(void *file, void *thread, void *page, int priority)
{
    if (page == NULL && is_in_get_root)
        longjmp(out_of_get_root, 1);
    return library_put_page(file, thread, page, priority);
}

static void find_mended(void)
{
    *(void **)&library_get_root = dlsym(RTLD_NEXT, "__bam_get_root");
    *(void **)&library_put_page = dlsym(RTLD_NEXT, "__memp_fput");
}

static const char *version(void)
{
    return db_version(NULL, NULL, NULL);
}

/* The size to request: the library adds a quarter to caches below 500 MB. */
static uint64_t cache_bytes_of(const struct peer_opening *opening)
{
    uint64_t bytes = opening->cache_bytes < CACHE_BYTES_MIN ? CACHE_BYTES_MIN : opening->cache_bytes;
    return bytes < ADDED_TO_BELOW_BYTES ? bytes / 5 * 4 : bytes;
}

/* The regions are in the heap of the process (`DB_PRIVATE`): in files they would be written to the disk, too. */
static int open_env(struct peer_store *store, const struct peer_opening *opening)
{
    uint64_t cache_bytes = cache_bytes_of(opening);
    int error = db_env_create(&store->env, 0);
    if (error != 0)
        return error;
    DB_ENV *env = store->env;
    env->set_cachesize(env, (u_int32_t)(cache_bytes / GIB), (u_int32_t)(cache_bytes % GIB), 1);
    env->set_lk_max_locks(env, LOCKS_MAX);
    env->set_lk_max_lockers(env, TRANSACTIONS_MAX);
    env->set_lk_max_objects(env, LOCKS_MAX);
    env->set_lk_tablesize(env, LOCK_BUCKETS);
    /* The oldest transaction is never the victim, so one always makes progress. */
    env->set_lk_detect(env, DB_LOCK_YOUNGEST);
    env->set_tx_max(env, TRANSACTIONS_MAX);
    env->set_lg_bsize(env, LOG_BUFFER_BYTES);
    env->set_lg_max(env, LOG_FILE_BYTES);
    env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1);
    /* Filled with zeros beforehand, a synced log file need not have its metadata written each time. */
    env->log_set_config(env, DB_LOG_ZERO, 1);
    if (opening->durability != PEER_SYNCED)
        env->set_flags(env, opening->durability == PEER_WRITTEN ? DB_TXN_WRITE_NOSYNC : DB_TXN_NOSYNC, 1);
    return env->open(env, opening->dir,
                     DB_CREATE | DB_INIT_TXN | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_MPOOL | DB_RECOVER | DB_THREAD |
                         DB_PRIVATE,
                     0);
}

static int open_table(struct peer_store *store, DB **opened, const char *name)
{
    char file[NAME_BYTES];
    u_int32_t flags = DB_CREATE | DB_AUTO_COMMIT | DB_THREAD | (store->has_versions ? DB_MULTIVERSION : 0);
    int error = db_create(opened, store->env, 0);
    if (error != 0)
        return error;
    DB *db = *opened;
    db->set_pagesize(db, PAGE_BYTES);
    snprintf(file, sizeof file, "%s.db", name);
    return db->open(db, NULL, file, NULL, DB_BTREE, flags, 0);
}

static int open_tables(struct peer_store *store, const struct peer_opening *opening)
{
    int error = 0;
    for (size_t table = 0; table < store->table_count && error == 0; table++)
        error = open_table(store, &store->tables[table], opening->tables[table]);
    return error;
}

static struct timespec next_poll(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += CHECKPOINT_POLL_SECONDS;
    return at;
}

static void *make_checkpoints(void *argument)
{
    struct peer_store *store = argument;
    pthread_mutex_lock(&store->lock);
    while (!store->is_closing && store->checkpoint_error == 0) {
        struct timespec at = next_poll();
        if (pthread_cond_timedwait(&store->changed, &store->lock, &at) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&store->lock);
        int error = store->env->txn_checkpoint(store->env, CHECKPOINT_LOG_KIB, CHECKPOINT_MINUTES, 0);
        pthread_mutex_lock(&store->lock);
        store->checkpoint_error = error;
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

static void stop_checkpoints(struct peer_store *store)
{
    if (!store->has_checkpointer)
        return;
    pthread_mutex_lock(&store->lock);
    store->is_closing = 1;
    pthread_cond_signal(&store->changed);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->checkpointer, NULL);
    store->has_checkpointer = 0;
}

/* Closes what is open, frees the store, and returns the first error. */
static int close_all(struct peer_store *store)
{
    int first = store->checkpoint_error;
    for (size_t table = 0; table < store->table_count; table++) {
        DB *db = store->tables[table];
        int error = db == NULL ? 0 : db->close(db, 0);
        first = first != 0 ? first : error;
    }
    if (store->env != NULL) {
        int error = store->env->close(store->env, 0);
        first = first != 0 ? first : error;
    }
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->lock);
    free(store->tables);
    free(store);
    return first;
}

static enum peer_code open_store(const struct peer_opening *opening, struct peer_store **opened)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_mended);
    if (library_get_root == NULL || library_put_page == NULL)
        return peer_fail("opening the database: libdb lacks what is mended: link the shared library of 5.3");
    struct peer_store *store = calloc(1, sizeof *store);
    store->has_versions = opening->variant == 1;
    store->table_count = opening->table_count;
    store->tables = calloc(opening->table_count, sizeof *store->tables);
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->changed, NULL);
    int error = open_env(store, opening);
    if (error == 0)
        error = open_tables(store, opening);
    if (error == 0)
        error = pthread_create(&store->checkpointer, NULL, make_checkpoints, store);
    if (error != 0)
        close_all(store);
    else {
        store->has_checkpointer = 1;
        *opened = store;
    }
    return code_of(error, "opening the database");
}

static enum peer_code settle(struct peer_store *store)
{
    return code_of(store->env->log_flush(store->env, NULL), "flushing the log");
}

static enum peer_code close_store(struct peer_store *store)
{
    stop_checkpoints(store);
    int checkpoint = store->env->txn_checkpoint(store->env, 0, 0, DB_FORCE);
    int error = close_all(store);
    return code_of(checkpoint != 0 ? checkpoint : error, "closing the database");
}

static enum peer_code open_session(struct peer_store *store, struct peer_session **opened)
{
    struct peer_session *session = calloc(1, sizeof *session);
    session->store = store;
    session->key.flags = DB_DBT_REALLOC;
    session->value.flags = DB_DBT_REALLOC;
    *opened = session;
    return PEER_OK;
}

static void rollback(struct peer_session *session)
{
    if (session->txn != NULL)
        session->txn->abort(session->txn);
    session->txn = NULL;
}

static void end_session(struct peer_session *session)
{
    rollback(session);
    free(session->key.data);
    free(session->value.data);
    free(session);
}

static enum peer_code begin(struct peer_session *session, int write)
{
    (void)write;
    DB_ENV *env = session->store->env;
    u_int32_t flags = session->store->has_versions ? DB_TXN_SNAPSHOT : 0;
    return code_of(env->txn_begin(env, NULL, &session->txn, flags), "beginning a transaction");
}

static enum peer_code commit(struct peer_session *session)
{
    DB_TXN *txn = session->txn;
    session->txn = NULL;
    return code_of(txn->commit(txn, 0), "committing");
}

static DBT dbt_of(struct peer_bytes bytes)
{
    return (DBT){.data = (void *)bytes.data, .size = (u_int32_t)bytes.size};
}

static struct peer_bytes bytes_of(const DBT *dbt)
{
    return (struct peer_bytes){.data = dbt->data, .size = dbt->size};
}

static enum peer_code get(struct peer_session *session, size_t table, struct peer_bytes key, int for_update,
                          struct peer_bytes *value)
{
    DB *db = session->store->tables[table];
    DBT dbt = dbt_of(key);
    u_int32_t flags = for_update && session->txn != NULL ? DB_RMW : 0;
    int error = db->get(db, session->txn, &dbt, &session->value, flags);
    *value = bytes_of(&session->value);
    return code_of(error, "reading");
}

static enum peer_code put(struct peer_session *session, size_t table, struct peer_bytes key, struct peer_bytes value)
{
    DB *db = session->store->tables[table];
    DBT key_dbt = dbt_of(key);
    DBT value_dbt = dbt_of(value);
    return code_of(db->put(db, session->txn, &key_dbt, &value_dbt, 0), "writing");
}

static enum peer_code remove_key(struct peer_session *session, size_t table, struct peer_bytes key)
{
    DB *db = session->store->tables[table];
    DBT dbt = dbt_of(key);
    enum peer_code code = code_of(db->del(db, session->txn, &dbt, 0), "deleting");
    return code == PEER_NOT_FOUND ? PEER_OK : code;
}

static int move_cursor(DBC *cursor, struct peer_session *session, u_int32_t how)
{
    return cursor->get(cursor, &session->key, &session->value, how);
}

/* Puts a key where the cursor takes it from, and may put the one that it finds. */
static int set_key(struct peer_session *session, struct peer_bytes key)
{
    void *copy = realloc(session->key.data, key.size + 1);
    if (copy == NULL)
        return ENOMEM;
    if (key.size > 0)
        memcpy(copy, key.data, key.size);
    session->key.data = copy;
    session->key.size = (u_int32_t)key.size;
    return 0;
}

static int position(DBC *cursor, struct peer_session *session, const struct peer_bytes *from, int reverse,
                    u_int32_t lock)
{
    if (from == NULL)
        return move_cursor(cursor, session, lock | (reverse ? DB_LAST : DB_FIRST));
    int error = set_key(session, *from);
    if (error != 0)
        return error;
    error = move_cursor(cursor, session, lock | DB_SET_RANGE);
    if (!reverse)
        return error;
    if (error == DB_NOTFOUND)
        return move_cursor(cursor, session, lock | DB_LAST);
    if (error == 0 && peer_compare(bytes_of(&session->key), *from) > 0)
        return move_cursor(cursor, session, lock | DB_PREV);
    return error;
}

static enum peer_code scan(struct peer_session *session, size_t table, const struct peer_bytes *from, int reverse,
                           int for_update, peer_visit visit, void *state)
{
    DB *db = session->store->tables[table];
    DBC *cursor;
    u_int32_t lock = for_update ? DB_RMW : 0;
    int error = db->cursor(db, session->txn, &cursor, 0);
    if (error != 0)
        return code_of(error, "opening a cursor");
    error = position(cursor, session, from, reverse, lock);
    while (error == 0 && visit(state, bytes_of(&session->key), bytes_of(&session->value)))
        error = move_cursor(cursor, session, lock | (reverse ? DB_PREV : DB_NEXT));
    int closed = cursor->close(cursor);
    if (error == 0 || error == DB_NOTFOUND)
        error = closed;
    return code_of(error, "scanning");
}

const struct peer_library peer_berkeleydb = {
    .version = version,
    .open = open_store,
    .settle = settle,
    .close = close_store,
    .session = open_session,
    .end_session = end_session,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .get = get,
    .put = put,
    .remove = remove_key,
    .scan = scan,
};

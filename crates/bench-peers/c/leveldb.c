/*
 * LevelDB: one LSM tree, and a log. It has no tables: a byte before each key is the number of its table.
 *
 * It has one variant, 0, with batches of writes, and snapshots for reads.
 */
#include "peer.h"

#include <errno.h>
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOOM_BITS 10
#define TABLES_MAX 255
/* A memtable takes this share of the memory, and so much at most; there are two at a time. */
#define MEMTABLE_SHARE 8
#define MEMTABLE_BYTES_MAX (UINT64_C(64) << 20)
/* The least memory to plan with. */
#define MEMORY_BYTES_MIN (UINT64_C(2) << 20)

struct peer_store {
    leveldb_t *db;
    leveldb_options_t *options;
    leveldb_cache_t *cache;
    leveldb_filterpolicy_t *filter;
    leveldb_writeoptions_t *write_options;
};

struct peer_session {
    struct peer_store *store;
    /* Read at the snapshot, if there is one. */
    leveldb_readoptions_t *read_options;
    const leveldb_snapshot_t *snapshot;
    leveldb_writebatch_t *batch;
    /* A key with its table. */
    char *key;
    size_t key_room;
    /* The value that was read last. */
    char *value;
};

/* Takes ownership of the message. */
static enum peer_code code_of(char *error, const char *what)
{
    if (error == NULL)
        return PEER_OK;
    peer_fail("%s: %s", what, error);
    leveldb_free(error);
    return PEER_ERROR;
}

static const char *version(void)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "LevelDB %d.%d", leveldb_major_version(), leveldb_minor_version());
    return text;
}

static void set_options(struct peer_store *store, const struct peer_opening *opening)
{
    uint64_t memory = opening->cache_bytes < MEMORY_BYTES_MIN ? MEMORY_BYTES_MIN : opening->cache_bytes;
    uint64_t share = memory / MEMTABLE_SHARE;
    uint64_t memtable = share < MEMTABLE_BYTES_MAX ? share : MEMTABLE_BYTES_MAX;
    store->cache = leveldb_cache_create_lru(memory - 2 * memtable);
    store->filter = leveldb_filterpolicy_create_bloom(BLOOM_BITS);
    store->options = leveldb_options_create();
    leveldb_options_set_create_if_missing(store->options, 1);
    leveldb_options_set_write_buffer_size(store->options, memtable);
    leveldb_options_set_cache(store->options, store->cache);
    leveldb_options_set_filter_policy(store->options, store->filter);
    leveldb_options_set_compression(store->options, leveldb_no_compression);
    store->write_options = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(store->write_options, opening->durability == PEER_SYNCED);
}

static void free_store(struct peer_store *store)
{
    leveldb_writeoptions_destroy(store->write_options);
    leveldb_options_destroy(store->options);
    leveldb_filterpolicy_destroy(store->filter);
    leveldb_cache_destroy(store->cache);
    free(store);
}

static enum peer_code open_store(const struct peer_opening *opening, struct peer_store **opened)
{
    char *error = NULL;
    if (opening->table_count > TABLES_MAX)
        return peer_fail("opening the database: %zu tables, and a byte numbers at most %d", opening->table_count,
                         TABLES_MAX);
    struct peer_store *store = calloc(1, sizeof *store);
    set_options(store, opening);
    store->db = leveldb_open(store->options, opening->dir, &error);
    if (error != NULL)
        free_store(store);
    else
        *opened = store;
    return code_of(error, "opening the database");
}

/* A synced write syncs the log, which has all earlier writes. */
static enum peer_code settle(struct peer_store *store)
{
    char *error = NULL;
    leveldb_writebatch_t *nothing = leveldb_writebatch_create();
    leveldb_writeoptions_t *synced = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(synced, 1);
    leveldb_write(store->db, synced, nothing, &error);
    leveldb_writeoptions_destroy(synced);
    leveldb_writebatch_destroy(nothing);
    return code_of(error, "syncing the log");
}

static enum peer_code close_store(struct peer_store *store)
{
    leveldb_close(store->db);
    free_store(store);
    return PEER_OK;
}

static enum peer_code open_session(struct peer_store *store, struct peer_session **opened)
{
    struct peer_session *session = calloc(1, sizeof *session);
    session->store = store;
    session->read_options = leveldb_readoptions_create();
    session->batch = leveldb_writebatch_create();
    *opened = session;
    return PEER_OK;
}

static enum peer_code begin(struct peer_session *session, int write)
{
    if (!write) {
        session->snapshot = leveldb_create_snapshot(session->store->db);
        leveldb_readoptions_set_snapshot(session->read_options, session->snapshot);
    }
    return PEER_OK;
}

static void rollback(struct peer_session *session)
{
    leveldb_writebatch_clear(session->batch);
    if (session->snapshot == NULL)
        return;
    leveldb_readoptions_set_snapshot(session->read_options, NULL);
    leveldb_release_snapshot(session->store->db, session->snapshot);
    session->snapshot = NULL;
}

static enum peer_code commit(struct peer_session *session)
{
    char *error = NULL;
    leveldb_write(session->store->db, session->store->write_options, session->batch, &error);
    leveldb_writebatch_clear(session->batch);
    return code_of(error, "committing");
}

static void end_session(struct peer_session *session)
{
    rollback(session);
    leveldb_writebatch_destroy(session->batch);
    leveldb_readoptions_destroy(session->read_options);
    leveldb_free(session->value);
    free(session->key);
    free(session);
}

/* Puts the key with its table into `full`, which is the session's until its next call. */
static enum peer_code set_key(struct peer_session *session, size_t table, struct peer_bytes key,
                              struct peer_bytes *full)
{
    if (session->key_room < key.size + 1) {
        char *grown = realloc(session->key, key.size + 1);
        if (grown == NULL)
            return peer_fail("making a key: %s", strerror(ENOMEM));
        session->key = grown;
        session->key_room = key.size + 1;
    }
    session->key[0] = (char)table;
    if (key.size > 0)
        memcpy(session->key + 1, key.data, key.size);
    *full = (struct peer_bytes){.data = session->key, .size = key.size + 1};
    return PEER_OK;
}

static enum peer_code get(struct peer_session *session, size_t table, struct peer_bytes key, int for_update,
                          struct peer_bytes *value)
{
    char *error = NULL;
    struct peer_bytes full = {0};
    (void)for_update;
    if (set_key(session, table, key, &full) != PEER_OK)
        return PEER_ERROR;
    leveldb_free(session->value);
    session->value =
        leveldb_get(session->store->db, session->read_options, full.data, full.size, &value->size, &error);
    if (error != NULL)
        return code_of(error, "reading");
    value->data = session->value;
    return session->value == NULL ? PEER_NOT_FOUND : PEER_OK;
}

static enum peer_code put(struct peer_session *session, size_t table, struct peer_bytes key, struct peer_bytes value)
{
    struct peer_bytes full = {0};
    if (set_key(session, table, key, &full) != PEER_OK)
        return PEER_ERROR;
    leveldb_writebatch_put(session->batch, full.data, full.size, value.data, value.size);
    return PEER_OK;
}

static enum peer_code remove_key(struct peer_session *session, size_t table, struct peer_bytes key)
{
    struct peer_bytes full = {0};
    if (set_key(session, table, key, &full) != PEER_OK)
        return PEER_ERROR;
    leveldb_writebatch_delete(session->batch, full.data, full.size);
    return PEER_OK;
}

/* The entry at hand, of whichever table. */
static struct peer_bytes key_at(const leveldb_iterator_t *entries)
{
    struct peer_bytes key;
    key.data = leveldb_iter_key(entries, &key.size);
    return key;
}

/* Goes to the last entry that is below `bound`, or also at it. */
static void seek_back(leveldb_iterator_t *entries, struct peer_bytes bound, int may_be_at)
{
    leveldb_iter_seek(entries, bound.data, bound.size);
    if (!leveldb_iter_valid(entries))
        leveldb_iter_seek_to_last(entries);
    else if (!may_be_at || peer_compare(key_at(entries), bound) != 0)
        leveldb_iter_prev(entries);
}

static enum peer_code position(struct peer_session *session, leveldb_iterator_t *entries, size_t table,
                               const struct peer_bytes *from, int reverse)
{
    struct peer_bytes bound = {0};
    struct peer_bytes nothing = {.data = NULL, .size = 0};
    /* Backwards from the end of a table is backwards from the beginning of the next one. */
    size_t first = from == NULL && reverse ? table + 1 : table;
    if (set_key(session, first, from == NULL ? nothing : *from, &bound) != PEER_OK)
        return PEER_ERROR;
    if (reverse)
        seek_back(entries, bound, from != NULL);
    else
        leveldb_iter_seek(entries, bound.data, bound.size);
    return PEER_OK;
}

static int is_in(const leveldb_iterator_t *entries, size_t table)
{
    return leveldb_iter_valid(entries) && *(const unsigned char *)key_at(entries).data == table;
}

static enum peer_code scan(struct peer_session *session, size_t table, const struct peer_bytes *from, int reverse,
                           int for_update, peer_visit visit, void *state)
{
    (void)for_update;
    char *error = NULL;
    leveldb_iterator_t *entries = leveldb_create_iterator(session->store->db, session->read_options);
    enum peer_code code = position(session, entries, table, from, reverse);
    while (code == PEER_OK && is_in(entries, table)) {
        struct peer_bytes full = key_at(entries);
        struct peer_bytes key = {.data = (const char *)full.data + 1, .size = full.size - 1};
        struct peer_bytes value;
        value.data = leveldb_iter_value(entries, &value.size);
        if (!visit(state, key, value))
            break;
        if (reverse)
            leveldb_iter_prev(entries);
        else
            leveldb_iter_next(entries);
    }
    leveldb_iter_get_error(entries, &error);
    leveldb_iter_destroy(entries);
    return code == PEER_OK ? code_of(error, "scanning") : code;
}

const struct peer_library peer_leveldb = {
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

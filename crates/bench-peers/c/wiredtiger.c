/*
 * WiredTiger: a B-tree for each table, a log, snapshot isolation.
 *
 * It has one variant, 0.
 */
#include "peer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

#define CONFIG_BYTES 512
#define TABLE_BYTES 128
/* The server's sessions included. */
#define SESSIONS_MAX 1024
/* A checkpoint after so many seconds, or so much log. */
#define CHECKPOINT_SECONDS 60
#define CHECKPOINT_LOG_MIB 100
/* What it takes at least. */
#define CACHE_BYTES_MIN (UINT64_C(1) << 20)

struct peer_store {
    WT_CONNECTION *connection;
    size_t table_count;
    char (*tables)[TABLE_BYTES];
};

struct peer_session {
    WT_SESSION *session;
    int is_open;
    size_t table_count;
    /* One for each table, kept over the transactions. */
    WT_CURSOR **cursors;
    /* The value that was read outside of a transaction. */
    void *value;
};

static enum peer_code code_of(int error, const char *what)
{
    switch (error) {
    case 0:
        return PEER_OK;
    case WT_NOTFOUND:
        return PEER_NOT_FOUND;
    case WT_ROLLBACK:
        return PEER_CONFLICT;
    default:
        return peer_fail("%s: %s", what, wiredtiger_strerror(error));
    }
}

static const char *version(void)
{
    return wiredtiger_version(NULL, NULL, NULL);
}

/* `method=none` writes the log with each commit and does not sync it, `enabled=false` leaves it in memory. */
static const char *sync_of(const struct peer_opening *opening)
{
    switch (opening->durability) {
    case PEER_MEMORY:
        return "enabled=false";
    case PEER_WRITTEN:
        return "enabled=true,method=none";
    default:
        return "enabled=true,method=fsync";
    }
}

static int connect(const struct peer_opening *opening, WT_CONNECTION **connection)
{
    char config[CONFIG_BYTES];
    uint64_t cache_bytes = opening->cache_bytes < CACHE_BYTES_MIN ? CACHE_BYTES_MIN : opening->cache_bytes;
    snprintf(config, sizeof config,
             "create,cache_size=%" PRIu64 ",session_max=%d,log=(enabled=true,zero_fill=true),"
             "transaction_sync=(%s),checkpoint=(wait=%d,log_size=%dMB)",
             cache_bytes, SESSIONS_MAX, sync_of(opening), CHECKPOINT_SECONDS, CHECKPOINT_LOG_MIB);
    return wiredtiger_open(opening->dir, NULL, config, connection);
}

static int create_tables(struct peer_store *store)
{
    WT_SESSION *session;
    int error = store->connection->open_session(store->connection, NULL, NULL, &session);
    if (error != 0)
        return error;
    for (size_t table = 0; table < store->table_count && error == 0; table++)
        error = session->create(session, store->tables[table], "type=file,key_format=u,value_format=u");
    session->close(session, NULL);
    return error;
}

static void free_store(struct peer_store *store)
{
    free(store->tables);
    free(store);
}

static enum peer_code open_store(const struct peer_opening *opening, struct peer_store **opened)
{
    struct peer_store *store = calloc(1, sizeof *store);
    store->table_count = opening->table_count;
    store->tables = calloc(opening->table_count, sizeof *store->tables);
    for (size_t table = 0; table < opening->table_count; table++)
        snprintf(store->tables[table], TABLE_BYTES, "table:%s", opening->tables[table]);
    int error = connect(opening, &store->connection);
    if (error == 0) {
        error = create_tables(store);
        if (error != 0)
            store->connection->close(store->connection, NULL);
    }
    if (error != 0)
        free_store(store);
    else
        *opened = store;
    return code_of(error, "opening the database");
}

static enum peer_code settle(struct peer_store *store)
{
    WT_SESSION *session;
    int error = store->connection->open_session(store->connection, NULL, NULL, &session);
    if (error == 0) {
        error = session->log_flush(session, "sync=on");
        session->close(session, NULL);
    }
    return code_of(error, "flushing the log");
}

static enum peer_code close_store(struct peer_store *store)
{
    int error = store->connection->close(store->connection, NULL);
    free_store(store);
    return code_of(error, "closing the database");
}

static void end_session(struct peer_session *session)
{
    /* This closes its cursors and undoes its transaction, too. */
    session->session->close(session->session, NULL);
    free(session->cursors);
    free(session->value);
    free(session);
}

static enum peer_code open_session(struct peer_store *store, struct peer_session **opened)
{
    WT_SESSION *handle;
    int error = store->connection->open_session(store->connection, NULL, "isolation=snapshot", &handle);
    if (error != 0)
        return code_of(error, "opening a session");
    struct peer_session *session = calloc(1, sizeof *session);
    session->session = handle;
    session->table_count = store->table_count;
    session->cursors = calloc(store->table_count, sizeof *session->cursors);
    for (size_t table = 0; table < store->table_count && error == 0; table++)
        error = handle->open_cursor(handle, store->tables[table], NULL, NULL, &session->cursors[table]);
    if (error != 0)
        end_session(session);
    else
        *opened = session;
    return code_of(error, "opening a cursor");
}

static enum peer_code begin(struct peer_session *session, int write)
{
    (void)write;
    int error = session->session->begin_transaction(session->session, NULL);
    session->is_open = error == 0;
    return code_of(error, "beginning a transaction");
}

static enum peer_code commit(struct peer_session *session)
{
    session->is_open = 0;
    return code_of(session->session->commit_transaction(session->session, NULL), "committing");
}

static void rollback(struct peer_session *session)
{
    if (session->is_open)
        session->session->rollback_transaction(session->session, NULL);
    session->is_open = 0;
}

static WT_ITEM item_of(struct peer_bytes bytes)
{
    return (WT_ITEM){.data = bytes.data, .size = bytes.size};
}

static struct peer_bytes bytes_of(const WT_ITEM *item)
{
    return (struct peer_bytes){.data = item->data, .size = item->size};
}

/* Copies a value and releases its page, which an idle session would otherwise keep in the cache. */
static int detach(struct peer_session *session, WT_CURSOR *cursor, struct peer_bytes *value)
{
    void *copy = realloc(session->value, value->size + 1);
    if (copy == NULL)
        return ENOMEM;
    session->value = copy;
    if (value->size > 0)
        memcpy(copy, value->data, value->size);
    value->data = copy;
    return cursor->reset(cursor);
}

static enum peer_code get(struct peer_session *session, size_t table, struct peer_bytes key, int for_update,
                          struct peer_bytes *value)
{
    /* Nothing waits for a lock here: the second of two writers conflicts when it writes. */
    (void)for_update;
    WT_CURSOR *cursor = session->cursors[table];
    WT_ITEM item = item_of(key);
    cursor->set_key(cursor, &item);
    int error = cursor->search(cursor);
    if (error == 0)
        error = cursor->get_value(cursor, &item);
    if (error == 0)
        *value = bytes_of(&item);
    if (error == 0 && !session->is_open)
        error = detach(session, cursor, value);
    return code_of(error, "reading");
}

static enum peer_code put(struct peer_session *session, size_t table, struct peer_bytes key, struct peer_bytes value)
{
    WT_CURSOR *cursor = session->cursors[table];
    WT_ITEM key_item = item_of(key);
    WT_ITEM value_item = item_of(value);
    cursor->set_key(cursor, &key_item);
    cursor->set_value(cursor, &value_item);
    return code_of(cursor->insert(cursor), "writing");
}

static enum peer_code remove_key(struct peer_session *session, size_t table, struct peer_bytes key)
{
    WT_CURSOR *cursor = session->cursors[table];
    WT_ITEM item = item_of(key);
    cursor->set_key(cursor, &item);
    enum peer_code code = code_of(cursor->remove(cursor), "deleting");
    return code == PEER_NOT_FOUND ? PEER_OK : code;
}

static int step(WT_CURSOR *cursor, int reverse)
{
    return reverse ? cursor->prev(cursor) : cursor->next(cursor);
}

static int position(WT_CURSOR *cursor, const struct peer_bytes *from, int reverse)
{
    int order;
    int error = cursor->reset(cursor);
    if (error != 0 || from == NULL)
        return error != 0 ? error : step(cursor, reverse);
    WT_ITEM item = item_of(*from);
    cursor->set_key(cursor, &item);
    error = cursor->search_near(cursor, &order);
    if (error == 0 && (reverse ? order > 0 : order < 0))
        error = step(cursor, reverse);
    return error;
}

static enum peer_code scan(struct peer_session *session, size_t table, const struct peer_bytes *from, int reverse,
                           int for_update, peer_visit visit, void *state)
{
    (void)for_update;
    WT_CURSOR *cursor = session->cursors[table];
    int error = position(cursor, from, reverse);
    for (; error == 0; error = step(cursor, reverse)) {
        WT_ITEM key, value;
        error = cursor->get_key(cursor, &key);
        if (error == 0)
            error = cursor->get_value(cursor, &value);
        if (error != 0 || !visit(state, bytes_of(&key), bytes_of(&value)))
            break;
    }
    enum peer_code code = code_of(error, "scanning");
    int reset = cursor->reset(cursor);
    if (code == PEER_OK || code == PEER_NOT_FOUND)
        code = code_of(reset, "scanning");
    return code;
}

const struct peer_library peer_wiredtiger = {
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

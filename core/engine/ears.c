/* ears.c - subscriptions to sentinels: a switch that is announced need not wait for the next query.
 *
 * Up to five are subscribed to, because the sentinel that led a failover announces it a second or
 * two before the others, and any of them may be the one.
 */
#include "engine/sentinel.h"

#include <string.h>

#define EARS 5

/* The leader of a failover publishes the second when it has promoted a replica, and the first when
 * the other replicas follow it: a second or more during which the old master continues.  The other
 * sentinels publish the first only. */
static const char *const ear_news[] = {"+switch-master", "+promoted-slave"};

static struct snib__link *ear_link(const struct snib__sentinel *one)
{
    return &one->node->links[SNIB__PUBSUB];
}

/* When the next sentinel should be subscribed to, and which; SNIB__NEVER:
 * enough are, or none is left. */
static snib__time ears_next(struct snib__sentinels *map, struct snib__sentinel **out)
{
    snib__time first = SNIB__NEVER;
    uint32_t ears = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        struct snib__sentinel *one = &map->all[i];
        snib__time at = one->listen > one->shun_until ? one->listen : one->shun_until;
        ears += one->heard;
        if (one->heard || one->deaf || at >= first)
            continue;
        first = at;
        *out = one;
    }
    return ears < EARS ? first : SNIB__NEVER;
}

void snib__ears_tick(struct snib__engine *e, snib__time now)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    struct snib__sentinel *next = NULL;
    while (ears_next(map, &next) <= now) {
        next->heard = true;
        if (ear_link(next)->conn.state != SNIB__CONN_READY)
            snib__link_want(e, ear_link(next), now);
    }
    /* an idle client has not checked whether they are still up */
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].heard && ear_link(&map->all[i])->conn.state == SNIB__CONN_READY)
            ear_link(&map->all[i])->wanted = true;
}

snib__time snib__ears_deadline(const struct snib__engine *e)
{
    struct snib__sentinels *map = snib__sentinels_of(e);
    struct snib__sentinel *next = NULL;
    for (uint32_t i = 0; i < map->n; i++)
        if (map->all[i].heard && !ear_link(&map->all[i])->wanted &&
            ear_link(&map->all[i])->conn.state == SNIB__CONN_READY)
            return 0;
    return ears_next(map, &next);
}

void snib__ear_ready(struct snib__sentinel *one)
{
    for (int i = 0; i < 2; i++)
        snib__chan_say(one->node, "SUBSCRIBE", ear_news[i], strlen(ear_news[i]));
}

void snib__ear_down(struct snib__sentinel *one, snib__time now)
{
    if (one->confirmed && now >= one->confirmed_at + SNIB__SENTINEL_POLL)
        one->listen_pause = 0;
    one->heard = false;
    one->confirmed = false;
    one->listen = now + one->listen_pause;
    one->listen_pause =
        snib__sentinel_longer(one->listen_pause, SNIB__SENTINEL_PAUSE, SNIB__SENTINEL_REST);
}

/* "service old-host old-port new-host new-port", or "slave name host port @ service ...":
 * only the service is believed. */
static bool ear_about_ours(const struct snib__engine *e, const char *channel, const char *text)
{
    size_t n = strlen(e->config.service);
    if (strcmp(channel, "+promoted-slave") == 0) {
        text = strstr(text, " @ ");
        text = text ? text + 3 : "";
    }
    return strncmp(text, e->config.service, n) == 0 && text[n] == ' ';
}

/* The second subscription is optional: a user may lack the permission for it. */
static void ear_refused(struct snib__engine *e, struct snib__sentinel *one)
{
    if (one->confirmed || one->deaf)
        return;
    one->deaf = true;
    one->heard = false;
    snib__engine_log(e, SNIB_LOG_WARNING,
                     "%s refused the subscription to +switch-master: allow this user +subscribe",
                     one->node->where);
}

bool snib__ear_heard(struct snib__engine *e, struct snib__sentinel *one,
                     const struct snib__value *reply, uint32_t n, snib__time now)
{
    const struct snib__resp *resp = ear_link(one)->conn.resp;
    if (reply->type == SNIB__RESP_ERROR) {
        ear_refused(e, one);
        return false;
    }
    if (n != 4 || reply[1].type != SNIB__RESP_STRING || reply[2].type != SNIB__RESP_STRING)
        return false;
    const char *what = snib__resp_text(resp, &reply[1]);
    if (!one->confirmed && strcmp(what, "subscribe") == 0) {
        one->confirmed = true;
        one->confirmed_at = now;
    }
    return strcmp(what, "message") == 0 && reply[3].type == SNIB__RESP_STRING &&
           ear_about_ours(e, snib__resp_text(resp, &reply[2]), snib__resp_text(resp, &reply[3]));
}

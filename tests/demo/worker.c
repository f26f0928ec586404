/* worker.c - the buyer in C: threads that share one client and buy from the shop.
 *
 * Every buyer program obeys the same environment and writes the same log; demo.py tells which.
 */
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <snib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 2 };

static const char *name;
static snib_lock *the_lock; /* NULL: buy without a lock */
static FILE *event_log;

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void think_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* End with a sentence unless `code` is one of the two outcomes the caller can handle. */
static void must(int code, int also, const snib_error *err)
{
    if (code != SNIB_OK && code != also) {
        fprintf(stderr, "%s: %s\n", name, err->text);
        exit(1);
    }
}

static redisContext *shop_open(void)
{
    redisContext *shop = redisConnectUnix(getenv("DEMO_SHOP"));
    if (shop == NULL || shop->err != 0) {
        fprintf(stderr, "%s: cannot reach the shop\n", name);
        exit(1);
    }
    return shop;
}

/* Read the stock, think, write it back: wrong without a lock.  -1: sold out. */
static int buy(redisContext *shop, snib_hold *hold)
{
    redisReply *reply = redisCommand(shop, "MGET stock slow");
    long stock = strtol(reply->element[0]->str, NULL, 10);
    int slow = reply->element[1]->str != NULL && strcmp(reply->element[1]->str, name) == 0;
    freeReplyObject(reply);
    if (stock <= 0)
        return -1;
    if (slow)
        freeReplyObject(redisCommand(shop, "DEL slow"));
    think_ms(slow ? atol(getenv("DEMO_SLOW_MS")) : atol(getenv("DEMO_THINK_MS")));
    snib_error err;
    if (hold != NULL && snib_hold_check(hold, &err) != SNIB_OK) {
        fprintf(event_log, "{\"event\":\"lost\",\"at\":%lld,\"why\":\"%s\"}\n", (long long)now_us(),
                err.text);
        return 0;
    }
    freeReplyObject(redisCommand(shop, "SET stock %ld", stock - 1));
    freeReplyObject(redisCommand(shop, "INCR sold"));
    return 1;
}

static void *buyer(void *arg)
{
    redisContext *shop = shop_open();
    int64_t end = atoll(getenv("DEMO_END_US"));
    int bought = 0;
    snib_error err;
    while (bought >= 0 && now_us() < end) {
        snib_hold *hold = NULL;
        int64_t asked = now_us();
        if (the_lock != NULL)
            must(snib_lock_acquire(the_lock, 0, -1, &hold, &err), SNIB_OK, &err);
        int64_t got = now_us();
        fprintf(event_log, "{\"event\":\"got\",\"by\":%d,\"at\":%lld,\"wait\":%lld}\n",
                (int)(intptr_t)arg, (long long)got, (long long)(got - asked));
        bought = buy(shop, hold);
        fprintf(event_log, "{\"event\":\"gave\",\"by\":%d,\"at\":%lld,\"bought\":%d}\n",
                (int)(intptr_t)arg, (long long)now_us(), bought > 0);
        if (hold != NULL)
            must(snib_hold_release(hold, &err), SNIB_LOST, &err);
        snib_hold_free(hold);
    }
    redisFree(shop);
    return NULL;
}

int main(void)
{
    name = getenv("DEMO_NAME");
    event_log = fopen(getenv("DEMO_LOG"), "w");
    setvbuf(event_log, NULL, _IOLBF, 0); /* a killed buyer leaves a complete log */

    snib_client *client = NULL;
    snib_error err;
    if (getenv("DEMO_LOCK")[0] != '\0') {
        snib_client_options options;
        snib_client_options_init(&options, sizeof options);
        options.lease_ms = atol(getenv("DEMO_LEASE_MS"));
        must(snib_client_open(getenv("SNIB_URL"), &options, &client, &err), SNIB_OK, &err);
        const char *lock_name = getenv("DEMO_LOCK");
        must(snib_lock_new(client, SNIB_MUTEX, lock_name, strlen(lock_name), NULL, &the_lock, &err),
             SNIB_OK, &err);
    }

    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, buyer, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);

    if (client != NULL) {
        snib_client_stats_data stats = {.size = sizeof stats};
        must(snib_client_stats(client, &stats, &err), SNIB_OK, &err);
        fprintf(event_log, "{\"event\":\"end\",\"handovers\":%llu}\n",
                (unsigned long long)stats.handovers);
    }
    snib_lock_free(the_lock);
    snib_client_free(client);
    fclose(event_log);
    return 0;
}

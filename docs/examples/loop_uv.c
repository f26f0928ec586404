/* loop_uv.c - a lock in libuv's loop.
 *
 *     cc loop_uv.c $(pkg-config --cflags --libs snib libuv)
 */
#include "loop_work.h"

#include <uv.h>

static uv_poll_t poll_handle;
static uv_timer_t timer;

static void on_readable(uv_poll_t *handle, int status, int events)
{
    (void)handle, (void)status, (void)events;
    if (work_drain())
        return;
    uv_close((uv_handle_t *)&poll_handle, NULL); /* the descriptor stays open, for work_end() */
    uv_close((uv_handle_t *)&timer, NULL);
}

static void on_tick(uv_timer_t *handle)
{
    (void)handle;
    work_tick();
}

int main(void)
{
    uv_loop_t *loop = uv_default_loop();
    uv_poll_init(loop, &poll_handle, work_begin());
    uv_poll_start(&poll_handle, UV_READABLE, on_readable);
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, on_tick, TICK_MS, TICK_MS);
    uv_run(loop, UV_RUN_DEFAULT); /* until both handles are closed */
    uv_loop_close(loop);
    work_end();
    return 0;
}

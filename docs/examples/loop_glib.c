/* loop_glib.c - a lock in GLib's main loop.
 *
 *     cc loop_glib.c $(pkg-config --cflags --libs snib glib-2.0)
 */
#include "loop_work.h"

#include <glib-unix.h>

static gboolean on_readable(gint fd, GIOCondition condition, gpointer loop)
{
    (void)fd, (void)condition;
    if (work_drain())
        return G_SOURCE_CONTINUE;
    g_main_loop_quit(loop);
    return G_SOURCE_REMOVE;
}

static gboolean on_tick(gpointer unused)
{
    (void)unused;
    work_tick();
    return G_SOURCE_CONTINUE;
}

int main(void)
{
    GMainLoop *loop = g_main_loop_new(NULL, FALSE);
    g_unix_fd_add(work_begin(), G_IO_IN, on_readable, loop);
    guint timer = g_timeout_add(TICK_MS, on_tick, NULL);
    g_main_loop_run(loop);
    g_source_remove(timer);
    work_end();
    g_main_loop_unref(loop);
    return 0;
}

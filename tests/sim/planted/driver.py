"""Planted bugs: the driver: threads, sockets, wake-ups."""

from . import Mutant

MUTANTS = [
    Mutant(
        "wake-ups that do not fit into a list are dropped",
        "driver/driver.c",
        "        snib__unpark(word); /* more than",
        "        (void)0; /* more than",
        "sim/driver",
    ),
    Mutant(
        "an interrupted recv ends the link",
        "driver/driver.c",
        "(error != EAGAIN && error != EINTR)",
        "(error != EAGAIN)",
        "sim/driver",
    ),
    Mutant(
        "nobody watches for room in a full socket",
        "driver/thread.c",
        ".events = unsent ? POLLIN | POLLOUT : POLLIN};",
        ".events = POLLIN};",
        "sim/driver",
    ),
    Mutant(
        "connecting knows no limit",
        "driver/sock.c",
        "if (step != 0 || now < sock->until)",
        "if (step != 0 || now < SNIB__NEVER)",
        "sim/driver",
    ),
    Mutant(
        "a socket that is not open is read",
        "driver/driver.c",
        "return sock && sock->open ? sock : NULL;",
        "return sock;",
        "sim/driver",
    ),
    Mutant(
        "a wake list does not keep the descriptor open",
        "driver/driver.c",
        "    atomic_fetch_add(&bell->refs, 1);\n",
        "",
        "sim/driver",
    ),
    Mutant(
        "a nominee is waited for",
        "driver/thread.c",
        "snib__now() >= sock->nominated_at + THREAD_TRANSIT",
        "false",
        "sim/driver",
    ),
    Mutant(
        "the thread sleeps as long as nobody wakes it",
        "driver/thread.c",
        "*until = thread_earlier(*until, now + d->nap);",
        "(void)0;",
        "sim/driver",
    ),
    Mutant(
        "a nominee is not woken",
        "driver/driver.c",
        "            snib__wake_word(d, wakes, &waiter->op->word);\n"
        "        }\n"
        "        sock->reader",
        "        }\n"
        "        sock->reader",
        "sim/driver",
    ),
    Mutant(
        "a dropped socket is still found",
        "driver/driver.c",
        "    d->socks[link] = NULL;\n"
        "    if (sock)\n"
        "        snib__sock_drop(sock);",
        "    if (sock)\n"
        "        snib__sock_drop(sock);\n"
        "    d->socks[link] = NULL;",
        "sim/driver",
    ),
    Mutant(
        "the thread spins while another is writing",
        "driver/thread.c",
        "!sock->writing && snib__buf_size(&sock->sending) > 0;",
        "snib__buf_size(&sock->sending) > 0;",
        "sim/driver",
    ),
    Mutant(
        "the second address waits for the end of the first",
        "driver/sock.c",
        "(sock->tries_n == 0 || now >= sock->begin_next)",
        "(sock->tries_n == 0)",
        "sim/driver",
    ),
    Mutant(
        "the address that worked is forgotten",
        "driver/sock.c",
        "way->worked_n = at->ai_addrlen;",
        "way->worked_n = 0;",
        "sim/driver",
    ),
    Mutant(
        "each attempt begins a lookup",
        "driver/sock.c",
        "if (resolve && sock_to_come(resolve, now)) {",
        "if (false && sock_to_come(resolve, now)) {",
        "sim/driver",
    ),
    Mutant(
        "the reader keeps the role",
        "driver/driver.c",
        "    if (sock == d->socks[SNIB__COMMAND])\n"
        "        snib__driver_pass_role(d, &wakes);",
        "    (void)0;",
        "sim/driver",
    ),
    Mutant(
        "answers are left unread",
        "driver/driver.c",
        "unread || full || pushed",
        "full || pushed",
        "sim/driver",
    ),
    Mutant(
        "two write at once",
        "driver/driver.c",
        "(sock = snib__driver_command(d)) && !sock->writing)",
        "(sock = snib__driver_command(d)))",
        "sim/driver",
    ),
    Mutant(
        "two read at once",
        "driver/driver.c",
        "(sock->reader == SNIB__READER_NOBODY || driver_nominated(d, op));",
        "(sock->reader != SNIB__READER_CALLER || driver_nominated(d, op));",
        "sim/driver",
    ),
    Mutant(
        "a queue is told outside the mutex",
        "driver/driver.c",
        "    snib__driver_ring(wakes);\n"
        "    snib__sys_unlock(&d->mutex);",
        "    snib__sys_unlock(&d->mutex);\n"
        "    snib__driver_ring(wakes);",
        "sim/driver",
    ),
    Mutant(
        "who watches holds is not woken",
        "driver/driver.c",
        "wakes->hold_watchers = true;",
        "wakes->hold_watchers = false;",
        "sim/driver",
    ),
    Mutant(
        "the background thread takes signals",
        "driver/sys.c",
        "    sigfillset(&all);",
        "    sigemptyset(&all);",
        "live/threads signals_are_for_the_program",
    ),
    Mutant(
        "what a full socket did not take is dropped",
        "driver/thread.c",
        "if (n > 0) snib__buf_consume(out, (size_t)n);",
        "if (n > 0) snib__buf_consume(out, snib__buf_size(out));",
        "sim/driver",
    ),
    Mutant(
        "bells that do not fit into a list are not rung",
        "driver/driver.c",
        "snib__sys_ring(bell->fd); return;",
        "return;",
        "unit_queue",
    ),
    Mutant(
        "the end of a connection is no end",
        "driver/driver.c",
        "else if (n == 0 || (error != EAGAIN && error != EINTR))",
        "else if (n < 0 && error != EAGAIN && error != EINTR)",
        "sim/driver",
    ),
    Mutant(
        "who is nominated while it sleeps sleeps on",
        "driver/driver.c",
        "while (how == SNIB__PARKED_NO && atomic_load(&op->word) == SNIB__WORD_ASLEEP)",
        "while (how == SNIB__PARKED_NO && atomic_load(&op->word) != SNIB__WORD_DONE)",
        "sim/driver",
    ),
]

"""Planted bugs: the library's edges: the public calls, queues, forks, the exit, the Python extension."""

from . import Mutant

MUTANTS = [
    Mutant(
        "a loss does not signal the queue's descriptor",
        "api/queue.c",
        "    queue->lost_tail = hold;\n"
        "    queue_signal(queue, was_empty, wakes);",
        "    queue->lost_tail = hold;\n"
        "    (void)was_empty;\n"
        "    (void)wakes;",
        "unit_queue",
    ),
    Mutant(
        "a client's limit is no lock's",
        "api/lock.c",
        "        lock->max_hold_ms = client->max_hold_ms;",
        "        lock->max_hold_ms = 0 * client->max_hold_ms;",
        "unit_lock",
    ),
    Mutant(
        "close waits a thousandth of its time",
        "api/client.c",
        "bool quiet = client_settle(client, until);",
        "bool quiet = client_settle(client, snib__now() + (until - snib__now()) / 1000);",
        "sim/driver",
    ),
    Mutant(
        "a signal ends a wait as if its time had passed",
        "api/held.c",
        "    return how == SNIB__PARKED_SIGNAL\n",
        "    return how == SNIB__PARKED_SIGNAL + 100\n",
        "live/threads interrupted_watcher",
    ),
    Mutant(
        "the lock of a child has no limit",
        "api/heir.c",
        ".max_hold_ms = from->max_hold_ms",
        ".max_hold_ms = 0",
        "faults/fork options_inherited",
    ),
    Mutant(
        "a child keeps its parent's connections open",
        "api/heir.c",
        "snib__driver_forked(&client->driver); /* our",
        "/* our",
        "faults/fork descriptors_closed",
    ),
    Mutant(
        "the votes of a child's quorum have no time",
        "api/heir.c",
        "parts->vote_ms = from->vote_ms;",
        "",
        "faults/fork options_inherited",
    ),
    Mutant(
        "a child gives back what its parent holds",
        "api/exit.c",
        "exit_first = NULL; pthread_mutex_unlock",
        "pthread_mutex_unlock",
        "faults/exit not_the_parents",
    ),
    Mutant(
        "only one client gives back at the exit",
        "api/exit.c",
        "while ((client = exit_take(with_tls))) { /* first",
        "if ((client = exit_take(with_tls))) { /* first",
        "faults/exit some_were_freed",
    ),
    Mutant(
        "a client that goes takes those behind it off the list",
        "api/exit.c",
        "client->exit_prev->exit_next = client->exit_next;",
        "client->exit_prev->exit_next = NULL;",
        "faults/exit some_were_freed",
    ),
    Mutant(
        "a queue that is not empty is hushed",
        "api/queue.c",
        "if (queue_empty(queue)) snib__sys_hush",
        "snib__sys_hush",
        "unit_queue",
    ),
    Mutant(
        "a grant that nobody fetched is kept",
        "api/queue.c",
        "snib_hold_free(events[i].hold);",
        "(void)0;",
        "live/queue freed_with_grants",
    ),
    Mutant(
        "records that were dropped are told again",
        "api/queue.c",
        "queue->log_dropped = 0;",
        "",
        "unit_queue",
    ),
    Mutant(
        "two consumers wait at one queue",
        "api/queue.c",
        "bool free = !queue->busy || !claim;",
        "bool free = true;",
        "live/bad_input second_consumer",
    ),
    Mutant(
        "the last loss of a queue stays behind",
        "api/queue.c",
        "else queue->lost_tail = hold->prev; hold->tell = 0;",
        "hold->tell = 0;",
        "unit_queue",
    ),
    Mutant(
        "an exception is never freed",
        "bindings/python_calls.c",
        "PyErr_SetObject((PyObject *)Py_TYPE(exception), exception); Py_DECREF(exception);",
        "PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);",
        "python/test_references.py",
    ),
    Mutant(
        "a signal does not end a wait for a loss",
        "bindings/python_calls.c",
        "if (PyErr_CheckSignals()) return NULL; if (timeout_ms >= 0",
        "if (timeout_ms >= 0",
        "python/test_process.py another_thread_takes",
    ),
    Mutant(
        "an acquisition goes on after a signal",
        "bindings/python_calls.c",
        "if (PyErr_CheckSignals()) { snib_op_free(op);",
        "if (PyErr_CheckSignals()) {",
        "python/test_process.py test_ctrl_c_interrupts",
    ),
    Mutant(
        "a number that is no ticket leaves its error",
        "bindings/python_calls.c",
        "if (PyErr_Occurred()) PyErr_Clear(); /*",
        "/*",
        "python/test_errors.py another_handle",
    ),
    Mutant(
        "who waits at a queue goes away with nothing",
        "api/queue.c",
        "queue_sleep(queue, snib__until(timeout)); code = queue_drain(queue, events, cap, err);",
        "queue_sleep(queue, snib__until(timeout));",
        "sim/driver",
    ),
]

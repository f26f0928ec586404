"""A Python program that protects a row of PostgreSQL by a fenced lock: see peer.c."""

import sys

import psycopg
import snib
from snib import fencing

client = snib.connect(sys.argv[1])
lock = client.fenced_lock("row")
database = psycopg.connect(sys.argv[2])


def write(token: int, owner: str) -> bool:
    try:
        with database.transaction():
            fencing.sql_check(database, "stock", token, owner)
            row = database.execute("SELECT number FROM stock WHERE item = 'book'").fetchone()
            assert row
            database.execute("UPDATE stock SET number = %s WHERE item = 'book'", (row[0] + 1,))
    except fencing.StaleToken:
        return False
    return True


def release(hold: snib.Hold) -> str:
    try:
        hold.release()
    except snib.Lost:
        return "lost"
    return "ok"


for line in sys.stdin:
    verb, *words = line.split()
    if verb == "lock":
        hold = lock.hold()
        print(hold.token, hold.owner, flush=True)
    elif verb == "write":
        print("ok" if write(int(words[0]), words[1]) else "stale", flush=True)
    elif verb == "run":
        refused = 0
        for _ in range(int(words[0])):
            with lock.hold() as hold:
                refused += not write(hold.token, hold.owner)
        print("refused", refused, flush=True)
    else:
        print(release(hold), flush=True)

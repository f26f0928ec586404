"""A row that refuses an outdated holder.  The same table protects it from holders in C, Go and Java."""

import os
import sqlite3

import snib
from snib import fencing

URL = os.environ.get("SNIB_URL", "redis://127.0.0.1:6379")

database = sqlite3.connect(":memory:")
fencing.sql_create(database)
database.execute("CREATE TABLE stock (item TEXT, number INTEGER)")
database.execute("INSERT INTO stock VALUES ('book', 7)")


def sell(token: int, owner: str) -> None:
    with database:  # one transaction: the check and the change
        fencing.sql_check(database, "stock", token, owner)
        database.execute("UPDATE stock SET number = number - 1")


with snib.connect(URL) as client:
    with client.fenced_lock("stock") as hold:
        paused = hold.token, hold.owner
    with client.fenced_lock("stock") as hold:
        sell(hold.token, hold.owner)
    try:
        sell(*paused)  # it was paused, and does not know that its lock is gone
    except fencing.StaleToken as stale:
        print(stale)
    assert database.execute("SELECT number FROM stock").fetchone() == (6,)
database.close()

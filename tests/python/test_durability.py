"""The option durability on a server without replicas: no error, and 0 replicas reported."""

from __future__ import annotations

import pytest
import snib


@pytest.mark.parametrize("wish", [1, "majority", "all"])
def test_a_server_without_replicas_is_no_error(server, wish):
    with snib.connect(server.url, durability=wish) as client, client.lock("x").hold() as hold:
        assert hold.replicas == 0


def test_without_the_option_nothing_is_claimed(server):
    with snib.connect(server.url) as client, client.lock("x").hold() as hold:
        assert hold.replicas == 0


def test_too_few_is_an_error_of_its_own():
    assert issubclass(snib.TooFewReplicas, snib.ServerError)
    assert snib.TooFewReplicas.retryable
